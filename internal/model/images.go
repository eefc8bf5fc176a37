package model

import (
	"slices"
	"strings"
)

// PullPolicy is when a kubelet asks a registry for an image.
type PullPolicy string

// Pull policies, in the API's words.
const (
	PullAlways       PullPolicy = "Always"
	PullIfNotPresent PullPolicy = "IfNotPresent"
	PullNever        PullPolicy = "Never"
)

// DefaultPullPolicy is what the API server, or the kubelet for a static pod,
// writes into a container without a policy when the object is created. It stays
// when the image is edited later.
func DefaultPullPolicy(tag, digest string) PullPolicy {
	if tag == "latest" || tag == "" && digest == "" {
		return PullAlways
	}
	return PullIfNotPresent
}

// Kinds of places in a pod that name an image.
const (
	UseContainer = "container"
	UseInit      = "init"
	UseSidecar   = "sidecar" // an init container that is restarted always
	UseEphemeral = "ephemeral"
	UseVolume    = "volume"
)

// ImageUse is one place in a pod that names an image.
type ImageUse struct {
	// Container is its name; of an image volume the volume's.
	Container string
	// Kind: container, init, sidecar, ephemeral, volume.
	Kind string
	// Image is the reference as it stands in the live object or manifest.
	Image string
	// Policy is empty where a manifest leaves it out.
	Policy PullPolicy
	// Runs is the imageID that the kubelet reports, empty if nothing runs; RunsAs the name
	// that it reports in addition: a tag that the image had on the node then.
	Runs, RunsAs string
	// Since is when the container started, in seconds since 1970; 0 if unknown.
	Since int64
	// Waits is why the kubelet has not started it, in the kubelet's word.
	Waits string
}

// Kinds of owners of pods that matter here.
const (
	OwnerNone        = ""
	OwnerDeployment  = "Deployment"
	OwnerDaemonSet   = "DaemonSet"
	OwnerStatefulSet = "StatefulSet"
	OwnerNode        = "Node" // of a static pod
)

// ImagePod is a pod, or the template of pods that do not exist yet.
type ImagePod struct {
	Namespace, Name string
	// Node it runs on, empty for a template.
	Node string
	// OwnerKind and OwnerName: who makes its replicas (a Deployment, not its
	// ReplicaSet).
	OwnerKind, OwnerName string
	// Static: the kubelet runs it from a file.
	Static bool
	// NotRestarted: its restartPolicy is Never.
	NotRestarted bool
	HostNetwork  bool
	// Critical: the node, or the cluster, does not work without it.
	Critical bool
	// Secrets are its imagePullSecrets.
	Secrets      []string
	NodeSelector map[string]string
	// Tolerates are taints that it bears.
	Tolerates []Toleration
	Uses      []ImageUse
}

// Taint keeps pods off a node that do not tolerate it.
type Taint struct{ Key, Value, Effect string }

// Toleration of taints: an empty Key is any key, an empty Effect any effect, Any
// any value.
type Toleration struct {
	Key, Value, Effect string
	Any                bool
}

// Bears reports whether the pod tolerates all taints.
func (p *ImagePod) Bears(taints []Taint) bool {
	for _, t := range taints {
		if !slices.ContainsFunc(p.Tolerates, func(o Toleration) bool {
			return (o.Key == "" || o.Key == t.Key) && (o.Effect == "" || o.Effect == t.Effect) && (o.Any || o.Value == t.Value)
		}) {
			return false
		}
	}
	return true
}

// Key names the pod: namespace/name.
func (p *ImagePod) Key() string { return p.Namespace + "/" + p.Name }

// Owner names the controller of the pod's replicas, or the pod itself without one.
func (p *ImagePod) Owner() string {
	switch {
	case p.Static:
		return "static pod " + p.Namespace + "/" + strings.TrimSuffix(p.Name, "-"+p.Node)
	case p.OwnerKind == OwnerNone:
		return "Pod " + p.Key()
	}
	return p.OwnerKind + " " + p.Namespace + "/" + p.OwnerName
}

