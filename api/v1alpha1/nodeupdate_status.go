package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AgentInfo identifies the agent and its address.
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
	// Heartbeat is when the agent last reported, at least once a minute while it reaches
	// the API server. It is here, not in a Lease: the NodeRestriction admission plugin
	// lets a node write no Lease but its kubelet's own.
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
	// Message is the reason, with what was found and what was expected.
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

// FailedFetch is a bundle that a node was to fetch from a registry, and could not for a while.
type FailedFetch struct {
	// Bundle is its digest.
	// +kubebuilder:validation:MaxLength=71
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Bundle string `json:"bundle"`
	// Reason word.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z]*$`
	Reason string `json:"reason"`
	// Message is what the registry answered.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^[^\x00-\x08\x0b-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Message string `json:"message,omitempty"`
}

// FileSystem is the free space of a file system.
type FileSystem struct {
	// Name: state (the agent's own store), images (the runtime's), programs
	// (where the kubelet's program is), boot or sysroot (of a host that boots OS images).
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

// PinStatus is how much of spec.pins the node has.
type PinStatus struct {
	// Content is the name of the pin list that this status is about.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Content string `json:"content"`
	// Images wanted, ready (present in the runtime) and pinned, as CRI reports them.
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
	// BytesFromMedia, BytesFromPeers and BytesFromRegistry count the bytes by source.
	BytesFromMedia int64 `json:"bytesFromMedia"`
	BytesFromPeers int64 `json:"bytesFromPeers"`
	// +optional
	BytesFromRegistry int64 `json:"bytesFromRegistry,omitempty"`
	// Missing are images that kubeadm needs on this node for the bundle's release and
	// that are neither in the bundle nor on the node. The first 16.
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
	// Copies are the images, of imagesTotal, whose blobs are all in the agent's own
	// store.
	Copies int32 `json:"copies"`
	// CopyBytes of these blobs.
	CopyBytes int64 `json:"copyBytes"`
	// Without are images without a complete copy on this node. The first 16.
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

// RestoreDrill is a rehearsed restore of the datastore, from the newest snapshot that an update
// left on the node. The agent restores it into a scratch directory, reads it whole, and removes
// it. The running datastore is not touched.
type RestoreDrill struct {
	// ID of the rehearsal, as refit.dev/restore-drill named it.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	ID string `json:"id"`
	// FinishedAt is when the rehearsal ended, Milliseconds how long it took.
	FinishedAt   metav1.Time `json:"finishedAt"`
	Milliseconds int64       `json:"milliseconds"`
	// Datastore: Etcd or SQLite. Snapshot is its path on the node, SnapshotAt when it was made.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	Datastore string `json:"datastore,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Snapshot string `json:"snapshot,omitempty"`
	// +optional
	SnapshotAt *metav1.Time `json:"snapshotAt,omitempty"`
	// Bytes that were restored, and Objects of Kubernetes that were read in them.
	// +optional
	Bytes int64 `json:"bytes,omitempty"`
	// +optional
	Objects int64 `json:"objects,omitempty"`
	// Problem is why nothing was restored, or why what was restored cannot be read. Without one
	// the rehearsal passed.
	// +optional
	Problem *NodeProblem `json:"problem,omitempty"`
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
	// FailedFetches are bundles that this node could not fetch from their registries. The
	// controller has another node fetch them. A node that was released from the task drops
	// an entry after ten minutes.
	// +optional
	// +listType=map
	// +listMapKey=bundle
	// +kubebuilder:validation:MaxItems=8
	FailedFetches []FailedFetch `json:"failedFetches,omitempty"`
	// +optional
	Pins *PinStatus `json:"pins,omitempty"`
	// ColdStart is what this node would start from if its runtime's store were lost.
	// +optional
	ColdStart *ColdStart `json:"coldStart,omitempty"`
	// RestoreDrill is the last rehearsed restore of the datastore.
	// +optional
	RestoreDrill *RestoreDrill `json:"restoreDrill,omitempty"`
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
