package updateplan

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// Make plans the move of a cluster to its target, and through it to those of in.Then. Each
// hop is planned for the nodes as the hops before it leave them.
func Make(in Input) Outcome {
	hops := append([]Hop{{in.Target, in.Payloads}}, in.Then...)
	out := Outcome{}
	for i, h := range hops {
		in.Target, in.Payloads, in.Then = h.Target, h.Payloads, nil
		in.controlPlaneOnly = in.WorkersAtEnd && i < len(hops)-1
		got := makeHop(in)
		if i == 0 {
			out = got
		} else {
			out.addHop(fmt.Sprintf("hop %d, to %s: ", i+1, h.Target.Version), got)
		}
		in = in.after(got.Plan)
	}
	return out
}

// makeHop plans the move of a cluster to one target.
func makeHop(in Input) Outcome {
	in.Nodes = sortedNodes(in.Nodes)
	out := Outcome{Plan: model.Plan{Version: model.PlanVersion, Target: in.Target, Nodes: []model.NodePlan{}}}
	out.Blockers = append(out.Blockers, checkDowngrade(&in)...)
	p := planner{in: &in, out: &out, pools: poolOrder(in.Pools), deadlines: map[string]int32{}, undo: map[string]int32{}, alike: map[likeness]*model.NodePlan{}}
	for _, pool := range in.Pools {
		p.deadlines[pool.Name], p.undo[pool.Name] = pool.StepDeadlineSeconds, pool.UndoDeadlineSeconds
	}
	if len(in.Pools) == 0 {
		p.undo[DefaultPool] = model.DefaultUndoDeadline
	}
	for _, n := range in.Nodes {
		if in.moves(n) {
			p.addNode(n)
		}
	}
	out.Blockers = append(out.Blockers, unknownNodes(&in)...)
	p.checkSkewAtEnd()
	p.checkServers()
	p.setWaves()
	p.notes()
	p.datastoreNotes()
	p.liveNotes()
	return out
}

// moves reports whether a node may move.
func (in *Input) moves(n Node) bool {
	return (len(in.Only) == 0 || slices.Contains(in.Only, n.Name)) && (n.ControlPlane || !in.controlPlaneOnly)
}

type planner struct {
	in    *Input
	out   *Outcome
	pools map[string]int32
	// deadlines of the steps by pool, seconds.
	deadlines map[string]int32
	// undo are the pools' UndoDeadlineSeconds.
	undo map[string]int32
	// firstTaken is set once a control-plane node got kubeadm's apply.
	firstTaken bool
	// alike are the plans of nodes, without regard to the name; nil is nothing to do.
	alike map[likeness]*model.NodePlan
}

// sortedNodes: control planes first, then by name; the input's order never matters.
func sortedNodes(nodes []Node) []Node {
	out := append([]Node(nil), nodes...)
	sort.Slice(out, func(i, j int) bool {
		if out[i].ControlPlane != out[j].ControlPlane {
			return out[i].ControlPlane
		}
		return out[i].Name < out[j].Name
	})
	return out
}

func poolOrder(pools []Pool) map[string]int32 {
	if len(pools) == 0 {
		return map[string]int32{DefaultPool: 0}
	}
	out := map[string]int32{}
	for _, p := range pools {
		out[p.Name] = p.Order
	}
	return out
}

// poolOf says which pool a node is in; ok is false if it must be left alone.
func (p *planner) poolOf(n Node, differs bool) (pool string, ok bool) {
	switch {
	case len(p.in.Pools) == 0:
		return DefaultPool, true
	case len(n.Pools) > 1:
		names := append([]string(nil), n.Pools...)
		sort.Strings(names)
		p.out.Blockers = append(p.out.Blockers, model.Blocker{
			Reason:  reasonNodeInTwoPools,
			Message: fmt.Sprintf("node %s is in the pools %s", n.Name, strings.Join(names, " and ")),
			Fix:     "change the pools' nodeSelector or the node's labels so that one pool matches",
			Object:  "Node/" + n.Name,
		})
		return "", false
	case len(n.Pools) == 0:
		if differs {
			p.out.Warnings = append(p.out.Warnings, model.Blocker{
				Reason:  reasonNodeInNoPool,
				Message: fmt.Sprintf("node %s is in no UpdatePool and is left at %s", n.Name, n.Kubelet),
				Fix:     "make an UpdatePool whose nodeSelector matches it",
				Object:  "Node/" + n.Name,
			})
		}
		return "", false
	}
	return n.Pools[0], true
}

