package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Peer is a node from which a node fetches chunks and to which it serves them.
type Peer struct {
	// Node is the peer's name; "refit-controller" is the controller.
	Node string `json:"node"`
	// Address as host:port; empty for one that only fetches.
	// +optional
	Address string `json:"address,omitempty"`
	// PublicKey is the peer's key, base64 of PKIX DER.
	// +kubebuilder:validation:MaxLength=256
	PublicKey string `json:"publicKey"`
}

// ApprovedBundle is a bundle that the node may read, copy and load.
type ApprovedBundle struct {
	// Digest of its top manifest.
	Digest string `json:"digest"`
	// Name of the Bundle object that approves it.
	// +optional
	Name string `json:"name,omitempty"`
}

// UpdateStep is one updater's share of this node's plan.
type UpdateStep struct {
	// ID within the plan.
	ID string `json:"id"`
	// Updater that runs it on the node.
	Updater string `json:"updater"`
	// Verb the updater understands, for example apply, node, swap.
	Verb string `json:"verb"`
	// From and To are the versions before and after.
	// +optional
	From string `json:"from,omitempty"`
	// +optional
	To string `json:"to,omitempty"`
	// Params the updater understands, for example the path of a file.
	// +optional
	Params map[string]string `json:"params,omitempty"`
	// DeadlineSeconds after which the step has failed, counted while the agent
	// runs; 0 waits for ever.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DeadlineSeconds int32 `json:"deadlineSeconds,omitempty"`
}

// NodeRun permits this node to run its share of the plan now.
type NodeRun struct {
	// Name of the ClusterUpdate, or ImageTrack/NAME.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=264
	// +kubebuilder:validation:XValidation:rule="self.matches('^(ImageTrack/)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="must be the name of a ClusterUpdate, or ImageTrack/ and the name of one: no node runs for nobody"
	Name string `json:"name"`
	// UID of the ClusterUpdate, so that one of the same name is another run.
	UID string `json:"uid"`
	// Bundle is the digest the payloads come from.
	Bundle string `json:"bundle"`
	// PlanDigest is the plan these steps are part of.
	PlanDigest string `json:"planDigest"`
	// Attempt counts from 1; raised to try a failed run again.
	Attempt int32 `json:"attempt"`
	// Undo undoes the started steps of this run, last first, instead of running them. An
	// undo is an attempt of its own.
	// +optional
	Undo bool `json:"undo,omitempty"`
	// Cause says, of an undo, what had failed.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Cause string `json:"cause,omitempty"`
	// Retry is how often a person had asked for another attempt when this one was
	// permitted; Try counts the attempts since, from 1. The agent needs neither.
	// +optional
	Retry int32 `json:"retry,omitempty"`
	// +optional
	Try int32 `json:"try,omitempty"`
	// Steps the agent runs, in order.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Steps []UpdateStep `json:"steps"`
}

// NodeUpdateSpec is what this node must do. Written by the controller only.
type NodeUpdateSpec struct {
	// Bundles that are approved, the wanted one first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Bundles []ApprovedBundle `json:"bundles,omitempty"`
	// Trust is the name of the Content with the trusted keys (type trust).
	// +optional
	Trust string `json:"trust,omitempty"`
	// Pins is the name of the Content with what to hold and pin (type hold).
	// +optional
	Pins string `json:"pins,omitempty"`
	// Config is the name of the Content with the node's rendered configuration
	// (type config): files, units, kubelet configuration.
	// +optional
	Config string `json:"config,omitempty"`
	// Stage is the name of the Content with the configuration whose OS image the node
	// stages before its update. A staged image of another configuration is dropped.
	// +optional
	Stage string `json:"stage,omitempty"`
	// Peers are the nodes to exchange chunks with.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Peers []Peer `json:"peers,omitempty"`
	// HeartbeatSeconds is how long the agent may be without a word; 0 is 60. In
	// large clusters it is more, so that heartbeats do not fill the API server.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	HeartbeatSeconds int32 `json:"heartbeatSeconds,omitempty"`
	// ProgressSeconds is how long the agent keeps mere progress back at least; 0 is
	// 10. It grows with the cluster, so that a release that spreads over many nodes
	// is some fifty writes in a second. What changes a state is written at once.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	ProgressSeconds int32 `json:"progressSeconds,omitempty"`
	// Bandwidth is how many bytes per second the node may send to its peers, and receive
	// from them; 0 is no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Bandwidth int64 `json:"bandwidth,omitempty"`
	// PeerPort is the TCP port on which the agent serves its peers; 0 is 18740.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	PeerPort int32 `json:"peerPort,omitempty"`
	// Run permits the node to run its steps; the node is drained by then.
	// +optional
	// +structType=atomic
	Run *NodeRun `json:"run,omitempty"`
}

