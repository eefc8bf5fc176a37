package rollout

import (
	"fmt"

	"github.com/refit-dev/refit/internal/model"
)

// stageNodes lets waiting nodes stage their next OS image, as many of a pool at once as
// its Staging allows. It ignores turns and windows, because staging does not disrupt a
// node. A node that cannot stage does not stop the others.
func (d *Decision) stageNodes(in *Input, lines map[string]*line) {
	wait, going := stagings(in, lines)
	if in.Paused || d.Halted {
		return
	}
	for _, i := range wait {
		np, n := &in.Plan.Nodes[i], in.row[i]
		l := lines[np.Pool]
		if l.Paused || n.OnHold || !n.Ready || going[np.Pool] >= max(1, l.Staging) {
			continue
		}
		going[np.Pool]++
		d.addAction(Action{Verb: Stage, Node: np.Node})
	}
}

// stagings returns the places of the nodes without an order to stage, and how many of each
// pool are staging; the pools' lines count those that are ready. Nodes that are on hold,
// not Ready or silent do not take a place from the others.
func stagings(in *Input, lines map[string]*line) (wait []int, going map[string]int) {
	going = map[string]int{}
	for i := range in.Plan.Nodes {
		n := in.row[i]
		if n.Staging == nil || in.stages[i] != StageWaiting {
			continue
		}
		pool := in.Plan.Nodes[i].Pool
		l := lines[pool]
		l.stages++
		switch {
		case n.Staging.Ready:
			l.staged++
		case !n.Staging.Ordered:
			wait = append(wait, i)
		case n.Staging.Problem == "" && n.Ready && !n.OnHold && !n.AgentHeartbeatLost:
			going[pool]++
		}
	}
	return wait, going
}

// stagingWaits: a node is not cordoned before its next OS image is staged.
func (d *Decision) stagingWaits(np *model.NodePlan, n *Node, l *line) bool {
	if n.Staging == nil || n.Staging.Ready {
		return false
	}
	if n.Staging.Ordered && n.AgentHeartbeatLost {
		d.addBlockers(silentAgent(n))
	}
	if why := n.Staging.Problem; why != "" && l.firstTime(reasonNotStaged) {
		v := nodeBlocker(n.Name, reasonNotStaged, " does not start: its next OS image could not be staged, refit retries: "+why)
		v.Fix = "fix what the message names; the node was not cordoned or drained"
		d.addBlockers(v)
	}
	if l.firstTime(reasonStaging) {
		d.addBlockers(model.Blocker{Reason: reasonStaging, Object: "UpdatePool/" + np.Pool, Waiting: true,
			Message: fmt.Sprintf("pool %s: the next OS image is staged on %d of %d waiting nodes", np.Pool, l.staged, l.stages)})
	}
	return true
}
