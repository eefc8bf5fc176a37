package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OSBase is the base image of an OS image.
//
// +kubebuilder:validation:XValidation:rule="self.image.contains('@') != has(self.track)",message="set image to repository@sha256:..., or to repository:tag with track: true to follow the tag"
// +kubebuilder:validation:XValidation:rule="!has(self.track) || self.track",message="leave track out, or set it to true"
type OSBase struct {
	// Image of the base: repository@sha256:..., or repository:tag that is followed.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9.-]+(:[0-9]+)?/[a-z0-9._/-]+(:[A-Za-z0-9_][A-Za-z0-9._-]*|@sha256:[0-9a-f]{64})$')",message="must be a registry, a path and a digest (registry.example/os/base@sha256:...), or a tag in its place"
	Image string `json:"image"`
	// Track follows the tag: when it moves, the pool's image is built again.
	// +optional
	Track *bool `json:"track,omitempty"`
	// PullSecret for the base; default the one of spec.secret.
	// +optional
	PullSecret *PullSecret `json:"pullSecret,omitempty"`
}

// OSContainerfile is what the build runs on top of the base and the configuration.
//
// +kubebuilder:validation:XValidation:rule="!has(self.inline) || !has(self.configMap)",message="set one of inline and configMap, not both"
// +kubebuilder:validation:XValidation:rule="has(self.inline) || has(self.configMap) || has(self.perArchitecture)",message="set inline or configMap, or a text for every architecture under perArchitecture"
type OSContainerfile struct {
	// Inline text. Its last stage comes from the stage configs, which has the base and
	// the pool's configuration: FROM configs AS final.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Inline string `json:"inline,omitempty"`
	// ConfigMap key with the text.
	// +optional
	ConfigMap *ConfigMapKey `json:"configMap,omitempty"`
	// PerArchitecture are Containerfiles for some architectures; the others use the one
	// above.
	// +optional
	// +listType=map
	// +listMapKey=architecture
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	PerArchitecture []OSArchitectureFile `json:"perArchitecture,omitempty"`
}

// OSArchitectureFile is the Containerfile of one architecture.
//
// +kubebuilder:validation:XValidation:rule="has(self.inline) != has(self.configMap)",message="set exactly one of inline and configMap"
type OSArchitectureFile struct {
	// Architecture as in the node label kubernetes.io/arch: amd64, arm64.
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^[a-z0-9]+$`
	Architecture string `json:"architecture"`
	// Inline text.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Inline string `json:"inline,omitempty"`
	// ConfigMap key with the text.
	// +optional
	ConfigMap *ConfigMapKey `json:"configMap,omitempty"`
}

// OSBuildContext are the files that COPY and ADD of a Containerfile find.
//
// +kubebuilder:validation:XValidation:rule="has(self.configMap) != has(self.artifact)",message="set exactly one of configMap and artifact"
type OSBuildContext struct {
	// ConfigMap in the namespace refit-nodes, every key of which is a file.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ConfigMap string `json:"configMap,omitempty"`
	// Artifact with the files, repository@sha256:...: an image whose files they are,
	// of any size, or what oras push made, of at most 512 KiB.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9.-]+(:[0-9]+)?/[a-z0-9._/-]+@sha256:[0-9a-f]{64}$')",message="must be repository@sha256:...: by a tag the same build would not be the same"
	Artifact string `json:"artifact,omitempty"`
}

// OSBuildProxy is how builds reach registries and package repositories.
//
// +kubebuilder:validation:XValidation:rule="has(self.http) || has(self.https)",message="set http or https, or leave proxy out"
type OSBuildProxy struct {
	// HTTP and HTTPS are addresses of proxies, without a password: every reader of this
	// object could read it.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[^@]+$')",message="must be http://host:port or https://host:port, without user and password"
	HTTP string `json:"http,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[^@]+$')",message="must be http://host:port or https://host:port, without user and password"
	HTTPS string `json:"https,omitempty"`
	// NoProxy are hosts, domains and networks that are reached without, with commas.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	NoProxy string `json:"noProxy,omitempty"`
}