// AgentInfo says which agent speaks and how it is reached.
type AgentInfo struct {
	// Version of the agent.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Version string `json:"version"`
	// Address of its chunk server, host:port.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Address string `json:"address"`
	// PublicKey of this agent, base64 of PKIX DER.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	PublicKey string `json:"publicKey"`
	// Updaters this agent can run, and Formats of Contents that it reads. The gate
	// compares them with the plan before anything is drained.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9-]+$`
	Updaters []string `json:"updaters,omitempty"`
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9./-]+$`
	Formats []string `json:"formats,omitempty"`
	// Heartbeat is when the agent last said that it lives, written at least
	// once a minute while it reaches the API server. It is here, not in a Lease:
	// the NodeRestriction admission plugin lets a node write no Lease but its
	// kubelet's own.
	// +optional
	Heartbeat *metav1.Time `json:"heartbeat,omitempty"`
}

// Medium is one stick, disk or file with a bundle on it.
type Medium struct {
	// Device or file.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Device string `json:"device"`
	// Digest found, empty if it could not be read.
	// +optional
	// +kubebuilder:validation:MaxLength=71
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Digest string `json:"digest,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Name string `json:"name,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Version string `json:"version,omitempty"`
	// SignedBy are the trusted keys that signed it.
	// +kubebuilder:validation:MaxItems=16
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	SignedBy []string `json:"signedBy,omitempty"`
	// State: Found (not approved), Refused, Copying, Copied, Unreadable.
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	State string `json:"state"`
	// Message says why, with what was found and what was expected.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^[^\x00-\x08\x0b-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Message string `json:"message,omitempty"`
}

// States of a Medium.
const (
	MediumFound      = "Found"
	MediumRefused    = "Refused"
	MediumCopying    = "Copying"
	MediumCopied     = "Copied"
	MediumUnreadable = "Unreadable"
)

// FileSystem says how much room a place has.
type FileSystem struct {
	// Name: state (the agent's own store), images (the runtime's) or programs
	// (where the kubelet's program is).
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Name string `json:"name"`
	// ID tells file systems apart: two names with one ID share the room.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	ID string `json:"id"`
	// FreeBytes that may be used before the kubelet would evict.
	FreeBytes int64 `json:"freeBytes"`
	// TotalBytes of the file system.
	TotalBytes int64 `json:"totalBytes"`
}

// PinStatus says how much of spec.hold the node has.
type PinStatus struct {
	// Content is the name of the hold list this is about.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Content string `json:"content"`
	// Images wanted, held (present in the runtime) and pinned, as CRI reports them.
	ImagesTotal  int32 `json:"imagesTotal"`
	ImagesReady  int32 `json:"imagesReady"`
	ImagesPinned int32 `json:"imagesPinned"`
	// FetchedTotal and FetchedHeld are images that may come from registries, and
	// how many of them are held and pinned. They are not among those above: no
	// update waits for a registry.
	// +optional
	FetchedTotal int32 `json:"fetchedTotal,omitempty"`
	// +optional
	FetchedReady int32 `json:"fetchedReady,omitempty"`
	// PayloadsTotal and PayloadsHeld count node payloads in the agent's store.
	PayloadsTotal int32 `json:"payloadsTotal"`
	PayloadsReady int32 `json:"payloadsReady"`
	// BytesTotal and BytesDone of the blobs wanted from the bundle.
	BytesTotal int64 `json:"bytesTotal"`
	BytesDone  int64 `json:"bytesDone"`
	// BytesFromMedia and BytesFromPeers say where they came from.
	BytesFromMedia int64 `json:"bytesFromMedia"`
	BytesFromPeers int64 `json:"bytesFromPeers"`
	// Missing are images that kubeadm needs on this node for the bundle's release
	// and that neither the bundle brings nor the node has. The first 16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Missing []string `json:"missing,omitempty"`
	// NeededBytes is the room still needed, by file system name.
	// +optional
	NeededBytes map[string]int64 `json:"neededBytes,omitempty"`
}

// ColdStart is what a node would start from, and what the check before its
// kubelet's start found last.
type ColdStart struct {
	// Copies are the held images whose blobs are all in the agent's own store, of
	// imagesTotal.
	Copies int32 `json:"copies"`
	// CopyBytes of these blobs.
	CopyBytes int64 `json:"copyBytes"`
	// Without are held images of which this node has no whole copy. The first 16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Without []string `json:"without,omitempty"`
	// CheckedBoot is the last boot whose images were checked before the kubelet started.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	CheckedBoot string `json:"checkedBoot,omitempty"`
	// CheckedAt is when; CheckSeconds how long it took.
	// +optional
	CheckedAt *metav1.Time `json:"checkedAt,omitempty"`
	// +optional
	CheckSeconds int32 `json:"checkSeconds,omitempty"`
	// Unclean: the end before was no orderly one, so contents were compared.
	// +optional
	Unclean bool `json:"unclean,omitempty"`
	// Drill that this start was, as refit.dev/drill named it.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Drill string `json:"drill,omitempty"`
	// Compared files by content, Restored images, Missing ones that could not be.
	// +optional
	Compared int32 `json:"compared,omitempty"`
	// +optional
	Restored int32 `json:"restored,omitempty"`
	// +optional
	Missing int32 `json:"missing,omitempty"`
}

