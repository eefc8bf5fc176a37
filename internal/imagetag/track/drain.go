package track

import "fmt"

// NodeDrain is how far the node is that a track has cordoned; the zero value is none.
type NodeDrain struct {
	Node string
	// Empty: no pod is left that must go; else Message says which are, and why.
	Empty   bool
	Message string
	// Replaced: the DaemonSet's pod on it is as approved and Ready.
	Replaced bool
}

// drainedState is a DaemonSet with OnDelete whose nodes are drained before their pods are replaced,
// one after the other. Its template is as approved.
func (r *roll) drainedState(w *Target, i int) (state, message string) {
	node := w.Drain.Node
	old := w.oldOn(node)
	switch {
	case node != "" && old == "" && !w.Drain.Replaced:
		r.hold(w, i, node)
		return Rolling, fmt.Sprintf("node %s stays cordoned until its new pod is Ready; %s", node, w.Progress)
	case w.Settled && len(w.Old) == 0:
		return Current, ""
	case r.busy != "":
		return Waiting, "it is the turn of " + r.busy
	case old == "":
		return r.drainNextNode(w, i)
	}
	r.hold(w, i, node)
	if !w.Drain.Empty {
		r.step.Drain = node
		return Rolling, fmt.Sprintf("node %s is drained: %s", node, w.Drain.Message)
	}
	// A change that has started is finished, also outside of a window.
	w.Closed = ""
	return Rolling, r.evictNext(w, i, old)
}

// drainNextNode starts with the next node if the one before is well.
func (r *roll) drainNextNode(w *Target, i int) (state, message string) {
	r.busy = w.Key()
	switch {
	case !w.Settled || w.Down > 0:
		return Rolling, w.Progress
	case r.gate.Update != "":
		return Waiting, "ClusterUpdate " + r.gate.Update + " moves nodes"
	case r.gate.Turn != "":
		return Waiting, "it is the turn of " + r.gate.Turn
	case w.Closed != "":
		return Waiting, w.Closed
	}
	why := ""
	for _, pod := range w.Old {
		node := w.NodeOf[pod]
		if w.Undrainable[node] != "" {
			why = or(why, fmt.Sprintf("node %s waits: %s", node, w.Undrainable[node]))
			continue
		}
		r.hold(w, i, node)
		r.step.Drain = node
		return Rolling, fmt.Sprintf("%d pods still run another image; node %s is drained next", len(w.Old), node)
	}
	return Waiting, why
}

// hold gives a node the turn: it stays cordoned.
func (r *roll) hold(w *Target, i int, node string) {
	r.busy = or(r.busy, w.Key())
	r.step.Turn, r.step.TurnOf = node, i
}

// oldOn is the old pod of a node, "" if there is none.
func (w *Target) oldOn(node string) string {
	for _, pod := range w.Old {
		if node != "" && w.NodeOf[pod] == node {
			return pod
		}
	}
	return ""
}

// drained reports whether a node has no pod left that must go, or needs no drain.
func (w *Target) drained(node string) bool {
	return !w.Drains || w.Drain.Node == node && w.Drain.Empty
}

// keepCordon keeps the turn of a node that this track has cordoned.
func (r *roll) keepCordon(w *Target, i int, node string) {
	if w.Drains && w.Drain.Node == node {
		r.hold(w, i, node)
	}
}