// OSBuildPlace is where and with which builder Containerfile builds run.
type OSBuildPlace struct {
	// Image with buildah, by digest.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.contains('@sha256:')",message="must be named by digest: repository@sha256:..."
	Image string `json:"image"`
	// NodeSelector of the nodes that may build. A node that builds can put anything
	// into the image, so let it be no less trusted than those that boot it. Every
	// architecture is built on nodes of it.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Context are the files next to the Containerfile.
	// +optional
	Context *OSBuildContext `json:"context,omitempty"`
	// Secrets in refit-builds whose keys a RUN may mount as id=SECRET-KEY
	// (RUN --mount=type=secret,id=entitlement-key.pem). They come into no layer. Each
	// has the label refit.dev/build-secret=true: a Secret for pushing has not.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Secrets []PullSecret `json:"secrets,omitempty"`
	// MaxMemory and MaxDisk limit what a build uses of its node; the defaults are 4Gi
	// and 100Gi. A build needs several times the size of the image on disk.
	// +optional
	MaxMemory *resource.Quantity `json:"maxMemory,omitempty"`
	// +optional
	MaxDisk *resource.Quantity `json:"maxDisk,omitempty"`
	// Mirrors is the old place of the OSImage's spec.mirrors.
	// +optional
	Mirrors *ConfigMapKey `json:"mirrors,omitempty"`
}

// OSImageOutput is where built images go.
type OSImageOutput string

// Outputs.
const (
	OutputRegistry OSImageOutput = "Registry"
	OutputNodes    OSImageOutput = "Nodes"
)