// addNode puts a node into the plan if it differs from the target. Nodes that are
// alike but for their names share what the first of them got, steps and all.
func (p *planner) addNode(n Node) {
	key, ok := p.likeness(n)
	if np, known := p.alike[key]; ok && known {
		if np != nil {
			share := *np
			share.Node = n.Name
			p.out.Plan.Nodes = append(p.out.Plan.Nodes, share)
		}
		return
	}
	before := len(p.out.Blockers) + len(p.out.Warnings)
	np := p.planNode(n)
	if np != nil {
		p.out.Plan.Nodes = append(p.out.Plan.Nodes, *np)
	}
	if ok && len(p.out.Blockers)+len(p.out.Warnings) == before { // no blocker or warning names it
		p.alike[key] = np
	}
}

// planNode plans a node, nil if it is left as it is.
func (p *planner) planNode(n Node) *model.NodePlan {
	q := Question{Input: p.in, Node: n, Current: currentFields(n), Desired: desiredFields(p.in, n)}
	stays := withoutOS(n, q.Desired)
	ds := Differences(q.Current, q.Desired)
	pool, ok := p.poolOf(n, len(ds) > 0)
	if !ok {
		return nil
	}
	p.out.Blockers = append(p.out.Blockers, unobserved(n)...)
	p.out.Warnings = append(p.out.Warnings, stays...)
	if len(ds) == 0 {
		return nil
	}
	q.First = n.ControlPlane && !p.firstTaken && p.needsApply() && movesConfig(ds)
	p.firstTaken = p.firstTaken || q.First
	c := Cover(slices.Concat(Builtin(), p.in.Updaters, offered(n)), q)
	p.out.Blockers = append(p.out.Blockers, c.Blockers...)
	p.out.Blockers = append(p.out.Blockers, checkSkew(p.in, n)...)
	p.out.Warnings = append(p.out.Warnings, manifestWarnings(q, ds)...)
	np := model.NodePlan{Node: n.Name, Pool: pool, Role: role(n), From: n.Kubelet, To: p.in.Target.Kubernetes, Steps: p.frameSteps(pool, repeatFiles(n, c.Steps))}
	if np.To == "" {
		np.To = n.Kubelet // the bundle leaves it
	}
	armUndo(&np, n.Config, p.undo[pool])
	if i := slices.IndexFunc(np.Steps, func(s model.Step) bool { return s.NotReversible != "" }); i >= 0 {
		np.PointOfNoReturn = np.Steps[i].ID
	}
	return &np
}

// unobserved: the plan would say of every field that it is not there.
func unobserved(n Node) []model.Blocker {
	if !n.Unobserved {
		return nil
	}
	return []model.Blocker{{Reason: reasonConfigWaiting, Object: "Node/" + n.Name, Waiting: true,
		Message: "the agent of node " + n.Name + " has not said yet how the node differs from its configuration",
		Fix:     "wait; if it stays: systemctl status refit-agent on the node, and whether its refit is as new as the controller's"}}
}

// unknownNodes are nodes that an update is limited to and that are not there: it
// must not be called done because there was nothing to move.
func unknownNodes(in *Input) []model.Blocker {
	var out []model.Blocker
	for _, name := range in.Only {
		if !slices.ContainsFunc(in.Nodes, func(n Node) bool { return n.Name == name }) {
			out = append(out, model.Blocker{Reason: reasonNodeNotFound, Object: "Node/" + name,
				Message: "node " + name + ", which the update is limited to, is not in the cluster",
				Fix:     "wait until it joins, or delete this update"})
		}
	}
	return out
}

// movesConfig reports whether kubeadm has something to do on a node.
func movesConfig(ds []model.Change) bool {
	for _, d := range ds {
		if d.Path == PathControlPlane || d.Path == PathNodeConfig {
			return true
		}
	}
	return false
}

// needsApply reports whether kubeadm still has to move the cluster's own
// configuration: then the first control-plane node gets `apply`, the others `node`.
func (p *planner) needsApply() bool {
	return !same(p.in.KubeadmVersion, p.in.Target.Kubernetes) || !p.anyControlPlaneDone()
}

