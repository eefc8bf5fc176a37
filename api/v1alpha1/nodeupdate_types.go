package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeUpdate is one node's share: the controller writes the spec, the node's
// agent writes the status. It has the node's name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=refit,shortName=rnu
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Kubelet",type=string,JSONPath=`.status.observed.kubeletVersion`
// +kubebuilder:printcolumn:name="Pinned",type=integer,JSONPath=`.status.pins.imagesPinned`
// +kubebuilder:printcolumn:name="Of",type=integer,JSONPath=`.status.pins.imagesTotal`
// +kubebuilder:printcolumn:name="Step",type=string,JSONPath=`.status.run.step`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeUpdate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec NodeUpdateSpec `json:"spec,omitempty"`
	// Status has one writer, which always writes all of it: field ownership of each
	// field would make a third of every object.
	// +optional
	// +structType=atomic
	Status NodeUpdateStatus `json:"status,omitempty"`
}

// NodeUpdateList is a list of NodeUpdates.
//
// +kubebuilder:object:root=true
type NodeUpdateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeUpdate `json:"items"`
}
