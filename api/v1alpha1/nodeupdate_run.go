package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RunState of a node's run.
// +kubebuilder:validation:Enum=Running;Succeeded;Failed;Undone
type RunState string

// States of a run.
const (
	RunRunning   RunState = "Running"
	RunSucceeded RunState = "Succeeded"
	RunFailed    RunState = "Failed"
	// RunUndone: a run with undo has ended and the node is as it was before.
	RunUndone RunState = "Undone"
)

// NodeRunStatus is what came of spec.run.
type NodeRunStatus struct {
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	UID string `json:"uid"`
	// +kubebuilder:validation:MaxLength=71
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	PlanDigest string   `json:"planDigest"`
	Attempt    int32    `json:"attempt"`
	State      RunState `json:"state"`
	// Step that runs now or failed.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Step string `json:"step,omitempty"`
	// StepsDone counts the steps that were observed done.
	StepsDone int32 `json:"stepsDone"`
	// Reason word when it failed or waits.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Reason string `json:"reason,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^[^\x00-\x08\x0b-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Message string `json:"message,omitempty"`
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
}
