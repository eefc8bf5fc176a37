package rollout

import (
	"time"

	"github.com/refit-dev/refit/internal/model"
)

// Attempt is which attempt at a node something belongs to.
type Attempt struct {
	// Number rises with every attempt and every undo, from 1.
	Number int32
	// Retry is how often a person had asked for another attempt by then.
	Retry int32
	// Try counts the attempts since, from 1.
	Try int32
}

// Run is the run of steps that a node was given, and its result.
type Run struct {
	// Attempt that was permitted.
	Attempt Attempt
	// Undo runs undo the steps of earlier attempts; UndoReason is what had failed.
	Undo       bool
	UndoReason string
	// State the node reports for that attempt: "", Running, Succeeded, Failed, Undone.
	State string
	// Step that runs or failed.
	Step string
	// Reason and Message of the node's report.
	Reason, Message string
	// EndedAgo is how long ago it ended by the node's own clock, 0 if that is not known.
	EndedAgo time.Duration
}

// States of a Run.
const (
	RunRunning   = "Running"
	RunSucceeded = "Succeeded"
	RunFailed    = "Failed"
	RunUndone    = "Undone"
)

// finished reports whether nothing more comes of a run.
func (r *Run) finished() bool {
	return r.State == RunSucceeded || r.State == RunFailed || r.State == RunUndone
}

// Drain is how far the emptying of a node is.
type Drain struct {
	// Left pods that must still go.
	Left int
	// Blockers say why they do not.
	Blockers []model.Blocker
}

// Node has the observed facts of one node. The fields that every decision reads of every
// node are first and together, for the cache: of thirty thousand nodes almost all are
// idle.
type Node struct {
	Name string
	// Gone nodes have left the cluster.
	Gone bool
	// Started is true while the node carries this update's mark; StartedAt and
	// Attempt are in the mark.
	Started bool
	// AtTarget is true if everything the plan wants was observed; NotYet says
	// what was not.
	AtTarget bool
	// Ready as the kubelet reports it, and since when; zero if not known.
	Ready bool
	// Unschedulable nodes are cordoned, by whomever.
	Unschedulable bool
	// Excluded nodes carry the label that keeps them out of external load balancers;
	// ExcludedAt is since when, if refit set it.
	Excluded bool
	// OnHold: a person keeps updates from starting here, and said why.
	OnHold bool
	// ReportsOldVersion: long after its run succeeded the node's own agent does not see the
	// target.
	ReportsOldVersion bool
	// AgentHeartbeatLost is true if the agent has not been heard for too long.
	AgentHeartbeatLost bool
	// SilentFor is how long it has been watched without a heartbeat.
	SilentFor time.Duration
	// Run is what was permitted to the node in this update, nil if nothing was.
	Run *Run
	// FinishedAt is when this update gave the node back at its target, zero if it
	// did not yet.
	FinishedAt time.Time

	ExcludedAt time.Time
	ReadySince time.Time
	StartedAt  time.Time
	Attempt    Attempt
	HoldReason string
	NotYet     string
	// Zone of the node, empty if it has none.
	Zone string
	// External is an external updater that the node waits for after its run, or that
	// has failed on it; nil if there is none.
	External *ExternalWait
	// Staging is how far the node is with what it boots next, which is made ready before
	// the node is taken; nil if its plan has nothing of that.
	Staging *Staging
	// Drain of a node that has started and does not run yet.
	Drain *Drain
	// Unsettled says which static pod of a node whose attempt failed is on its way
	// from one version to another; empty if none is.
	Unsettled string
}

// Staging is how far a node is with what it boots next.
type Staging struct {
	// Ordered to make it ready; Ready when it is.
	Ordered, Ready bool
	// Problem says why it cannot be made ready now; it is tried again.
	Problem string
}

// ExternalWait is how far an external updater is with a node.
type ExternalWait struct {
	// Step of the plan.
	Step string
	// Message what it said last, or why it gave no answer.
	Message string
	Failed  bool
}

// lastAttempt is the attempt that started last, zero if none did.
func (n *Node) lastAttempt() Attempt {
	a := n.Attempt
	if !n.Started {
		a = Attempt{}
	}
	if n.Run != nil && n.Run.Attempt.Number > a.Number {
		a = n.Run.Attempt
	}
	if a.Number == 0 && !n.FinishedAt.IsZero() { // its run is no more, the record is
		a = Attempt{Number: 1, Try: 1}
	}
	return a
}

// Amount is a number of nodes or a percentage of them.
type Amount struct {
	Value   int
	Percent bool
}

// CountOf is the amount of so many nodes: a percentage is rounded down, and the
// answer is at least 1; the zero Amount is 0.
func (a Amount) CountOf(size int) int {
	if a.Value == 0 {
		return 0
	}
	v := a.Value
	if a.Percent {
		v = size * v / 100
	}
	return max(1, v)
}