// OSImageSpec is how the OS image of a pool is built. Pools name it with
// spec.osImage.
//
// +kubebuilder:validation:XValidation:rule="has(self.image) != has(self.base)",message="set base to have images built, or image to a finished one"
// +kubebuilder:validation:XValidation:rule="!has(self.base) || has(self.repository) || (has(self.output) && self.output == 'Nodes')",message="base needs repository: where built images are pushed; on a site without a registry set output: Nodes instead"
// +kubebuilder:validation:XValidation:rule="!has(self.output) || self.output != 'Nodes' || (has(self.base) && !has(self.base.track) && !has(self.base.pullSecret))",message="output: Nodes takes a base that a bundle brings, by its digest: set base.image to repository@sha256:... (refit bundle inspect FILE says it), and leave out base.track and base.pullSecret"
// +kubebuilder:validation:XValidation:rule="!has(self.output) || self.output != 'Nodes' || (!has(self.repository) && !has(self.pullRepository) && !has(self.secret) && !has(self.pullSecret) && !has(self.pushSecret) && !has(self.caBundle) && !has(self.proxy))",message="with output: Nodes no registry is asked: leave out repository, pullRepository, secret, pullSecret, pushSecret, caBundle and proxy, or leave out output"
// +kubebuilder:validation:XValidation:rule="!has(self.output) || self.output != 'Nodes' || (!has(self.containerfile) && !has(self.build))",message="output: Nodes adds a layer and runs nothing. A Containerfile must push its image somewhere: build it where there is a registry, bring it in a bundle (refit bundle create --os-image), and name it with spec.image"
// +kubebuilder:validation:XValidation:rule="!has(self.containerfile) || has(self.build)",message="containerfile needs build.image: the image with buildah that runs it"
// +kubebuilder:validation:XValidation:rule="!has(self.secret) || (!has(self.pushSecret) && !has(self.pullSecret))",message="set secret if one does for all, or pushSecret and pullSecret"
// +kubebuilder:validation:XValidation:rule="!has(self.mirrors) || !has(self.build) || !has(self.build.mirrors)",message="set mirrors, or build.mirrors in its older place, not both"
// +kubebuilder:validation:XValidation:rule="!has(self.image) || (!has(self.containerfile) && !has(self.repository) && !has(self.build) && !has(self.caBundle) && !has(self.mirrors) && !has(self.proxy))",message="image is a finished one: nothing is built, so leave out containerfile, repository, build, caBundle, mirrors and proxy"
// +kubebuilder:validation:XValidation:rule="!has(self.containerfile) || !has(self.containerfile.perArchitecture) || has(self.containerfile.inline) || has(self.containerfile.configMap) || (has(self.platforms) && self.platforms.all(p, self.containerfile.perArchitecture.exists(a, p == 'linux/' + a.architecture || p.startsWith('linux/' + a.architecture + '/'))))",message="containerfile has only texts per architecture: name the platforms, each with a text (platforms: [linux/amd64]), or add inline or configMap for the others"
type OSImageSpec struct {
	// Image is a finished one, repository@sha256:...: refit builds nothing, and its
	// author is responsible for its contents.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9.-]+(:[0-9]+)?/[a-z0-9._/-]+@sha256:[0-9a-f]{64}$')",message="must be repository@sha256:...: nodes are never pointed at a tag"
	Image string `json:"image,omitempty"`
	// Base of images that are built.
	// +optional
	Base *OSBase `json:"base,omitempty"`
	// Containerfile, if something must be run; without it, and without packages, a
	// layer is added without any builder.
	// +optional
	Containerfile *OSContainerfile `json:"containerfile,omitempty"`
	// Output is the target of built images: Registry, which is the default, or Nodes, on a
	// site without one. With Nodes refit pushes nothing. The base comes in a bundle, refit
	// adds the pool's configuration as a layer, and every node assembles the image from its
	// own copy of the base. A Containerfile and packages need a registry.
	// +optional
	// +kubebuilder:validation:Enum=Registry;Nodes
	Output OSImageOutput `json:"output,omitempty"`
	// Repository that images are pushed to, without tag: builds have names of their
	// own.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9.-]+(:[0-9]+)?/[a-z0-9._/-]+$')",message="must be a registry and a path without tag or digest: every image is known by its digest"
	Repository string `json:"repository,omitempty"`
	// PullRepository is where nodes find the same images, if not in repository.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9.-]+(:[0-9]+)?/[a-z0-9._/-]+$')",message="must be a registry and a path without tag or digest"
	PullRepository string `json:"pullRepository,omitempty"`
	// Secret of type kubernetes.io/dockerconfigjson in refit-builds, if one does for
	// pulling the base and pushing the image.
	// +optional
	Secret *PullSecret `json:"secret,omitempty"`
	// PullSecret lets kubelets fetch built images for their nodes, if it is not secret:
	// it should allow reading only.
	// +optional
	PullSecret *PullSecret `json:"pullSecret,omitempty"`
	// PushSecret lets images be pushed; it is only where builds run.
	// +optional
	PushSecret *PullSecret `json:"pushSecret,omitempty"`
	// Platforms that are built, for example linux/amd64; default all of the base.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=32
	// +kubebuilder:validation:items:Pattern=`^linux/[a-z0-9]+(/[a-z0-9]+)?$`
	Platforms []string `json:"platforms,omitempty"`
	// Build is where and with which builder a Containerfile is built or packages are
	// installed.
	// +optional
	Build *OSBuildPlace `json:"build,omitempty"`
	// CABundle is the key of a ConfigMap with certificates of authorities in PEM. Builds
	// trust them for registries and package repositories, in addition to the system's.
	// +optional
	CABundle *ConfigMapKey `json:"caBundle,omitempty"`
	// Mirrors is the key of a ConfigMap with a registries.conf: where builds, and refit
	// for them, find bases and contexts. Pushes never use it.
	// +optional
	Mirrors *ConfigMapKey `json:"mirrors,omitempty"`
	// Proxy that builds, and refit for them, reach registries by.
	// +optional
	Proxy *OSBuildProxy `json:"proxy,omitempty"`
	// Keep is how many images are retained that no node has, wants or would roll back to.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Keep *int32 `json:"keep,omitempty"`
}

