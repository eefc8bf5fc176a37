package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ImageTrack follows a tag of a repository for some workloads: it reports new images
// and their kind, and applies by digest what it may.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=refit,shortName=rtrack
// +kubebuilder:printcolumn:name="Repository",type=string,priority=1,JSONPath=`.spec.repository`
// +kubebuilder:printcolumn:name="Runs",type=string,JSONPath=`.status.approved.longTag`
// +kubebuilder:printcolumn:name="Newest",type=string,JSONPath=`.status.candidates[0].longTag`
// +kubebuilder:printcolumn:name="Class",type=string,JSONPath=`.status.candidates[0].class`
// +kubebuilder:printcolumn:name="Decision",type=string,JSONPath=`.status.candidates[0].decision`
// +kubebuilder:printcolumn:name="Preloaded",type=string,JSONPath=`.status.preloaded`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type ImageTrack struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ImageTrackSpec `json:"spec"`
	// +optional
	Status ImageTrackStatus `json:"status,omitempty"`
}

// ImageTrackList is a list of ImageTracks.
//
// +kubebuilder:object:root=true
type ImageTrackList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ImageTrack `json:"items"`
}
