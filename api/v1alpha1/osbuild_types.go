package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Phases of an OSBuild. The last three are ends.
const (
	BuildPrepared    = "Prepared"
	BuildBuilding    = "Building"
	BuildSucceeded   = "Succeeded"
	BuildFailed      = "Failed"
	BuildInterrupted = "Interrupted"
)

// OSBuildSpec are the inputs of one build; the object is named by their hash.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="an OSBuild is named by the hash of its inputs and cannot be changed: change the OSImage"
type OSBuildSpec struct {
	// OSImage that asked for it, and its UID: a namesake may come later.
	// +kubebuilder:validation:MaxLength=253
	OSImage string `json:"osImage"`
	// +kubebuilder:validation:MaxLength=64
	OSImageUID string `json:"osImageUID"`
	// Builder: Append or Containerfile, and why.
	// +kubebuilder:validation:Enum=Append;Containerfile
	Builder string `json:"builder"`
	// +kubebuilder:validation:MaxLength=1024
	BuilderWhy string `json:"builderWhy"`
	// Base is repository@sha256:...
	// +kubebuilder:validation:MaxLength=512
	Base string `json:"base"`
	// Content in refit-nodes with the configuration of the pool, and Config the hash
	// of what of it goes into the image.
	// +kubebuilder:validation:MaxLength=253
	Content string `json:"content"`
	// +kubebuilder:validation:MaxLength=64
	Config string `json:"config"`
	// Containerfile of the user.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Containerfile string `json:"containerfile,omitempty"`
	// PerArchitecture are the Containerfiles of single architectures.
	// +optional
	// +listType=map
	// +listMapKey=architecture
	// +kubebuilder:validation:MaxItems=4
	PerArchitecture []OSBuildText `json:"perArchitecture,omitempty"`
	// Context is the hash of the files next to the Containerfile, or their artifact.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Context string `json:"context,omitempty"`
	// Packages that are installed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=128
	Packages []string `json:"packages,omitempty"`
	// Repository that the image is pushed to; with output Nodes only its name on them.
	// +kubebuilder:validation:MaxLength=255
	Repository string `json:"repository"`
	// Output is empty or Nodes, as in the OSImage.
	// +optional
	// +kubebuilder:validation:Enum=Nodes
	Output OSImageOutput `json:"output,omitempty"`
	// Platforms; empty is all of the base.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=32
	Platforms []string `json:"platforms,omitempty"`
	// Why it is made: what changed since the image before.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Why string `json:"why,omitempty"`
}

// OSBuildText is the Containerfile of one architecture.
type OSBuildText struct {
	// +kubebuilder:validation:MaxLength=16
	Architecture string `json:"architecture"`
	// +kubebuilder:validation:MaxLength=65536
	Containerfile string `json:"containerfile"`
}

// OSBuildStatus is how it went. After an end nothing of it changes.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.phase) || !(oldSelf.phase in ['Succeeded', 'Failed', 'Interrupted']) || self == oldSelf",message="a build that ended does not change any more"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.startedAt) || (has(self.startedAt) && self.startedAt == oldSelf.startedAt)",message="startedAt is written once"
type OSBuildStatus struct {
	// Phase: Prepared, Building, Succeeded, Failed, Interrupted.
	// +optional
	// +kubebuilder:validation:Enum=Prepared;Building;Succeeded;Failed;Interrupted
	Phase string `json:"phase,omitempty"`
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// Digest of the image.
	// +optional
	// +kubebuilder:validation:MaxLength=71
	Digest string `json:"digest,omitempty"`
	// Manifests of its platforms, if it is an index.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=71
	Manifests []string `json:"manifests,omitempty"`
	// Platforms of the image, or those that are being built.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=32
	Platforms []string `json:"platforms,omitempty"`
	// Parts is the Content in refit-nodes with the image's additions to its base, if nodes
	// assemble it and no registry has it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Parts string `json:"parts,omitempty"`
	// Packages is the Content in refit-nodes with the packages of the image, lines of
	// name and version; with several platforms those of the first.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Packages string `json:"packages,omitempty"`
	// PackageCount is how many lines that are.
	// +optional
	PackageCount int32 `json:"packageCount,omitempty"`
	// PackagesFrom is the build whose image was compared, PackageChanges the first of
	// what differs, and PackagesSay a sentence: what changed, or why it is not known.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PackagesFrom string `json:"packagesFrom,omitempty"`
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=512
	PackageChanges []string `json:"packageChanges,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	PackagesSay string `json:"packagesSay,omitempty"`
	// Copied is how many bytes of the base had to be copied: 0 within one registry.
	// +optional
	Copied int64 `json:"copied,omitempty"`
	// Attempts that were made; faults of the surroundings are tried again.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`
	// Job in refit-builds that builds a Containerfile (with several platforms the
	// first of them), and the variant of its pod.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Job string `json:"job,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Variant string `json:"variant,omitempty"`
	// VariantWhy is why no more restricted pod builds here; Tried are variants that
	// failed.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	VariantWhy string `json:"variantWhy,omitempty"`
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=128
	Tried []string `json:"tried,omitempty"`
	// Log is the end of the builder's output, if it failed.
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Log string `json:"log,omitempty"`
	// Conditions: Prepared, Building, Succeeded, Failed, Interrupted.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// OSBuild is one build of an OS image.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=refit,shortName=rosb
// +kubebuilder:printcolumn:name="OSImage",type=string,JSONPath=`.spec.osImage`
// +kubebuilder:printcolumn:name="Builder",type=string,JSONPath=`.spec.builder`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Digest",type=string,JSONPath=`.status.digest`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Packages",type=string,priority=1,JSONPath=`.status.packagesSay`
// +kubebuilder:printcolumn:name="Why",type=string,priority=1,JSONPath=`.spec.why`
type OSBuild struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec OSBuildSpec `json:"spec"`
	// +optional
	Status OSBuildStatus `json:"status,omitempty"`
}

// OSBuildList is a list of OSBuilds.
//
// +kubebuilder:object:root=true
type OSBuildList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []OSBuild `json:"items"`
}
