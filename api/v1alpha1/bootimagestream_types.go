package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// StreamConfigMap is where a stream stands in a ConfigMap.
type StreamConfigMap struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Key of the data; empty reads OpenShift's keys: stream, streams, releaseVersion.
	// +optional
	Key string `json:"key,omitempty"`
}

// StreamURL is where a stream is fetched from.
type StreamURL struct {
	// URL, https.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('https://')",message="must begin with https://: new machines start from what it names"
	URL string `json:"url"`
	// CABundle in PEM; empty trusts the authorities of the controller's system.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	CABundle string `json:"caBundle,omitempty"`
	// SHA256 that the data must have, in hex; empty accepts any data.
	// +optional
	// +kubebuilder:validation:Pattern=`^([0-9a-f]{64})?$`
	SHA256 string `json:"sha256,omitempty"`
	// EveryMinutes it is fetched again.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=5
	EveryMinutes int32 `json:"everyMinutes,omitempty"`
}

// StreamBundle is a stream in a bundle (refit bundle create boot-images:FILE).
type StreamBundle struct {
	// Digest of the bundle, which is approved and on the nodes. The release and the
	// Kubernetes version default to the bundle's.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^sha256:[0-9a-f]{64}$')",message="must be sha256: and 64 lower-case hex digits, as `refit bundle inspect` prints it"
	Digest string `json:"digest"`
}

// StreamArtifact is a stream in an OCI registry.
type StreamArtifact struct {
	// Reference of an artifact whose one layer is the data, for example
	// registry.example/boot-images:4.19. With a digest it never changes.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Reference string `json:"reference"`
	// PullSecret in refit-builds, of type kubernetes.io/dockerconfigjson.
	// +optional
	PullSecret *PullSecret `json:"pullSecret,omitempty"`
	// EveryMinutes it is asked for again.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=5
	EveryMinutes int32 `json:"everyMinutes,omitempty"`
}

// UploadedImage records that a person has uploaded a file of the stream to its
// platform.
type UploadedImage struct {
	// SHA256 of the file as the stream has it, or of what is in it.
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SHA256 string `json:"sha256"`
	// Region that it is in, in the words of the policy; empty is every one.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Region string `json:"region,omitempty"`
	// Attributes that name it there, for example template, name or id. Attributes of
	// the policy need not be repeated.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Attributes map[string]string `json:"attributes,omitempty"`
}

// BootImageStreamSpec is where wanted boot images are listed, and for which release.
//
// +kubebuilder:validation:XValidation:rule="[has(self.inline), has(self.configMap), has(self.url), has(self.bundle), has(self.artifact)].filter(x, x).size() == 1",message="set exactly one of inline, configMap, url, bundle and artifact"
type BootImageStreamSpec struct {
	// Inline is the data itself: CoreOS stream metadata, or refit's own list
	// (apiVersion refit.dev/boot-images/v1).
	// +optional
	// +kubebuilder:validation:MaxLength=900000
	Inline *string `json:"inline,omitempty"`
	// ConfigMap with the data.
	// +optional
	ConfigMap *StreamConfigMap `json:"configMap,omitempty"`
	// URL that the data is fetched from.
	// +optional
	URL *StreamURL `json:"url,omitempty"`
	// Bundle that contains the data.
	// +optional
	Bundle *StreamBundle `json:"bundle,omitempty"`
	// Artifact in a registry with the data.
	// +optional
	Artifact *StreamArtifact `json:"artifact,omitempty"`
	// Release that the images are for; empty if the data has it.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Release string `json:"release,omitempty"`
	// Kubernetes version of that release, for example 1.36.3. The images are used when a
	// control-plane node runs it. Empty: the release, if it is a Kubernetes version, or
	// the version in the data.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Kubernetes string `json:"kubernetes,omitempty"`
	// Rules of the release: limits for the images of machines that will run it. Rules of
	// a BootImagePolicy apply as well.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Rules []SkewRule `json:"rules,omitempty"`
	// Uploaded are files of the stream that the administrator uploaded to the platform
	// (refit bootimage uploaded). refit writes an image that is only a file after its
	// upload.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Uploaded []UploadedImage `json:"uploaded,omitempty"`
}

// BootImageStreamStatus is the result of reading the stream.
type BootImageStreamStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Release and Kubernetes version that the images are for.
	// +optional
	Release string `json:"release,omitempty"`
	// +optional
	Kubernetes string `json:"kubernetes,omitempty"`
	// OS version in the images, if all of them are of one major.
	// +optional
	OS string `json:"os,omitempty"`
	// Images is how many there are, for these Architectures and Platforms.
	// +optional
	Images int32 `json:"images,omitempty"`
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Architectures []string `json:"architectures,omitempty"`
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Platforms []string `json:"platforms,omitempty"`
	// OSStreams with images, in addition to the default one.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	OSStreams []string `json:"osStreams,omitempty"`
	// Content is the Content with data that was fetched, FetchedAt when it was
	// asked for last.
	// +optional
	Content string `json:"content,omitempty"`
	// +optional
	FetchedAt *metav1.Time `json:"fetchedAt,omitempty"`
	// Source that Content is from: a bundle's or an artifact's digest.
	// +optional
	Source string `json:"source,omitempty"`
	// Failures are checks that could not read the stream, absent if the last one could. While
	// they do not persist, refit uses what the stream had before.
	// +optional
	Failures *CheckFailures `json:"failures,omitempty"`
	// FetchFailures are fetches that failed, absent if the last one did not. refit uses the
	// data that it fetched before.
	// +optional
	FetchFailures *CheckFailures `json:"fetchFailures,omitempty"`
	// Conditions: Ready, Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BootImageStream lists the wanted boot images of one release by architecture,
// platform, region and OS stream. New machines start from them: only administrators
// may write one.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=refit,shortName=rbis
// +kubebuilder:printcolumn:name="Release",type=string,JSONPath=`.status.release`
// +kubebuilder:printcolumn:name="Kubernetes",type=string,JSONPath=`.status.kubernetes`
// +kubebuilder:printcolumn:name="Images",type=integer,JSONPath=`.status.images`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type BootImageStream struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec BootImageStreamSpec `json:"spec"`
	// +optional
	Status BootImageStreamStatus `json:"status,omitempty"`
}

// BootImageStreamList is a list of BootImageStreams.
//
// +kubebuilder:object:root=true
type BootImageStreamList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BootImageStream `json:"items"`
}