// MaxMissingNodes is how many nodes OSImagePool.Missing lists.
const MaxMissingNodes = 100

// OSImagePool is what one pool has of an OSImage.
type OSImagePool struct {
	// Name of the UpdatePool.
	Name string `json:"name"`
	// Image of the pool's nodes, repository@sha256:...; it stays when a later build
	// fails.
	// +optional
	Image string `json:"image,omitempty"`
	// Build is the build that created it; Wanted is the build of the current inputs.
	// +optional
	Build string `json:"build,omitempty"`
	// +optional
	Wanted string `json:"wanted,omitempty"`
	// Content with the configuration that is in Image.
	// +optional
	Content string `json:"content,omitempty"`
	// State in a word: Use, Keep, Make, Wait, Stuck; and why in a sentence.
	// +optional
	State string `json:"state,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
	// Prepulled is how many nodes of the pool, of those with an agent, have pinned,
	// staged or booted the image: "ready/nodes".
	// +optional
	Prepulled string `json:"prepulled,omitempty"`
	// Missing are the first hundred nodes that do not.
	// +optional
	// +listType=atomic
	Missing []string `json:"missing,omitempty"`
	// PrepullReason and PrepullMessage are why not all nodes have it.
	// +optional
	PrepullReason string `json:"prepullReason,omitempty"`
	// +optional
	PrepullMessage string `json:"prepullMessage,omitempty"`
	// Facts is the Content in refit-nodes with what Image has, as refit read it from its
	// layers; FactsMessage is why refit could not read them.
	// +optional
	Facts string `json:"facts,omitempty"`
	// +optional
	FactsMessage string `json:"factsMessage,omitempty"`
	// Placed counts where what is configured went: image /usr, image /etc, agent.
	// +optional
	Placed map[string]int32 `json:"placed,omitempty"`
	// Reboot is why nodes have to boot Image, if it was compared with the one before it.
	// +optional
	Reboot string `json:"reboot,omitempty"`
	// Live is a newer image that needs no boot: nodes keep Image, and agents write what
	// differs.
	// +optional
	Live *OSImageLive `json:"live,omitempty"`
	// Written are paths of /etc that agents wrote over those of Image without a boot, and
	// that are not yet returned to the image on every node.
	// +optional
	// +listType=atomic
	Written []string `json:"written,omitempty"`
}

// OSImageLive is an image that differs from the pool's only in files that agents write.
type OSImageLive struct {
	// Build is the build that created the image, repository@sha256:...; no node uses it.
	Build string `json:"build"`
	Image string `json:"image"`
	// Content in refit-nodes with the files; empty if nothing differs.
	// +optional
	Content string `json:"content,omitempty"`
	// Files is how many they are, Message in which they differ and by which rules.
	// +optional
	Files int32 `json:"files,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
}

// OSImageStatus is the image of every pool.
type OSImageStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Base by digest, as it was last resolved.
	// +optional
	Base string `json:"base,omitempty"`
	// Rebuilt is the value of the annotation refit.dev/rebuild that was last followed.
	// +optional
	Rebuilt string `json:"rebuilt,omitempty"`
	// Pools that name this OSImage.
	// +optional
	// +listType=map
	// +listMapKey=name
	Pools []OSImagePool `json:"pools,omitempty"`
	// Conditions: Ready, Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// OSImage is how an OS image is made, or a finished one.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=refit,shortName=rosi
// +kubebuilder:printcolumn:name="Pools",type=string,JSONPath=`.status.pools[*].name`
// +kubebuilder:printcolumn:name="Prepulled",type=string,JSONPath=`.status.pools[*].prepulled`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Base",type=string,priority=1,JSONPath=`.status.base`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type OSImage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec OSImageSpec `json:"spec"`
	// +optional
	Status OSImageStatus `json:"status,omitempty"`
}

// OSImageList is a list of OSImages.
//
// +kubebuilder:object:root=true
type OSImageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []OSImage `json:"items"`
}
