package rollout

import (
	"maps"
	"slices"
	"time"

	"github.com/refit-dev/refit/internal/model"
)

// AsksHealth names the pools whose health checks a decision depends on: a node of them would
// start, or the update would be done.
func AsksHealth(in Input, d Decision) []string {
	in.align()
	var pools []string
	for i := range in.Plan.Nodes {
		if !d.Finished {
			break
		}
		pools = append(pools, in.Plan.Nodes[i].Pool)
	}
	for _, a := range d.Actions {
		if i, planned := d.Stages.at[a.Node]; planned && (a.Verb == Cordon || a.Verb == Exclude) && !in.row[i].Started {
			pools = append(pools, in.Plan.Nodes[i].Pool)
		}
	}
	slices.Sort(pools)
	return slices.Compact(pools)
}

// healthWaits: a health check of the pool does not pass.
func (d *Decision) healthWaits(l *line) bool {
	if len(l.Unwell) == 0 {
		return false
	}
	if l.firstTime("health") {
		d.addBlockers(l.Unwell...)
	}
	return true
}

// finishedWaits: the last node may have made a health check fail.
func (d *Decision) finishedWaits(lines map[string]*line) {
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		if d.healthWaits(lines[name]) {
			d.Finished = false
		}
	}
}

// exclusion is how long a node is out of external load balancers before its pods leave it, 0
// if they do not leave.
func exclusion(np *model.NodePlan, p Pool) time.Duration {
	if !hasStep(*np, Drained) {
		return 0
	}
	return p.OutOfBalancers
}

// firstVerb is how a node starts. One that another writer took out of the load balancers does
// not wait.
func firstVerb(np *model.NodePlan, n *Node, p Pool) string {
	if exclusion(np, p) == 0 || n.Excluded {
		return Cordon
	}
	return Exclude
}

// leaveBalancers takes a node that has started out of the external load balancers, and waits
// until no new connection comes from them.
func (d *Decision) leaveBalancers(in *Input, np model.NodePlan, n Node) (waits bool) {
	wait := exclusion(&np, in.Pools[np.Pool])
	switch end := n.ExcludedAt.Add(wait); {
	case wait == 0, n.Excluded && !in.Now.Before(end): // a label of another writer has no time
		return false
	case !n.Excluded:
		d.addAction(Action{Verb: Exclude, Node: n.Name, Attempt: n.Attempt})
	default:
		d.addBlockers(nodeBlocker(n.Name, reasonLeavingBalancers, " leaves the external load balancers until "+formatTime(end)+", and is drained then"))
	}
	return true
}
