package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BundleSpec is the approval of a bundle.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.digest) || (has(self.digest) && self.digest == oldSelf.digest)",message="an approved digest cannot be changed: delete this Bundle and create one with the other digest"
// +kubebuilder:validation:XValidation:rule="!has(self.registry) || has(self.digest)",message="registry needs digest: nodes fetch nothing from a registry that is not approved by its digest"
type BundleSpec struct {
	// Digest of the bundle's top manifest. Setting it approves every byte under it to be
	// copied, loaded and pinned by the nodes. It does not move any node: that needs a
	// ClusterUpdate. Empty on a bundle that was only discovered.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^sha256:[0-9a-f]{64}$')",message="must be sha256: and 64 lower-case hex digits, as `refit bundle inspect` prints it"
	Digest string `json:"digest,omitempty"`
	// Keep holds the bundle on the nodes as long as it is approved. Without it, nodes
	// remove its images and node binaries when later releases took its place: see
	// keepReleases of UpdatePool.
	// +optional
	Keep bool `json:"keep,omitempty"`
	// Registry has the bundle too (refit bundle push). One node fetches it there, the
	// others take it from that node and from each other. A medium with the bundle comes
	// first.
	// +optional
	Registry *BundleRegistry `json:"registry,omitempty"`
}

// BundleRegistry is where a node fetches a bundle that comes on no medium. Every chunk is
// verified by the approved digest, so neither the registry nor its mirrors are trusted.
type BundleRegistry struct {
	// Reference that refit bundle push wrote: a repository with its registry, and a tag or
	// a digest.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9.-]+(:[0-9]+)?/[a-z0-9._/-]+(:[a-zA-Z0-9_][a-zA-Z0-9_.-]*|@sha256:[0-9a-f]{64})$')",message="must be a registry, a path, and a tag or a digest, for example registry.example/site/bundles:v1.36.3"
	Reference string `json:"reference"`
	// Mirrors are repositories with the same content under the same tag or digest. They are
	// asked first, in order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.all(m, m.matches('^[a-z0-9.-]+(:[0-9]+)?/[a-z0-9._/-]+$'))",message="a mirror must be a registry and a path without tag or digest, for example mirror.example/site/bundles"
	Mirrors []string `json:"mirrors,omitempty"`
	// CABundle has certificates of authorities in PEM. Nodes trust them for these
	// registries, in addition to the system's.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	CABundle string `json:"caBundle,omitempty"`
	// NodeSelector restricts which nodes may fetch: those that reach the registry, and that
	// have its login. Without it, any node may.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
}

// BundleUse is what an approved bundle is on the nodes for.
// +kubebuilder:validation:Enum=Runs;Update;Rollback;Held;Waits;Released
type BundleUse string

const (
	// BundleRuns: the cluster, or one of its nodes, runs it.
	BundleRuns BundleUse = "Runs"
	// BundleUpdate: a ClusterUpdate to it is not complete.
	BundleUpdate BundleUse = "Update"
	// BundleRollback: nodes keep it for a rollback.
	BundleRollback BundleUse = "Rollback"
	// BundleHeld: spec.keep or another PinnedImageSet holds it.
	BundleHeld BundleUse = "Held"
	// BundleWaits: it is approved, and no later release took its place.
	BundleWaits BundleUse = "Waits"
	// BundleReleased: it is approved, and nodes no longer hold it. A ClusterUpdate to it
	// brings it back.
	BundleReleased BundleUse = "Released"
)

// BundleRetention is why nodes hold an approved bundle, and what its removal frees.
type BundleRetention struct {
	// Use is what the bundle is on the nodes for.
	Use BundleUse `json:"use"`
	// Message is the reason.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// OwnImages is the number of images that no other held bundle has.
	// +optional
	OwnImages int32 `json:"ownImages,omitempty"`
	// FreesBytes is at most how many bytes the removal frees on each node: image layers,
	// unpacked and as copies, and node binaries that no other held bundle has. Images
	// that containers still use stay.
	// +optional
	FreesBytes int64 `json:"freesBytes,omitempty"`
	// ReleasedAt is when nodes were last asked to remove it.
	// +optional
	ReleasedAt *metav1.Time `json:"releasedAt,omitempty"`
}

// BundleConstraint is a range of versions that nodes must have for a bundle.
type BundleConstraint struct {
	// Name: kubernetes (what a node runs before the update), containerd or cri-o. If a
	// bundle names runtimes, nodes need one of them.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Min and Max are versions, both included; empty for no bound.
	// +optional
	// +kubebuilder:validation:MaxLength=80
	Min string `json:"min,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=80
	Max string `json:"max,omitempty"`
}

// BundleLocation is one place where a bundle was seen.
type BundleLocation struct {
	// Node that has the medium.
	Node string `json:"node"`
	// Device or file on that node.
	Device string `json:"device"`
}

// BundleStatus describes a bundle and how far nodes have loaded it.
type BundleStatus struct {
	// ObservedGeneration is the generation of the spec this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Digest of the top manifest that was found.
	// +optional
	Digest string `json:"digest,omitempty"`
	// Name in the bundle's metadata.
	// +optional
	Name string `json:"name,omitempty"`
	// Version in the bundle's metadata.
	// +optional
	Version string `json:"version,omitempty"`
	// KubernetesVersion of the bundle's node payloads, empty if it has none.
	// +optional
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// Platforms the bundle has images for.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Platforms []string `json:"platforms,omitempty"`
	// Constraints on nodes in the bundle's metadata. refit approve compares them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Constraints []BundleConstraint `json:"constraints,omitempty"`
	// Images is the number of image names in the bundle.
	// +optional
	Images int32 `json:"images,omitempty"`
	// SizeBytes is the size of the bundle file in bytes.
	// +optional
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// SignedBy lists the identifiers of trusted keys with a valid signature.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	SignedBy []string `json:"signedBy,omitempty"`
	// Locations lists the media on which the bundle is plugged in now.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Locations []BundleLocation `json:"locations,omitempty"`
	// FetchedBy is the node that fetches the bundle from its registry.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	FetchedBy string `json:"fetchedBy,omitempty"`
	// Loaded is how many nodes have pinned all that they need of the bundle, as
	// "loaded/wanted".
	// +optional
	Loaded string `json:"loaded,omitempty"`
	// Retention is why nodes hold an approved bundle.
	// +optional
	Retention *BundleRetention `json:"retention,omitempty"`
	// Conditions: Approved, Loaded, Ready, Reconciling, Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Bundle is a bundle that is expected or was found on a medium.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=refit,shortName=rbu
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Images",type=integer,JSONPath=`.status.images`
// +kubebuilder:printcolumn:name="Approved",type=string,JSONPath=`.status.conditions[?(@.type=="Approved")].status`
// +kubebuilder:printcolumn:name="Loaded",type=string,JSONPath=`.status.loaded`
// +kubebuilder:printcolumn:name="Use",type=string,JSONPath=`.status.retention.use`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Digest",type=string,priority=1,JSONPath=`.status.digest`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type Bundle struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec BundleSpec `json:"spec,omitempty"`
	// +optional
	Status BundleStatus `json:"status,omitempty"`
}

// BundleList is a list of Bundles.
//
// +kubebuilder:object:root=true
type BundleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Bundle `json:"items"`
}
