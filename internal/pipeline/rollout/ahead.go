package rollout

import (
	"fmt"

	"github.com/refit-dev/refit/internal/model"
)

// ahead has nodes make ready what they boot next, as many of a pool at once as it
// bears: all that wait, whoever's turn it is, and also outside windows, since nothing
// is taken from a node by it. One that cannot keeps no other from trying.
func (d *Decision) ahead(in *Input, lines map[string]*line) {
	wait, going := stagings(in, lines)
	if in.Paused || d.Halted {
		return
	}
	for _, i := range wait {
		np, n := &in.Plan.Nodes[i], in.row[i]
		l := lines[np.Pool]
		if l.Paused || n.Held || !n.Ready || going[np.Pool] >= max(1, l.Staging) {
			continue
		}
		going[np.Pool]++
		d.act(Action{Verb: Stage, Node: np.Node})
	}
}

// stagings are the places of the nodes that were not told yet, and how many of each
// pool are at it; the pools' lines count those that are ready. A node that was told and
// has gone away since, or that a person holds, is not waited for by the others.
func stagings(in *Input, lines map[string]*line) (wait []int, going map[string]int) {
	going = map[string]int{}
	for i := range in.Plan.Nodes {
		n := in.row[i]
		if n.Ahead == nil || in.stages[i] != StageWaiting {
			continue
		}
		pool := in.Plan.Nodes[i].Pool
		l := lines[pool]
		l.stages++
		switch {
		case n.Ahead.Ready:
			l.staged++
		case !n.Ahead.Told:
			wait = append(wait, i)
		case n.Ahead.Problem == "" && n.Ready && !n.Held && !n.AgentHeartbeatLost:
			going[pool]++
		}
	}
	return wait, going
}

// aheadWaits: a node is not taken before what it boots next lies ready on it.
func (d *Decision) aheadWaits(np *model.NodePlan, n *Node, l *line) bool {
	if n.Ahead == nil || n.Ahead.Ready {
		return false
	}
	if n.Ahead.Told && n.AgentHeartbeatLost {
		d.say(mute(n))
	}
	if why := n.Ahead.Problem; why != "" && l.once(reasonNotStaged) {
		v := about(n.Name, reasonNotStaged, " does not start: what it is to boot could not be made ready, which is tried again: "+why)
		v.Fix = "mend what the message says; nothing was taken from the node"
		d.say(v)
	}
	if l.once(reasonStaging) {
		d.say(model.Verdict{Reason: reasonStaging, Object: "UpdatePool/" + np.Pool, Waiting: true,
			Message: fmt.Sprintf("pool %s: what nodes boot next lies ready on %d of the %d that wait", np.Pool, l.staged, l.stages)})
	}
	return true
}
