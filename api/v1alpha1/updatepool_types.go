package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// UpdatePoolSpec says which nodes are updated together and how fast.
type UpdatePoolSpec struct {
	// NodeSelector picks the pool's nodes. A node in two pools is not updated
	// and both pools say so.
	NodeSelector metav1.LabelSelector `json:"nodeSelector"`
	// MaxUnavailable is how many nodes of the pool may be unavailable at once,
	// a number or a percentage (rounded down, at least 1). Control-plane nodes
	// always move one at a time.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^(100|[1-9][0-9]?)%$')",message="must be a number of at least 1 or a percentage from 1% to 100%: with 0 no node could ever be updated; use paused to stop"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// Order of the pool: pools with smaller numbers are updated first.
	// +optional
	Order int32 `json:"order,omitempty"`
	// Paused keeps the pool's nodes from starting; a node that has started goes on.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// DrainTimeoutSeconds after which a drain that makes no progress halts the
	// update. 0 waits for ever.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	DrainTimeoutSeconds int32 `json:"drainTimeoutSeconds,omitempty"`
}

// UpdatePoolStatus counts the pool's nodes.
type UpdatePoolStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	Nodes int32 `json:"nodes,omitempty"`
	// Updated nodes have reached the target of the active ClusterUpdate.
	// +optional
	Updated int32 `json:"updated,omitempty"`
	// Updating nodes have started and are not done.
	// +optional
	Updating int32 `json:"updating,omitempty"`
	// Unavailable nodes are cordoned or not Ready.
	// +optional
	Unavailable int32 `json:"unavailable,omitempty"`
	// Conditions: Ready, Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// UpdatePool is a set of nodes that are updated together.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=refit,shortName=rup
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes`
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.updated`
// +kubebuilder:printcolumn:name="Updating",type=integer,JSONPath=`.status.updating`
// +kubebuilder:printcolumn:name="Unavailable",type=integer,JSONPath=`.status.unavailable`
// +kubebuilder:printcolumn:name="Budget",type=string,JSONPath=`.spec.maxUnavailable`
// +kubebuilder:printcolumn:name="Paused",type=boolean,JSONPath=`.spec.paused`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type UpdatePool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec UpdatePoolSpec `json:"spec"`
	// +optional
	Status UpdatePoolStatus `json:"status,omitempty"`
}

// UpdatePoolList is a list of UpdatePools.
//
// +kubebuilder:object:root=true
type UpdatePoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []UpdatePool `json:"items"`
}