// PullRecord is what the kubelet noted when it pulled an image (1.35 and later
// compare it with the credentials of the pod that wants the image).
type PullRecord string

// Pull records.
const (
	RecordUnknown PullRecord = ""
	RecordNone    PullRecord = "none"   // loaded, not pulled
	RecordAnyone  PullRecord = "anyone" // pulled without credentials of a pod
	RecordOthers  PullRecord = "others" // pulled with other credentials, or under another repository
)

// CachedImage is one image in a node's runtime, with all names that it has.
type CachedImage struct {
	// Names as repository:tag and repository@digest, normalised.
	Names []string
	// ID is the digest of its configuration, empty if unknown.
	ID     string
	Pinned bool
	Record PullRecord
	// Secrets are those that pods on the node have, which run its repository.
	Secrets []string
	// Used: a container of the node has it.
	Used bool
}

// ImageNode is what is known of the images of a node.
type ImageNode struct {
	Name string
	// Runtime is its name (containerd, cri-o), Arch in Go's words.
	Runtime, Arch string
	// Kubelet is its version.
	Kubelet string
	// OS is the operating system's image as the kubelet names it, Kernel its version.
	OS, Kernel string
	// Sandbox is the image of pod sandboxes, empty if unknown.
	Sandbox string
	// Role is control-plane or worker.
	Role string
	// Takes new pods: Ready and not cordoned; those that bear its Taints.
	Takes  bool
	Taints []Taint
	Labels map[string]string
	Images []CachedImage
	// Complete: Images is all that the runtime has.
	Complete bool
	// Pressure: the kubelet collects images because the disk is short.
	Pressure bool
	// Verification is the kubelet's imagePullCredentialsVerificationPolicy, empty
	// if unknown or not set; Allowed its allow list.
	Verification string
	Allowed      []string
	// PinnedKnown: whether images are pinned is known of this node.
	PinnedKnown bool
}

// Published is what a registry answers for a tag.
type Published struct {
	// Digest is the newest known; empty if the registry was not asked.
	Digest string
	// Mirror is the digest that the site's mirror answers; empty without a mirror or an
	// answer.
	Mirror string
	// Same are digests of the same image: platform manifests and configurations.
	Same []string
	// Gone: the registry says that it does not have the tag.
	Gone bool
	// By says who answered: registry, track NAME, file.
	By string
	// Long is the tag that names this one build, Version the application's
	// version that the image itself says. Empty if unknown.
	Long, Version string
	// Class of the change from what ran before: rebuild, fix, version; Security
	// if it closes holes.
	Class    string
	Security bool
}

// Pulled is the digest that a pull on the site gives.
func (p Published) Pulled() string {
	if p.Mirror != "" {
		return p.Mirror
	}
	return p.Digest
}

// Outcomes of a restart.
const (
	OutcomeSame    = "same"    // the image that runs now
	OutcomeChanges = "changes" // another image
	OutcomeFails   = "fails"
	OutcomeUnknown = "unknown" // the known facts do not decide it
	OutcomeStarts  = "starts"  // nothing runs now to compare with
	OutcomeNone    = "none"    // this event does not start it
)

// RestartAnswer is what one event would do with one container.
type RestartAnswer struct {
	// Event: crash, recreate, reboot, reschedule, new-node, scale-up. Registry: up
	// or down.
	Event    string `json:"event"`
	Registry string `json:"registry"`
	// Outcome: same, changes, fails, unknown, starts, none.
	Outcome string `json:"outcome"`
	// From and To are digests; To is empty if nothing starts or it is unknown.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Reason is a word, Why a sentence.
	Reason string `json:"reason"`
	Why    string `json:"why"`
	// Nodes it is so on, if it is not so on all that could take the pod.
	Nodes []string `json:"nodes,omitempty"`
}
