package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AcceptedRisk lets an update start although one check of the gate is closed.
//
// +kubebuilder:validation:XValidation:rule="!(self.check in ['bundle-approved','plan','plan-unchanged','no-other-update','space','agents','agent-versions','control-plane','quorum','images-held','payloads-held'])",message="this check can never be accepted: what it guards (the approval, the quorum, the images, one update at a time) cannot be fixed afterwards; fix the cause that the update's status names"
type AcceptedRisk struct {
	// Check is the name of the gate's check, as `refit gate` lists them.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="must be the name of a check, as `refit gate` lists them"
	Check string `json:"check"`
	// Reason why the risk is accepted.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.trim().size() >= 3",message="say why the risk is taken: `refit accept CHECK --reason TEXT --until DURATION`"
	Reason string `json:"reason"`
	// By is who accepts it, for people who read it later: `refit accept` writes the name of
	// its user.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	By string `json:"by,omitempty"`
	// Until when it is taken. From then on the check counts again.
	Until metav1.Time `json:"until"`
}

// DrainOptions change how this update drains nodes. With any option, refit evicts
// pods and never deletes them, and respects every disruption budget.
type DrainOptions struct {
	// SkipSelector picks pods that stay on their node and die with its update.
	// +optional
	SkipSelector *metav1.LabelSelector `json:"skipSelector,omitempty"`
	// EvictUnownedSelector selects pods that no controller recreates and that may be
	// lost. Without it each such pod needs the annotation refit.dev/evict.
	// +optional
	EvictUnownedSelector *metav1.LabelSelector `json:"evictUnownedSelector,omitempty"`
	// KeepEmptyDirData refuses pods with data in an emptyDir, which would be
	// gone with the pod. Without it they are evicted and an event names them.
	// +optional
	KeepEmptyDirData bool `json:"keepEmptyDirData,omitempty"`
	// GracePeriodSeconds replaces the pods' own time to end.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 1",message="must be at least 1: with 0 a pod would be gone from the API while it still runs"
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"`
	// TimeoutSeconds replaces drainTimeoutSeconds of the pools; 0 waits for ever.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
}

// CheckResult is what one check of the gate answered.
// +kubebuilder:validation:Enum=Passed;Closed;Warned;Accepted
type CheckResult string

// Answers of a check.
const (
	CheckPassed   CheckResult = "Passed"
	CheckClosed   CheckResult = "Closed"   // it says no
	CheckWarned   CheckResult = "Warned"   // it has something to say, but does not say no
	CheckAccepted CheckResult = "Accepted" // it says no, and a person took the risk
)

// GateCheck is one check of the gate and its answer.
type GateCheck struct {
	Name   string      `json:"name"`
	Result CheckResult `json:"result"`
	// Verdicts and Warnings count its messages, which are in blockers and warnings.
	// +optional
	Verdicts int32 `json:"verdicts,omitempty"`
	// +optional
	Warnings int32 `json:"warnings,omitempty"`
}

// RiskState is the effect of an accepted risk.
// +kubebuilder:validation:Enum=InForce;NotNeeded;Expired;UnknownCheck;CannotBeAccepted
type RiskState string

// States of an accepted risk.
const (
	RiskInForce          RiskState = "InForce"   // it turns a no into a warning
	RiskNotNeeded        RiskState = "NotNeeded" // its check says yes
	RiskExpired          RiskState = "Expired"
	RiskUnknownCheck     RiskState = "UnknownCheck"
	RiskCannotBeAccepted RiskState = "CannotBeAccepted"
)

// RiskRecord is what became of an accepted risk. It stays after the update.
type RiskRecord struct {
	Check  string      `json:"check"`
	Reason string      `json:"reason"`
	Until  metav1.Time `json:"until"`
	State  RiskState   `json:"state"`
	// Covers counts the verdicts that it turned into warnings.
	// +optional
	Covers int32 `json:"covers,omitempty"`
}

// Fates of a pod in a drain.
const (
	PodEvict   = "Evict"   // its eviction is asked for
	PodRefused = "Refused" // it cannot be evicted now
	PodLeaving = "Leaving" // it was evicted and is ending
	PodSkipped = "Skipped" // it stays
)

// PodDrain is one pod of a node that is being emptied.
type PodDrain struct {
	// Pod as namespace/name.
	Pod string `json:"pod"`
	// Fate: Evict, Refused, Leaving, Skipped.
	Fate string `json:"fate"`
	// Reason word of a refusal or a wait.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message names the budget, what it allows, and the owner of the pod.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
	// Since when it has this fate.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// NodeDrain is the progress of one node's drain.
type NodeDrain struct {
	Node string `json:"node"`
	// Since when the node is being emptied.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Total pods that must go or have gone, Left of them, and Skipped that stay.
	Total   int32 `json:"total"`
	Left    int32 `json:"left"`
	Skipped int32 `json:"skipped"`
	// Pods that are left, refused ones first; the first 10. All of them:
	// `refit explain node/NAME`.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Pods []PodDrain `json:"pods,omitempty"`
}
