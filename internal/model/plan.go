package model

// PlanVersion is the version of the plan's JSON.
const PlanVersion = "refit.dev/plan/v1"

// Disruption says what a step does to the pods of its node, mildest first.
type Disruption string

// Disruptions of a step, mildest first.
const (
	DisruptionNone    Disruption = "none"
	DisruptionReload  Disruption = "reload"  // a component reads its configuration again
	DisruptionRestart Disruption = "restart" // of a node component, pods stay
	DisruptionDrain   Disruption = "drain"   // pods are evicted
	DisruptionReboot  Disruption = "reboot"
)

// Who runs a step.
const (
	ByController = "controller"
	ByAgent      = "agent"
)

// ParamConfig is the step's parameter that names the Content with the node's
// rendered configuration.
const ParamConfig = "config"

// ParamPatches is the parameter that names the directory of kubeadm's patches on the node.
const ParamPatches = "patches"

// ParamUndoDeadline is the parameter of a step that can cut the node off. Its value is for how
// many seconds the node may be unwell before its agent undoes the run by itself.
const ParamUndoDeadline = "undo-deadline"

// UndoDeadlineVersion is the format of that parameter: an agent that does not know it would run
// the step without a deadline.
const UndoDeadlineVersion = "refit.dev/undo-deadline/v1"

// DefaultUndoDeadline is that of a pool without a value of its own, in seconds.
const DefaultUndoDeadline = 600

// ParamOthersServe is the parameter of a step that ends a node's API server while API servers of
// other nodes serve. Its value is ParamYes.
const (
	ParamOthersServe = "others-serve"
	ParamYes         = "yes"
)

// Step is one updater's share of one node's plan.
type Step struct {
	// ID is unique in the node's plan, for example "kubeadm".
	ID string `json:"id"`
	// Updater that runs it: cordon, drain, kubeadm, kubelet, settle, uncordon.
	Updater string `json:"updater"`
	// Verb the updater understands: apply (first control-plane node), node, swap.
	Verb string `json:"verb"`
	// By is controller or agent.
	By string `json:"by"`
	// From and To are versions.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Disruption of this step.
	Disruption Disruption `json:"disruption"`
	// NotReversible says why the step cannot be undone; empty if it can.
	NotReversible string `json:"notReversible,omitempty"`
	// Changes are the fields of the node that the step moves: its updater's
	// claim. A step that moves none frames the others (drain, settle).
	Changes []Change `json:"changes,omitempty"`
	// Params the updater understands.
	Params map[string]string `json:"params,omitempty"`
	// DeadlineSeconds after which the step has failed; 0 waits for ever.
	DeadlineSeconds int32 `json:"deadlineSeconds,omitempty"`
}

// Change is one field of a node with its value before and after; an empty value
// is a field that is not there.
type Change struct {
	Path string `json:"path"`
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// Roles of a node.
const (
	RoleControlPlane = "control-plane"
	RoleWorker       = "worker"
)

// NodePlan is one node's share of a plan.
type NodePlan struct {
	Node string `json:"node"`
	Pool string `json:"pool"`
	Role string `json:"role"`
	// Wave groups nodes: all nodes of a wave are done before the next begins.
	Wave int `json:"wave"`
	// From and To are the node's Kubernetes versions.
	From  string `json:"from"`
	To    string `json:"to"`
	Steps []Step `json:"steps"`
	// PointOfNoReturn is the ID of the first step that cannot be undone.
	PointOfNoReturn string `json:"pointOfNoReturn,omitempty"`
	// Notes are what the node's move means for the cluster.
	Notes []string `json:"notes,omitempty"`
}

// Target is what a plan leads to.
type Target struct {
	// Bundle is the digest of the bundle.
	Bundle  string `json:"bundle"`
	Name    string `json:"name"`
	Version string `json:"version"`
	// Kubernetes is the version the payloads bring, empty if none.
	Kubernetes string `json:"kubernetes,omitempty"`
}

// Plan is what will run: the same value is printed, approved by its digest and
// run. Times, free bytes and estimates are not part of it.
type Plan struct {
	Version string `json:"version"`
	Target  Target `json:"target"`
	// Nodes in the order in which they start.
	Nodes []NodePlan `json:"nodes"`
	// Then are the further hops, in order: plans without hops of their own. Each one is made
	// for the nodes as those before it leave them.
	Then []Plan `json:"then,omitempty"`
}

// Hops are the plan's hops in order, each without the others. A plan without further hops is
// its only one.
func (p Plan) Hops() []Plan {
	first := p
	first.Then = nil
	return append([]Plan{first}, p.Then...)
}

// Hop is the hop to a bundle; ok is false if the plan has none.
func (p Plan) Hop(bundle string) (hop Plan, ok bool) {
	for _, h := range p.Hops() {
		if h.Target.Bundle == bundle {
			return h, true
		}
	}
	return Plan{}, false
}

// HopsVersion is the format of a run that is a later hop of its update: an agent that does not
// know it refuses the run.
const HopsVersion = "refit.dev/hops/v1"
