package bundle

// FormatVersion is the version of the format written here.
const FormatVersion = 1

// DefaultChunkSize is the size of a chunk in bytes: the unit that nodes
// exchange and verify.
const DefaultChunkSize = 512 << 10

// Default groups of images and payloads.
const (
	GroupControlPlane = "control-plane" // kube-apiserver, controller-manager, scheduler, etcd
	GroupNode         = "node"          // kube-proxy, pause, coredns
	GroupRefit        = "refit"         // refit's own image
	GroupWorkload     = "workload"      // everything else
)

// Names of payloads that refit's updaters know.
const (
	PayloadKubelet    = "kubelet"
	PayloadKubeadm    = "kubeadm"
	PayloadKubectl    = "kubectl"
	PayloadRefitAgent = "refit-agent"
	PayloadRefit      = "refit"
	PayloadRefitChart = "refit-chart" // refit's Helm chart, packed; people take it out, nodes do not store it
	PayloadCNIPlugins = "cni-plugins" // a tar of network plugins
	PayloadResources  = "resources"   // manifests that the controller applies
	PayloadBootImages = "boot-images" // the stream of boot images that the release wants
)

// PrefixBootImage begins the names of payloads that are boot images as files. No
// node holds them: they are taken from the file or medium, to be uploaded.
const PrefixBootImage = "boot-image."

// PrefixFile begins the names of payloads that are files for a NodeConfig:
// every node holds them.
const PrefixFile = "file."

// Programs are the payloads that replace a program of a node of that name, where
// it has one.
func Programs() []string {
	return []string{"conmon", "conmonrs", "containerd", "containerd-shim-runc-v2", "crictl", "crio", "crun", "ctr", "nerdctl", "pinns", "runc", "youki"}
}

// Metadata is what a bundle says of itself. It hangs under the top manifest,
// so the bundle's digest covers it.
type Metadata struct {
	FormatVersion int `json:"formatVersion"`
	// MinRefit is the oldest refit that may load the bundle, a semantic version.
	MinRefit string `json:"minRefit"`
	Name     string `json:"name"`
	// Version of the bundle, a semantic version; orders bundles of one name.
	Version string `json:"version"`
	// KubernetesVersion of the payloads kubelet and kubeadm, for example v1.36.3, or of the
	// payload k3s, rke2 or k0s, with its build;
	// empty if the bundle brings none.
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// Platforms, sorted, for example linux/amd64.
	Platforms []string `json:"platforms"`
	// Constraints on nodes, sorted by name; left out if there is none.
	Constraints []Constraint `json:"constraints,omitempty"`
	// Images sorted by name.
	Images []Image `json:"images"`
	// Payloads sorted by name, then platform.
	Payloads []Payload `json:"payloads,omitempty"`
	// ChunkSize in bytes.
	ChunkSize int64 `json:"chunkSize"`
	// Blobs in the order of the file, all that follow the chunk table.
	Blobs []Blob `json:"blobs"`
}

// Image is one image name of a bundle.
type Image struct {
	// Name with tag, normalised (registry.k8s.io/pause:3.10.2); with its digest
	// instead if the source gave no tag (registry.example/app@sha256:...).
	Name string `json:"name"`
	// Digest and MediaType of its manifest or index.
	Digest    string `json:"digest"`
	MediaType string `json:"mediaType"`
	// Group the image belongs to.
	Group string `json:"group"`
	// Size in bytes of its blobs as they travel, and UnpackedSize of its layers
	// as files (the sum of the uncompressed layers), measured when built.
	Size         int64 `json:"size"`
	UnpackedSize int64 `json:"unpackedSize"`
	// Blobs are the digests of everything under it, itself included, as indexes
	// into Metadata.Blobs, ascending.
	Blobs []int `json:"blobs"`
}

// Payload is one file for the nodes' updaters.
type Payload struct {
	// Name, for example kubelet.
	Name string `json:"name"`
	// Version, for example v1.36.3; empty if unknown.
	Version string `json:"version,omitempty"`
	// Platform, for example linux/amd64; empty for any.
	Platform string `json:"platform,omitempty"`
	Digest   string `json:"digest"`
	Size     int64  `json:"size"`
	// Mode of the file, 0755 or 0644 (decimal in JSON).
	Mode uint32 `json:"mode"`
	// Blob is the index into Metadata.Blobs.
	Blob int `json:"blob"`
}

// Blob is one content-addressed part of the file.
type Blob struct {
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
	// UnpackedSize of a layer: its bytes when decompressed, measured when built.
	// 0 for what is no layer. Images share layers, so the room that several
	// need is the sum over their distinct blobs.
	UnpackedSize int64 `json:"unpackedSize"`
}
