package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Fallback is what happens to machines whose change no updater covers.
// +kubebuilder:validation:Enum=Preserve;Replace
type Fallback string

const (
	// FallbackPreserve, the default, leaves the machines unchanged and reports why:
	// neither an update nor a replacement.
	FallbackPreserve Fallback = "Preserve"
	// FallbackReplace lets Cluster API replace them.
	FallbackReplace Fallback = "Replace"
)

// InPlacePool is the Cluster API object whose machines are updated.
type InPlacePool struct {
	// Kind: MachineDeployment, KubeadmControlPlane, or MachineSet for one that has
	// no owner.
	// +kubebuilder:validation:Enum=MachineDeployment;KubeadmControlPlane;MachineSet
	Kind string `json:"kind"`
	// Name in the same namespace.
	Name string `json:"name"`
}

// InPlacePlanSpec identifies the machines of the plan.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a plan stays with its pool: it is made by refit's controller and goes with the pool"
type InPlacePlanSpec struct {
	Pool InPlacePool `json:"pool"`
	// Cluster the machines belong to.
	// +optional
	Cluster string `json:"cluster,omitempty"`
}

// InPlaceClaim is one updater's share of the change.
type InPlaceClaim struct {
	// Updater that claims the paths.
	Updater string `json:"updater"`
	// Paths of the fields that it moves. No values: they may be secret.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Paths []string `json:"paths"`
	// Disruption of the machine: none, reload, restart, drain or reboot.
	// +optional
	Disruption string `json:"disruption,omitempty"`
}

// UncoveredPath is a field that no updater moves.
type UncoveredPath struct {
	// Path of the field.
	Path string `json:"path"`
	// Why is the reason from the updaters that know the field.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Why string `json:"why,omitempty"`
}

// InPlaceMachine is one machine that is being updated, or waits, or failed.
type InPlaceMachine struct {
	// Name of the Machine.
	Name string `json:"name"`
	// UID of the Machine.
	UID string `json:"uid"`
	// Node that the Machine became.
	// +optional
	Node string `json:"node,omitempty"`
	// Updater that is at work or waited for.
	// +optional
	Updater string `json:"updater,omitempty"`
	// Reason word, one of the catalogue.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is what happens or what the machine waits for.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// Failed is true if a person must act.
	// +optional
	Failed bool `json:"failed,omitempty"`
	// Since when this is reported.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// InPlacePlanStatus is the plan and what has come of it.
type InPlacePlanStatus struct {
	// Fallback that applied when Cluster API asked last.
	// +optional
	Fallback Fallback `json:"fallback,omitempty"`
	// From and To are the Kubernetes versions, if they differ.
	// +optional
	From string `json:"from,omitempty"`
	// +optional
	To string `json:"to,omitempty"`
	// Claims share the change out, in the order in which the updaters are called.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Claims []InPlaceClaim `json:"claims,omitempty"`
	// Uncovered are the first 20 fields that no updater moves.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Uncovered []UncoveredPath `json:"uncovered,omitempty"`
	// UncoveredCount is the number of all of them.
	// +optional
	UncoveredCount int32 `json:"uncoveredCount,omitempty"`
	// Machines that are being updated, wait or failed.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1000
	Machines []InPlaceMachine `json:"machines,omitempty"`
	// Conditions: Covered.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// InPlacePlan shows how the machines of a Cluster API pool are updated in place, or
// which fields of the change prevent that. refit's controller creates one per pool
// when Cluster API first calls it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=refit,shortName=ripp
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.pool.kind`
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.pool.name`
// +kubebuilder:printcolumn:name="From",type=string,JSONPath=`.status.from`
// +kubebuilder:printcolumn:name="To",type=string,JSONPath=`.status.to`
// +kubebuilder:printcolumn:name="Covered",type=string,JSONPath=`.status.conditions[?(@.type=="Covered")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Covered")].reason`
// +kubebuilder:printcolumn:name="Uncovered",type=string,JSONPath=`.status.uncovered[*].path`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Covered")].message`
type InPlacePlan struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec InPlacePlanSpec `json:"spec"`
	// +optional
	Status InPlacePlanStatus `json:"status,omitempty"`
}

// InPlacePlanList is a list of InPlacePlans.
//
// +kubebuilder:object:root=true
type InPlacePlanList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []InPlacePlan `json:"items"`
}
