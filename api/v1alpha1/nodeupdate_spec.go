package v1alpha1

// ControllerPeer is the name of the controller among the peers of a node. It fetches headers and
// logs, and has no address.
const ControllerPeer = "refit-controller"

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
	// Fetch has this node fetch the bundle from the registry that the Bundle object names.
	// It is the generation of that object, so that the node reads it again after a change;
	// 0 is another node's task.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Fetch int64 `json:"fetch,omitempty"`
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
	// undo is a separate attempt.
	// +optional
	Undo bool `json:"undo,omitempty"`
	// Cause is, for an undo, what had failed.
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
	// Pins is the name of the Content with what to pin (type hold).
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
	// from them and from registries of bundles; 0 is no limit.
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
	// Reboot asks for a reboot of the node by others; refit does not reboot it. The agent writes
	// /run/reboot-required.
	// +optional
	// +structType=atomic
	Reboot *RebootRequest `json:"reboot,omitempty"`
}

// RebootRequest is why a node needs a reboot. It ends with the boot of which it is.
type RebootRequest struct {
	// BootID of the node when the reason arose, as status.nodeInfo.bootID of the Node has it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	BootID string `json:"bootID"`
	// Cause is a sentence for people.
	// +kubebuilder:validation:MaxLength=1024
	Cause string `json:"cause"`
}
