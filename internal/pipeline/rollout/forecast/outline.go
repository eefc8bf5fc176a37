package forecast

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
)

// Reason words; the catalogue of the API has the same.
const (
	reasonNotReversible        = "NotReversible"
	reasonAPIServerUnavailable = "APIServerUnavailable"
	reasonEtcdQuorum           = "EtcdQuorum"
	reasonEtcdNotDowngraded    = "EtcdNotDowngraded"
)

// Outline says in sentences how a plan will be rolled out: waves, canaries, zones,
// windows, what happens to a node that fails, and how long it takes. It is printed next to
// the plan and is no part of it: a pool may be changed at any time, and time is never
// approved.
func Outline(in rollout.Input) []string {
	stages := rollout.StagesOf(in)
	queues := rollout.Queues(in, stages)
	out := controlPlaneLines(in)
	for _, g := range workerGroups(in.Plan) {
		out = append(out, poolLine(in, queues[g.pool], g))
	}
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		out = append(out, policyLines(in.Now, queues[name])...)
	}
	return append(out, timeLine(in, stages)...)
}

func controlPlaneLines(in rollout.Input) []string {
	var names []string
	for _, np := range in.Plan.Nodes {
		if np.Role == model.RoleControlPlane {
			names = append(names, np.Node)
		}
	}
	if len(names) == 0 {
		return nil
	}
	s := "control plane: " + strings.Join(names, ", then ")
	if len(names) > 1 {
		s += "; one at a time, each only while all others are healthy"
	}
	if len(in.ControlPlane.Etcd) > 2 { // the nodes' notes say when the API server is unavailable
		s += "; " + rollout.APIServerClause(in.ControlPlane.Etcd, in.ControlPlanes())
	}
	return []string{s}
}

// workers of one pool.
type workers struct {
	wave  int
	pool  string
	nodes []model.NodePlan
}

func workerGroups(p model.Plan) []*workers {
	var out []*workers
	byPool := map[string]*workers{}
	for _, np := range p.Nodes {
		if np.Role == model.RoleControlPlane {
			continue
		}
		g := byPool[np.Pool]
		if g == nil {
			g = &workers{wave: np.Wave, pool: np.Pool}
			byPool[np.Pool] = g
			out = append(out, g)
		}
		g.nodes = append(g.nodes, np)
	}
	return out
}

func poolLine(in rollout.Input, l rollout.Queue, g *workers) string {
	s := fmt.Sprintf("pool %s (wave %d): %s, at most %d unavailable at once", g.pool, g.wave, text.Count(len(g.nodes), "worker"), l.Budget)
	if len(l.Canary) > 0 {
		names := slices.Sorted(maps.Keys(l.Canary))
		s += "; first the canary " + firstFive(names)
		if l.CanarySoak > 0 {
			s += ", then " + rollout.FormatDuration(l.CanarySoak) + " of watching"
		}
	}
	if l.Zones {
		zones, order := map[string]int{}, []string{}
		for _, i := range l.Workers {
			z := in.NodeAt(i).Zone
			if zones[z]++; zones[z] == 1 {
				order = append(order, z)
			}
		}
		for i, z := range order {
			name := z
			if z == "" {
				name = "without a zone"
			}
			order[i] = fmt.Sprintf("%s (%d)", name, zones[z])
		}
		s += "; zone after zone: " + strings.Join(order, ", ")
	}
	return s
}

