package track

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// NodePod is a static pod on one of its nodes.
type NodePod struct {
	Node string
	// ControlPlane: the node has a part of it.
	ControlPlane bool
	// Containers whose image is of the track's repository.
	Containers []Container
	// Ready: the kubelet calls the pod so.
	Ready bool
	// Unready is why no step may start on the node now, Busy whose steps run there; "" for
	// none.
	Unready, Busy string
	// Ending: it still runs what this track has permitted before, of another image
	// or at an earlier try.
	Ending bool
	// Run is what came of this image there, nil if nothing was permitted.
	Run *NodeRun
}

// NodeRun is what an agent has done of what it was permitted.
type NodeRun struct {
	Attempt int32
	Undo    bool
	// State is Running, Succeeded, Failed or Undone; "" before the agent has said
	// anything.
	State           string
	Reason, Message string
	// UndoReason is why it is rolled back.
	UndoReason string
	// Duration is how long it was, once it has ended.
	Duration time.Duration
}

// States of a NodeRun. The words are those of the API.
const (
	RunRunning   = "Running"
	RunSucceeded = "Succeeded"
	RunFailed    = "Failed"
	RunUndone    = "Undone"
)

// Reasons with which a node has failed and stands as before. The words are those
// of the API.
var unchangedReasons = []string{"StaticPodNotReady", "StaticPodRefused", "ImagesMissing"}

// NodeStep permits one node to write its static pod, or to take that back.
type NodeStep struct {
	// Node, "" for none.
	Node       string
	Attempt    int32
	Undo       bool
	UndoReason string
}

// Gate has what keeps static pods from starting: the target that has the turn, the
// ClusterUpdate that moves nodes, the fault of the control plane; "" for none.
type Gate struct {
	Turn, Update, ControlPlane string
}

// RewriteLong is Rewrite for static pods. A manifest file follows no tag, so it names the image
// by its long tag.
func RewriteLong(image string, approved *Image) (out string, changed bool) {
	long := *approved
	long.Tag = or(approved.Long, approved.Tag)
	return Rewrite(image, &long)
}

func (n *NodePod) changes(approved *Image) bool {
	return slices.ContainsFunc(n.Containers, func(c Container) bool {
		_, changed := RewriteLong(c.Image, approved)
		return changed
	})
}

// isRunning reports whether a node was permitted and has not ended.
func (n *NodePod) isRunning() bool {
	return n.Run != nil && (n.Run.State == "" || n.Run.State == RunRunning)
}

// nodesInOrder: workers first, then control-plane nodes, by name.
func (w *Target) nodesInOrder() []*NodePod {
	out := make([]*NodePod, len(w.Nodes))
	for i := range w.Nodes {
		out[i] = &w.Nodes[i]
	}
	class := func(n *NodePod) int {
		if n.ControlPlane {
			return 1
		}
		return 0
	}
	slices.SortFunc(out, func(a, b *NodePod) int { return cmp.Or(cmp.Compare(class(a), class(b)), cmp.Compare(a.Node, b.Node)) })
	return out
}

// staticPodState is a target of kind StaticPod.
func (r *roll) staticPodState(w *Target, i int) (state, message string) {
	changes := w.Changes(r.approved)
	switch {
	case w.Kubeadm && changes:
		return Stopped, "it is a static pod of kubeadm: only a ClusterUpdate changes it"
	case w.Kubeadm:
		return Current, ""
	case r.propose && changes:
		return Proposed, whyProposed(w)
	case r.propose:
		return Current, ""
	}
	order := w.nodesInOrder()
	for _, n := range order {
		if state, message := r.startedState(w, i, n); state != "" {
			r.busy = or(r.busy, w.Key())
			return state, message
		}
	}
	if !changes {
		return r.settledState(w, i, order)
	}
	if state, message := r.startBlocked(w); state != "" {
		return state, message
	}
	return r.startNextNode(w, i, order)
}