// anyControlPlaneDone: kubeadm's configuration may say the new version after an
// apply that was cut short; only a node that is wholly there proves it went through.
func (p *planner) anyControlPlaneDone() bool {
	for _, n := range p.in.Nodes {
		if n.ControlPlane && same(n.ControlPlaneVersion, p.in.Target.Kubernetes) && same(n.Kubelet, p.in.Target.Kubernetes) {
			return true
		}
	}
	return false
}

// rank of disruptions, mildest first.
var rank = map[model.Disruption]int{model.DisruptionNone: 0, model.DisruptionReload: 1, model.DisruptionRestart: 2, model.DisruptionDrain: 3, model.DisruptionReboot: 4}

// frameSteps puts the controller's steps around the updaters': a node is cordoned if
// one of its components is restarted, and drained if a step needs its pods gone.
// A cluster of one node is not drained: its pods have nowhere to go, and evicting
// them would only stop them.
func (p *planner) frameSteps(pool string, steps []model.Step) []model.Step {
	worst := worstOf(steps)
	var out []model.Step
	cordon := rank[worst] >= rank[model.DisruptionRestart]
	if cordon {
		out = append(out, model.Step{ID: "cordon", Updater: "cordon", Verb: "cordon", By: model.ByController, Disruption: model.DisruptionNone})
	}
	if rank[worst] >= rank[model.DisruptionDrain] && len(p.in.Nodes) > 1 {
		out = append(out, model.Step{ID: "drain", Updater: "drain", Verb: "evict", By: model.ByController, Disruption: model.DisruptionDrain})
	}
	mine, others := splitExternal(steps)
	out = append(out, mine...)
	if rebootsFor(steps) {
		out = append(out, model.Step{ID: "reboot", Updater: "reboot", Verb: "reboot", By: model.ByAgent, Disruption: model.DisruptionReboot, DeadlineSeconds: deadlineReboot})
	}
	out = append(out, model.Step{ID: "settle", Updater: "settle", Verb: "observe", By: model.ByAgent, To: p.in.Target.Kubernetes, Disruption: model.DisruptionNone, DeadlineSeconds: deadlineSettle})
	out = append(out, others...)
	if cordon {
		out = append(out, model.Step{ID: "uncordon", Updater: "uncordon", Verb: "uncordon", By: model.ByController, Disruption: model.DisruptionNone})
	}
	if d := p.deadlines[pool]; d > 0 {
		for i := range out {
			if _, external := ExternalUpdater(out[i]); external || out[i].By == model.ByAgent {
				out[i].DeadlineSeconds = d
			}
		}
	}
	return out
}

func worstOf(steps []model.Step) model.Disruption {
	worst := model.DisruptionNone
	for _, s := range steps {
		if rank[s.Disruption] > rank[worst] {
			worst = s.Disruption
		}
	}
	return worst
}

// splitExternal takes the steps of external updaters apart: the controller calls these when
// the node has run its own.
func splitExternal(steps []model.Step) (own, external []model.Step) {
	for _, s := range steps {
		if _, ok := ExternalUpdater(s); ok {
			external = append(external, s)
		} else {
			own = append(own, s)
		}
	}
	return own, external
}

func role(n Node) string {
	if n.ControlPlane {
		return model.RoleControlPlane
	}
	return model.RoleWorker
}

// setWaves sets the waves: control-plane nodes one by one, then the pools by their
// order; pools with the same order share a wave.
func (p *planner) setWaves() {
	nodes := p.out.Plan.Nodes
	less := func(a, b model.NodePlan) bool {
		if (a.Role == model.RoleControlPlane) != (b.Role == model.RoleControlPlane) {
			return a.Role == model.RoleControlPlane
		}
		if a.Role == model.RoleWorker && p.pools[a.Pool] != p.pools[b.Pool] {
			return p.pools[a.Pool] < p.pools[b.Pool]
		}
		return a.Node < b.Node
	}
	sort.SliceStable(nodes, func(i, j int) bool { return less(nodes[i], nodes[j]) })
	wave := -1
	for i := range nodes {
		fresh := i == 0 || nodes[i].Role == model.RoleControlPlane || nodes[i-1].Role == model.RoleControlPlane ||
			p.pools[nodes[i].Pool] != p.pools[nodes[i-1].Pool]
		if fresh {
			wave++
		}
		nodes[i].Wave = wave
	}
}