// NodeProblem is something that is wrong with a node's agent.
type NodeProblem struct {
	// Reason word.
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// Object is the file or the unit that it is about.
	// +kubebuilder:validation:MaxLength=256
	Object string `json:"object"`
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message"`
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Fix string `json:"fix,omitempty"`
	// Repaired: nothing is left to do.
	// +optional
	Repaired bool `json:"repaired,omitempty"`
}

// RunState of a node's run.
// +kubebuilder:validation:Enum=Running;Succeeded;Failed;Undone
type RunState string

// States of a run.
const (
	RunRunning   RunState = "Running"
	RunSucceeded RunState = "Succeeded"
	RunFailed    RunState = "Failed"
	// RunUndone: a run with undo has ended and the node is as it was before.
	RunUndone RunState = "Undone"
)

// NodeRunStatus is what came of spec.run.
type NodeRunStatus struct {
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	UID string `json:"uid"`
	// +kubebuilder:validation:MaxLength=71
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	PlanDigest string   `json:"planDigest"`
	Attempt    int32    `json:"attempt"`
	State      RunState `json:"state"`
	// Step that runs now or failed.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Step string `json:"step,omitempty"`
	// StepsDone counts the steps that were observed done.
	StepsDone int32 `json:"stepsDone"`
	// Reason word when it failed or waits.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Reason string `json:"reason,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^[^\x00-\x08\x0b-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Message string `json:"message,omitempty"`
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
}

// Observed is what the agent sees on its node.
type Observed struct {
	// KubeletVersion of the binary that runs, as it says itself.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	KubeletVersion string `json:"kubeletVersion,omitempty"`
	// KubeadmVersion of the binary in the path.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	KubeadmVersion string `json:"kubeadmVersion,omitempty"`
	// ControlPlane is the version of the API server's static pod, empty on workers.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	ControlPlane string `json:"controlPlane,omitempty"`
	// RuntimeName and RuntimeVersion as CRI reports them.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	RuntimeName string `json:"runtimeName,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	RuntimeVersion string `json:"runtimeVersion,omitempty"`
	// BootID of the kernel.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	BootID string `json:"bootID,omitempty"`
	// InstalledImage is the OS version of the image that the node's disk was made from, as the
	// node itself says it (aleph file, BUILD_ID); empty if nothing says it.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	InstalledImage string `json:"installedImage,omitempty"`
	// Machine are facts of the machine itself that limit what it can run: cpu
	// (x86-64-v3), shim and grub (versions), loaderBuilt (a date).
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	Machine map[string]string `json:"machine,omitempty"`
	// Architecture in Go's words, for example amd64.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Architecture string `json:"architecture,omitempty"`
	// Config is the rendered configuration (spec.config) that the agent compared the node
	// with. Until it is the current one, the differences of the new one are unknown.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Config string `json:"config,omitempty"`
	// Fields are further parts of the node by their path, as updaters name them:
	// the digest of a program or file, the state of a unit, the first day of a
	// certificate. Only what a configuration or a bundle asks for.
	// +optional
	// +kubebuilder:validation:MaxProperties=512
	Fields map[string]string `json:"fields,omitempty"`
}

// NodeUpdateStatus is what the node did. Written by its own agent only.
type NodeUpdateStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Phase for people: Idle, Waiting, Copying, Loading, Ready, Updating, Failed.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Phase string `json:"phase,omitempty"`
	// Message is one sentence about the phase.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^[^\x00-\x08\x0b-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Message string `json:"message,omitempty"`
	// +optional
	Agent *AgentInfo `json:"agent,omitempty"`
	// +optional
	Observed *Observed `json:"observed,omitempty"`
	// Health is what the gate asks of the node itself.
	// +optional
	Health *NodeHealth `json:"health,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=name
	FileSystems []FileSystem `json:"fileSystems,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=device
	// +kubebuilder:validation:MaxItems=8
	Media []Medium `json:"media,omitempty"`
	// Bundles whose header (top manifest, metadata, chunk table) this node has
	// and serves.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=71
	// +kubebuilder:validation:items:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Bundles []string `json:"bundles,omitempty"`
	// +optional
	Pins *PinStatus `json:"pins,omitempty"`
	// ColdStart is what this node would start from if its runtime's store were lost.
	// +optional
	ColdStart *ColdStart `json:"coldStart,omitempty"`
	// +optional
	Run *NodeRunStatus `json:"run,omitempty"`
	// Problems of this node's agent that do not stop it: damaged state files, a disk
	// without room, a kubelet that started unchecked. Repaired ones are listed for a day.
	// The first 8.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Problems []NodeProblem `json:"problems,omitempty"`
	// Conditions: Ready, Reconciling, Stalled, ImagesReady; Degraded while there are problems.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

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
	// Status has one writer, who always writes all of it: to say of each field who
	// owns it would make a third of every object.
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