// policyLines: windows, soak, and what becomes of a node that fails.
func policyLines(now time.Time, l rollout.Queue) []string {
	var out []string
	if l.Soak > 0 {
		out = append(out, fmt.Sprintf("pool %s: each node is watched for %s before another takes its place", l.Name, rollout.FormatDuration(l.Soak)))
	}
	if l.Invalid != "" {
		out = append(out, fmt.Sprintf("pool %s: no node starts: %s", l.Name, l.Invalid))
	}
	if len(l.Windows) > 0 {
		names := make([]string, 0, len(l.Windows))
		for _, w := range l.Windows {
			names = append(names, w.String())
		}
		out = append(out, fmt.Sprintf("pool %s: nodes start only in the windows %s; %s", l.Name, strings.Join(names, " and "), rollout.DescribeWindows(l.Windows, now)))
	}
	then := "stays cordoned"
	if l.Undo {
		then = "is undone if all its steps are reversible"
	}
	tries := ""
	if l.Attempts > 1 {
		tries = fmt.Sprintf("is tried %d times, then ", l.Attempts)
	}
	return append(out, fmt.Sprintf("pool %s: a node that fails %s%s; the update halts after %s", l.Name, tries, then, text.Count(max(1, l.MaxFailures), "failed node")))
}

func timeLine(in rollout.Input, stages rollout.Stages) []string {
	eta, ok := Estimate(in, stages)
	if !ok {
		return nil
	}
	source := "learned from " + text.Count(eta.Samples, "node") + " of this cluster"
	if eta.Samples == 0 {
		source = "by the times of refit's lab: not every kind of node was timed in this cluster yet"
	}
	return []string{fmt.Sprintf("takes about %s to %s from now, %s",
		rollout.FormatDuration(eta.Earliest.Sub(in.Now).Round(time.Minute)), rollout.FormatDuration(eta.Latest.Sub(in.Now).Round(time.Minute)), source)}
}

// firstFive names the first of many.
func firstFive(names []string) string { return text.FirstOf(names, 5, ", ") }

// Predict reports known disruptions before the start: the API server is unavailable, a
// step is not reversible, etcd is not downgraded.
func Predict(in rollout.Input) []model.Blocker {
	var out []model.Blocker
	cps := in.ControlPlanes()
	for _, np := range in.Plan.Nodes {
		if np.Role == model.RoleControlPlane && movedByKubeadm(np) {
			out = append(out, predictControlPlane(in.ControlPlane.Etcd, cps, np)...)
		}
		if in.Pools[np.Pool].Undo && np.PointOfNoReturn != "" {
			out = append(out, model.Blocker{Reason: reasonNotReversible, Object: "Node/" + np.Node, Waiting: true,
				Message: fmt.Sprintf("node %s is not undone if it fails in step %s or later, although pool %s asks for it: %s", np.Node, np.PointOfNoReturn, np.Pool, reasonOf(np))})
		}
	}
	return out
}

// movedByKubeadm: any other step leaves the API server where it is.
func movedByKubeadm(np model.NodePlan) bool {
	return slices.ContainsFunc(np.Steps, func(s model.Step) bool { return s.Updater == "kubeadm" })
}

func reasonOf(np model.NodePlan) string {
	for _, s := range np.Steps {
		if s.ID == np.PointOfNoReturn {
			return s.NotReversible
		}
	}
	return "it is not reversible"
}

func predictControlPlane(etcd map[string]bool, controlPlanes int, np model.NodePlan) []model.Blocker {
	var out []model.Blocker
	switch {
	case controlPlanes < 2:
		out = append(out, nodeBlocker(np.Node, reasonAPIServerUnavailable, " is the only control-plane node: the API server is unavailable while it moves; workloads continue to run, and its agent reports afterwards"))
	case len(etcd) == 2 && isMember(etcd, np.Node):
		out = append(out, nodeBlocker(np.Node, reasonEtcdQuorum, " runs one of two etcd members: while it moves the other has no quorum, and the API server hangs"))
	}
	if componentversion.LessKubernetes(np.To, np.From) {
		out = append(out, nodeBlocker(np.Node, reasonEtcdNotDowngraded, " is downgraded to "+np.To+", and kubeadm does not downgrade etcd: it keeps its version and its data"))
	}
	return out
}

func isMember(etcd map[string]bool, node string) bool {
	_, ok := etcd[node]
	return ok
}

func nodeBlocker(node, reason, message string) model.Blocker {
	return model.Blocker{Reason: reason, Message: "node " + node + message, Object: "Node/" + node, Waiting: true}
}
