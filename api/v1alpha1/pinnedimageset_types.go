package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PinnedImage is one image to pin.
//
// +kubebuilder:validation:XValidation:rule="has(self.base) == has(self.parts)",message="base and parts go together: what an image was made of, and the Content with what was added"
type PinnedImage struct {
	// Name under which pods ask for the image, with its tag.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Name string `json:"name"`
	// Digest of its manifest or index.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.size() == 71 && self.matches('^sha256:[0-9a-f]{64}$')",message="must be sha256: and 64 lower-case hex digits; a tag alone can move and so cannot be pinned"
	Digest string `json:"digest"`
	// SizeBytes that a node fetches of it from a registry, to plan the room; 0 if
	// unknown.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// Base is, of an assembled image, the digest of its base in the set's bundle. Parts is
	// the Content in refit-nodes with its additions. Nodes assemble it.
	// +optional
	// +kubebuilder:validation:MaxLength=71
	Base string `json:"base,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Parts string `json:"parts,omitempty"`
}

// ImageGroup is a named part of a set.
type ImageGroup struct {
	// Name of the group, for example "control-plane" or "workload".
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Images of the group; each name once.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=500
	Images []PinnedImage `json:"images"`
}

// LocalCopy is whether a node keeps the blobs of its pinned images.
// +kubebuilder:validation:Enum=Keep;Discard
type LocalCopy string

const (
	// LocalCopyKeep keeps them.
	LocalCopyKeep LocalCopy = "Keep"
	// LocalCopyDiscard keeps them until the runtime has the images.
	LocalCopyDiscard LocalCopy = "Discard"
)

// PinScope is which images of a bundle a node pins.
// +kubebuilder:validation:Enum=Needed;All
type PinScope string

const (
	// PinNeeded leaves out what only nodes with another role start.
	PinNeeded PinScope = "Needed"
	// PinAll is every image of the bundle.
	PinAll PinScope = "All"
)

// PinnedImageSetSpec is which images which nodes pin.
type PinnedImageSetSpec struct {
	// NodeSelector picks the nodes by label; empty means every node.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// Bundle is the digest of the bundle the images come from.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^sha256:[0-9a-f]{64}$')",message="must be the digest of a bundle, sha256: and 64 lower-case hex digits"
	Bundle string `json:"bundle,omitempty"`
	// FromRegistry lets a node pull missing images from the registry in the image's name,
	// by digest, through its container runtime and without credentials. Only outside of
	// updates: an update never waits for a registry.
	// +optional
	FromRegistry bool `json:"fromRegistry,omitempty"`
	// ByKubelet: nodes do not fetch these images themselves, because they need
	// credentials. They pin them when their kubelet has fetched them.
	// +optional
	ByKubelet bool `json:"byKubelet,omitempty"`
	// AllOfBundle pins what nodes need of the bundle, without listing the images: workers
	// leave out the group control-plane, unless pinImages of their UpdatePool is All.
	// +optional
	AllOfBundle bool `json:"allOfBundle,omitempty"`
	// LocalCopy is whether nodes keep a copy of the images' blobs next to the runtime's
	// store. With Keep, a node restores images that a power cut or a user removed, without
	// registry and network. Discard saves the room; lost images come from peers with a
	// copy, or a medium. Empty is the value of the node's UpdatePool, or Keep. An image of
	// two sets is kept if one of them has Keep. The copy is on the file system of the
	// agent's state directory.
	// +optional
	LocalCopy LocalCopy `json:"localCopy,omitempty"`
	// Groups of images.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Groups []ImageGroup `json:"groups,omitempty"`
}

// PinnedImageSetStatus counts the nodes.
type PinnedImageSetStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Images is the number of images of the set.
	// +optional
	Images int32 `json:"images,omitempty"`
	// Nodes that have pinned the whole set, as "done/wanted".
	// +optional
	Nodes string `json:"nodes,omitempty"`
	// Conditions: Ready, Reconciling, Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PinnedImageSet is a set of images that nodes pin, safe from garbage collection.
// refit creates one for each approved bundle. It deletes the set when the bundle is released,
// or is not approved any more and a later update of the whole cluster is complete. A set
// stays while a pod runs an image that only this set has. The Ready condition has the reason.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=refit,shortName=rpis
// +kubebuilder:printcolumn:name="Images",type=integer,JSONPath=`.status.images`
// +kubebuilder:printcolumn:name="Nodes",type=string,JSONPath=`.status.nodes`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="has(self.spec.bundle) || !has(self.spec.allOfBundle) || !self.spec.allOfBundle",message="allOfBundle needs spec.bundle: name the digest of the bundle"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.bundle) || !has(self.spec.fromRegistry) || !self.spec.fromRegistry",message="fromRegistry is for images of no bundle: leave out one of bundle and fromRegistry"
type PinnedImageSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PinnedImageSetSpec `json:"spec"`
	// +optional
	Status PinnedImageSetStatus `json:"status,omitempty"`
}

// PinnedImageSetList is a list of PinnedImageSets.
//
// +kubebuilder:object:root=true
type PinnedImageSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PinnedImageSet `json:"items"`
}
