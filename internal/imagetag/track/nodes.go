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
	// Sick is why nothing may begin on the node now, Busy who runs steps there; ""
	// if nothing and nobody.
	Sick, Busy string
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
	// Because of what it is taken back.
	Because string
	// Took is how long it was, once it has ended.
	Took time.Duration
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
var asBefore = []string{"StaticPodNotReady", "StaticPodRefused", "ImagesMissing"}

// NodeStep permits one node to write its static pod, or to take that back.
type NodeStep struct {
	// Node, "" for none.
	Node    string
	Attempt int32
	Undo    bool
	Because string
}

// Gate is what keeps static pods from being begun: who has the turn, which
// ClusterUpdate moves nodes, what is wrong with the control plane; "" for nothing.
type Gate struct {
	Turn, Update, ControlPlane string
}

// RewriteLong is Rewrite for static pods: nobody follows a tag there, so the image
// is named by its long tag.
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

// runs reports whether a node was permitted and has not ended.
func (n *NodePod) runs() bool {
	return n.Run != nil && (n.Run.State == "" || n.Run.State == RunRunning)
}

// inOrder: workers first, then control-plane nodes, by name.
func (w *Target) inOrder() []*NodePod {
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

// static is a target of kind StaticPod.
func (r *roll) static(w *Target, i int) (state, message string) {
	changes := w.Changes(r.approved)
	switch {
	case w.Kubeadm && changes:
		return Stopped, "it is a static pod of kubeadm, which has its version: a ClusterUpdate moves it, a track never does"
	case w.Kubeadm:
		return Current, ""
	case r.propose && changes:
		return Proposed, whyProposed(w)
	case r.propose:
		return Current, ""
	}
	order := w.inOrder()
	for _, n := range order {
		if state, message := r.begun(w, i, n); state != "" {
			r.busy = or(r.busy, w.Key())
			return state, message
		}
	}
	if !changes {
		return r.settled(w, order)
	}
	if state, message := r.mayBegin(w); state != "" {
		return state, message
	}
	return r.next(w, i, order)
}

// begun says how far a node is that was permitted and is not done; state is "" if
// it was not, or is.
func (r *roll) begun(w *Target, i int, n *NodePod) (state, message string) {
	run := n.Run
	switch {
	case n.Ending:
		r.step.Turn, r.step.TurnOf = n.Node, i
		return Rolling, fmt.Sprintf("node %s ends what it was permitted before", n.Node)
	case run == nil:
		return "", ""
	case n.runs():
		r.step.Turn, r.step.TurnOf = n.Node, i
		if run.Undo {
			return Rolling, fmt.Sprintf("node %s takes it back: %s", n.Node, or(run.Message, "its agent was told"))
		}
		return Rolling, fmt.Sprintf("node %s, %s: %s", n.Node, w.count(r.approved), or(run.Message, "its agent was told"))
	case run.State == RunSucceeded && !n.changes(r.approved):
		return "", ""
	case run.State == RunFailed && !run.Undo && !slices.Contains(asBefore, run.Reason):
		r.step.Turn, r.step.TurnOf = n.Node, i
		r.step.Node = NodeStep{Node: n.Node, Attempt: run.Attempt + 1, Undo: true, Because: run.Message}
		return Rolling, fmt.Sprintf("node %s is to take it back: %s", n.Node, run.Message)
	}
	return Stopped, fmt.Sprintf("node %s %s; no other node is begun; %s", n.Node, run.halted(), cure)
}

// halted says how a node has ended so that no other one is begun.
func (run *NodeRun) halted() string {
	switch {
	case run.State == RunSucceeded:
		return "had it, and somebody has put another image into its manifest since"
	case run.State == RunUndone:
		return "has it as before: " + or(run.Because, run.Message)
	case run.Undo:
		return fmt.Sprintf("could not take it back: %s (because: %s)", run.Message, run.Because)
	}
	return "failed: " + run.Message
}

const cure = "raise spec.retry (refit tags retry) to try it again, or refit tags rollback"

// count of the nodes that have it.
func (w *Target) count(approved *Image) string {
	done := 0
	for i := range w.Nodes {
		if !w.Nodes[i].changes(approved) {
			done++
		}
	}
	return fmt.Sprintf("%d of %d nodes have it", done, len(w.Nodes))
}

// settled: every node has it; they must be well, too.
func (r *roll) settled(w *Target, order []*NodePod) (state, message string) {
	for _, n := range order {
		if !n.Ready {
			r.busy = or(r.busy, w.Key())
			return Rolling, fmt.Sprintf("node %s has it, and its pod is not Ready", n.Node)
		}
	}
	return Current, ""
}

// mayBegin says why no further node may begin, "" if one may.
func (r *roll) mayBegin(w *Target) (state, message string) {
	switch {
	case !r.pre.Wanted:
		return Stopped, "a static pod is given only an image that its node holds already, and spec.preload is false"
	case !r.pre.ready():
		r.busy = or(r.busy, "the nodes")
		return Preloading, r.preloading()
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

// next begins the next node, if those before it are well.
func (r *roll) next(w *Target, i int, order []*NodePod) (state, message string) {
	r.busy = w.Key()
	why := ""
	for _, n := range order {
		switch {
		case !n.changes(r.approved) && !n.Ready:
			return Waiting, fmt.Sprintf("node %s has it, and its pod is not Ready: the next one waits", n.Node)
		case !n.changes(r.approved):
		case n.ControlPlane && r.gate.ControlPlane != "":
			return Waiting, fmt.Sprintf("control-plane node %s waits: %s", n.Node, r.gate.ControlPlane)
		case n.Busy != "":
			why = or(why, fmt.Sprintf("node %s waits: it runs steps of %s", n.Node, n.Busy))
		case n.Sick != "":
			why = or(why, fmt.Sprintf("node %s waits: %s", n.Node, n.Sick))
		default:
			r.step.Turn, r.step.TurnOf = n.Node, i
			r.step.Node = NodeStep{Node: n.Node, Attempt: 1}
			return Rolling, fmt.Sprintf("node %s is begun; %s", n.Node, w.count(r.approved))
		}
	}
	return Waiting, why
}