// Pool is what the rollout needs of a pool.
type Pool struct {
	Name string
	// Budget is how many of its nodes may be unavailable at once, at least 1.
	Budget int
	// Unavailable are all its nodes that are cordoned, not Ready or started,
	// also those the plan does not touch.
	Unavailable []string
	// ControlPlane are the control-plane nodes among Unavailable. The budget of
	// control-plane nodes counts only them, so that a cordoned worker does not stop the
	// control plane.
	ControlPlane []string
	// Cordoned are the Ready nodes among Unavailable that are cordoned, but not by refit:
	// only a person makes them available.
	Cordoned []string
	Paused   bool
	// DrainTimeout after which a drain halts the update; 0 is never.
	DrainTimeout time.Duration
	// Canary workers go first and soak for CanarySoak.
	Canary     Amount
	CanarySoak time.Duration
	// Soak of every node before its place in the budget is free again.
	Soak time.Duration
	// MaxFailures halts the update; less than 1 is 1.
	MaxFailures int
	// Windows in which nodes may start, none is always; Invalid says why they
	// cannot be read.
	Windows []Window
	Invalid string
	// Zones: one after another.
	Zones bool
	// Attempts at a node; less than 1 is 1.
	Attempts int32
	// OutOfBalancers is how long a node is out of external load balancers before it is
	// cordoned and drained; 0 leaves it in them until then.
	OutOfBalancers time.Duration
	// Unwell is what the pool's health checks found: while there is anything, no further
	// node starts, and the update is not done.
	Unwell []model.Blocker
	// Undo the steps that started on a node that failed.
	Undo bool
	// Staging is how many nodes make ready what they boot next at once; less than 1 is 1.
	Staging int
}

// ControlPlane is what is seen of the whole cluster's control plane.
type ControlPlane struct {
	// Unhealthy says of control-plane nodes that are not well why not.
	Unhealthy map[string]string
	// Etcd are the members that run on the nodes, true if Ready; empty if etcd
	// runs elsewhere.
	Etcd map[string]bool
	// Addons says which add-on is being rolled out after a server has moved, empty if none is.
	// Further nodes wait for it until AddonsUntil.
	Addons      string
	AddonsUntil time.Time
}

// Input has all facts of the decision.
type Input struct {
	Plan model.Plan
	// Nodes by name; who has them in the order of the plan gives them InRow.
	Nodes        map[string]Node
	Pools        map[string]Pool
	ControlPlane ControlPlane
	Paused       bool
	// Retry is how often a person has asked for another attempt at failed nodes,
	// RetryNodes how often, in addition, at single nodes.
	Retry      int32
	RetryNodes map[string]int32
	// Learned is how long nodes of this cluster take.
	Learned Learned
	// Now measures durations: of drains, soaks, attempts. Wall is what clocks on the wall
	// say, for windows; zero is the same as Now.
	Now, Wall time.Time

	// row are the facts in the order of the plan's nodes, stages where those are, boots the
	// OS images that they boot; at has the places in that order by name.
	row           []*Node
	at            map[string]int
	stages, boots []string
}

// InRow sets, instead of Nodes, one fact for each node of the plan in the plan's order,
// the places in that order by name, and what BootedImages says of the plan. A caller that keeps
// them spares every decision thirty thousand lookups.
func (in *Input) InRow(row []*Node, at map[string]int, boots []string) {
	in.row, in.at, in.boots = row, at, boots
}

// align makes the row if the caller set none; an unknown node has left the cluster.
func (in *Input) align() {
	if in.at != nil {
		return
	}
	store := make([]Node, len(in.Plan.Nodes))
	in.row, in.at = make([]*Node, len(store)), make(map[string]int, len(store))
	for i := range store {
		name := in.Plan.Nodes[i].Node
		n, known := in.Nodes[name]
		n.Name, n.Gone = name, n.Gone || !known
		store[i], in.row[i], in.at[name] = n, &store[i], i
	}
	in.boots = BootedImages(&in.Plan)
}

// NodeAt gives the facts of the i-th node of the plan.
func (in *Input) NodeAt(i int) *Node {
	in.align()
	return in.row[i]
}

// Range is how long nodes of one role take, from the cordon to the uncordon.
type Range struct {
	Low, High time.Duration
	// Samples is the number of nodes it was learned from; with none nothing is known.
	Samples int
}

// Learned is how long nodes of this cluster take, by role.
type Learned struct{ ControlPlane, Worker Range }

// ForRole is the range of a role.
func (l Learned) ForRole(role string) Range {
	if role == model.RoleControlPlane {
		return l.ControlPlane
	}
	return l.Worker
}

// ControlPlanes counts the control-plane nodes of the cluster, as far as known.
func (in *Input) ControlPlanes() int {
	n := len(in.ControlPlane.Etcd)
	count := 0
	for _, np := range in.Plan.Nodes {
		if np.Role == model.RoleControlPlane {
			count++
		}
	}
	return max(n, count)
}

// retriesRequested is how often a person has asked for another attempt at a node.
func (in *Input) retriesRequested(node string) int32 { return in.Retry + in.RetryNodes[node] }
