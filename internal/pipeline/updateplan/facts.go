package updateplan

import (
	"slices"

	"github.com/refit-dev/refit/internal/model"
)

// Node is what is known of one node.
type Node struct {
	Name         string
	ControlPlane bool
	// Pools whose selector matches the node.
	Pools []string
	// Kubelet is the version that runs, for example v1.35.4.
	Kubelet string
	// ControlPlaneVersion is the version of the API server's static pod; empty
	// on workers and when it is not known.
	ControlPlaneVersion string
	// Platform, for example linux/amd64.
	Platform string
	// Current are the further fields of the node as its agent observed them, and
	// Desired what is wanted of it beyond what the bundle brings: a rendered
	// configuration for example. See Fields; a path of Desired with an empty value
	// is to go.
	Current, Desired Fields
	// Config is the rendered configuration whose fields are among the desired, and
	// ConfigName the Content that holds it; nil if no NodeConfig matches the node.
	Config     *model.NodeConfig
	ConfigName string
	// Unobserved: the agent has not compared the node with that configuration yet, so its
	// changes are unknown.
	Unobserved bool
	// Offers are what external updaters answered about what the built-in ones leave,
	// in the order in which they are asked.
	Offers []Offer
}

// Offer is what an external updater answered about one node. It is asked before the
// plan is made: a plan is a function of what is known.
type Offer struct {
	Updater string
	// Asked are the paths that it was asked about, Moves those of them that it brings
	// to what is desired. Harmless: the pods may stay meanwhile.
	Asked, Moves []string
	Harmless     bool
	// Refused or Silent say why it moves nothing; Pending: it has not answered yet.
	Refused, Silent string
	Pending         bool
}

// Pool is what the plan needs of an UpdatePool.
type Pool struct {
	Name string
	// Order: smaller numbers move first.
	Order int32
	// StepDeadlineSeconds is the deadline of every step on the pool's nodes; 0
	// leaves it to the updaters.
	StepDeadlineSeconds int32
	// UndoDeadlineSeconds is how long a node may be unwell after a step that can cut it off,
	// before it undoes its steps; 0 is for ever.
	UndoDeadlineSeconds int32
	// Kubeadm leaves the replacement of the control plane to `kubeadm upgrade`.
	Kubeadm bool
	// KubeadmPatches is the directory of kubeadm's patches on the nodes, "" for none.
	KubeadmPatches string
}

// Payload is a file that the bundle brings for a platform.
type Payload struct {
	Name string
	// Platform is empty for any.
	Platform string
	// Digest of the file, and its size in bytes.
	Digest string
	Size   int64
}

// Input has all facts of the planner.
type Input struct {
	Nodes []Node
	// Pools of the cluster; none at all means one pool for every node.
	Pools    []Pool
	Target   model.Target
	Payloads []Payload
	// OtherPayloads are the files of all bundles that the nodes hold, other than the
	// target: a configuration may name them.
	OtherPayloads []Payload
	// KubeadmVersion is the version kubeadm believes the cluster has, empty if
	// the cluster was not made by kubeadm.
	KubeadmVersion string
	// LastDone is the target of the last update that was completed, nil if none.
	LastDone *model.Target
	// AllowDowngrade permits an older bundle.
	AllowDowngrade bool
	// ExternalEtcd is true if etcd does not run in static pods of the
	// control-plane nodes.
	ExternalEtcd bool
	// Rootless is kubeadm's feature gate RootlessControlPlane: its dry run omits the users
	// from the manifests.
	Rootless bool
	// Only names the nodes that may move; empty means all. The others are looked
	// at, for the skew, and left as they are.
	Only []string
	// Updaters that are asked after the built-in ones, in this order.
	Updaters []Updater
	// Then are the further hops. WorkersAtEnd moves the workers in the last hop only.
	Then         []Hop
	WorkersAtEnd bool

	// controlPlaneOnly leaves the workers as they are: they move in a later hop.
	controlPlaneOnly bool
	// via are versions that hops may lead through, where only the fit is asked for.
	via []string
}

// Outcome is the plan and every reason why it must not run.
type Outcome struct {
	Plan     model.Plan
	Blockers []model.Blocker
	// Warnings do not stop the plan: nodes that are left alone.
	Warnings []model.Blocker
}

// NothingToDo reports whether no node has to change, in any hop.
func (o Outcome) NothingToDo() bool {
	return !slices.ContainsFunc(o.Plan.Hops(), func(h model.Plan) bool { return len(h.Nodes) > 0 })
}

// DefaultPool is the pool of every node of a cluster without an UpdatePool.
const DefaultPool = "default"

// Reason words; the catalogue of the API has the same.
const (
	reasonNodeInTwoPools   = "NodeInTwoPools"
	reasonNodeInNoPool     = "NodeInNoPool"
	reasonVersionSkew      = "VersionSkew"
	reasonConstraintNotMet = "ConstraintNotMet"
	reasonOlderThanRunning = "OlderThanRunning"
	reasonPayloadMissing   = "PayloadMissing"
	reasonNoUpdater        = "NoUpdater"
	reasonNodeNotFound     = "NodeNotFound"
	reasonConfigWaiting    = "ConfigWaiting"
	reasonOSUnsupported    = "OSUnsupported"
	reasonManifestChanged  = "ManifestChanged"
	reasonDryRunFailed     = "DryRunFailed"
)