// startedState returns the state of a node that has a permission and is not done; state is ""
// for any other node.
func (r *roll) startedState(w *Target, i int, n *NodePod) (state, message string) {
	run := n.Run
	switch {
	case n.Ending:
		r.step.Turn, r.step.TurnOf = n.Node, i
		return Rolling, fmt.Sprintf("node %s finishes an earlier step", n.Node)
	case run == nil:
		return "", ""
	case n.isRunning():
		r.step.Turn, r.step.TurnOf = n.Node, i
		if run.Undo {
			return Rolling, fmt.Sprintf("node %s rolls back: %s", n.Node, or(run.Message, "its agent has the permission"))
		}
		return Rolling, fmt.Sprintf("node %s, %s: %s", n.Node, w.countDone(r.approved), or(run.Message, "its agent has the permission"))
	case run.State == RunSucceeded && !n.changes(r.approved):
		return "", ""
	case run.State == RunFailed && !run.Undo && !slices.Contains(unchangedReasons, run.Reason):
		r.step.Turn, r.step.TurnOf = n.Node, i
		r.step.Node = NodeStep{Node: n.Node, Attempt: run.Attempt + 1, Undo: true, UndoReason: run.Message}
		return Rolling, fmt.Sprintf("node %s must roll back: %s", n.Node, run.Message)
	}
	return Stopped, fmt.Sprintf("node %s %s; no other node starts; %s", n.Node, run.describeHalt(), retryFix)
}

// describeHalt returns the end of a node's step that stops the roll-out.
func (run *NodeRun) describeHalt() string {
	switch {
	case run.State == RunSucceeded:
		return "had it, but its manifest has another image now"
	case run.State == RunUndone:
		return "rolled back: " + or(run.UndoReason, run.Message)
	case run.Undo:
		return fmt.Sprintf("could not roll back: %s (cause: %s)", run.Message, run.UndoReason)
	}
	return "failed: " + run.Message
}

const retryFix = "raise spec.retry (refit tags retry) to try it again, or refit tags rollback"

// countDone of the nodes that have it.
func (w *Target) countDone(approved *Image) string {
	done := 0
	for i := range w.Nodes {
		if !w.Nodes[i].changes(approved) {
			done++
		}
	}
	return fmt.Sprintf("%d of %d nodes have it", done, len(w.Nodes))
}

// settledState: every node has it; they must be well, too.
func (r *roll) settledState(w *Target, i int, order []*NodePod) (state, message string) {
	for _, n := range order {
		if !n.Ready {
			r.busy = or(r.busy, w.Key())
			r.keepCordon(w, i, n.Node)
			return Rolling, fmt.Sprintf("node %s has it, and its pod is not Ready", n.Node)
		}
	}
	return Current, ""
}

// startBlocked returns why no further node may start, "" if one may.
func (r *roll) startBlocked(w *Target) (state, message string) {
	switch {
	case !r.pre.Wanted:
		return Stopped, "a static pod gets only an image that its node has already, and spec.preload is false"
	case !r.pre.ready():
		r.busy = or(r.busy, "the nodes")
		return Preloading, r.describePreload()
	case r.busy != "":
		return Waiting, "it is the turn of " + r.busy
	case w.Denied != "":
		return Stopped, w.Denied
	case r.gate.Update != "":
		return Waiting, "ClusterUpdate " + r.gate.Update + " moves nodes"
	case r.gate.Turn != "":
		return Waiting, "it is the turn of " + r.gate.Turn
	case w.Closed != "":
		return Waiting, w.Closed
	}
	return "", ""
}

// startNextNode starts the next node if those before it are ready.
func (r *roll) startNextNode(w *Target, i int, order []*NodePod) (state, message string) {
	r.busy = w.Key()
	why := ""
	for _, n := range order {
		switch {
		case !n.changes(r.approved) && !n.Ready:
			r.keepCordon(w, i, n.Node)
			return Waiting, fmt.Sprintf("node %s has it, and its pod is not Ready: the next one waits", n.Node)
		case !n.changes(r.approved):
		case n.ControlPlane && r.gate.ControlPlane != "":
			return Waiting, fmt.Sprintf("control-plane node %s waits: %s", n.Node, r.gate.ControlPlane)
		case n.Busy != "":
			why = or(why, fmt.Sprintf("node %s waits: it runs steps of %s", n.Node, n.Busy))
		case n.Unready != "":
			why = or(why, fmt.Sprintf("node %s waits: %s", n.Node, n.Unready))
		case !w.drained(n.Node):
			r.hold(w, i, n.Node)
			r.step.Drain = n.Node
			return Rolling, fmt.Sprintf("node %s is drained first: %s", n.Node, or(w.Drain.Message, w.countDone(r.approved)))
		default:
			r.step.Turn, r.step.TurnOf = n.Node, i
			r.step.Node = NodeStep{Node: n.Node, Attempt: 1}
			return Rolling, fmt.Sprintf("node %s starts; %s", n.Node, w.countDone(r.approved))
		}
	}
	return Waiting, why
}
