package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/model"
)

// startNodes lets further nodes begin, as far as wave, health, window, zone, canary
// and budget allow.
func (d *Decision) startNodes(in *Input, lines map[string]*line) {
	waiting := d.nextWave(in)
	switch {
	case len(waiting) == 0:
		return
	case d.Halted:
		d.addBlockers(model.Blocker{Reason: reasonHalted, Message: fmt.Sprintf("halted: %d of %d nodes are done, no further node starts", d.Done, d.Total)})
		return
	case in.Paused:
		d.addBlockers(model.Blocker{Reason: reasonPaused, Message: "the update is paused: no further node starts", Fix: "`refit resume` (set spec.paused to false)"})
		return
	case d.controlPlaneMoves(in, lines), d.addonsSettle(in):
		return
	}
	var last *line
	for _, i := range waiting {
		if pool := in.Plan.Nodes[i].Pool; last == nil || last.Name != pool {
			last = lines[pool]
		}
		d.tryStart(in, i, last)
	}
}

// nextWave gives, by their places in the plan, the nodes that wait in the first wave that is not over. A worker
// that a person holds keeps no later wave from its turn; a control-plane node
// does, since no kubelet may be newer than the API servers.
func (d *Decision) nextWave(in *Input) []int {
	wave := -1
	var waiting, held []int
	for i := range in.Plan.Nodes {
		np, stage := &in.Plan.Nodes[i], in.stages[i]
		if isSettled(stage) {
			continue
		}
		if stage == StageWaiting && np.Role == model.RoleWorker && in.row[i].OnHold {
			held = append(held, i)
			continue
		}
		if wave < 0 || np.Wave < wave {
			wave, waiting = np.Wave, nil
		}
		if np.Wave == wave && stage == StageWaiting {
			waiting = append(waiting, i)
		}
	}
	return append(held, waiting...)
}

// controlPlaneMoves: while one does, or soaks, nothing else starts.
func (d *Decision) controlPlaneMoves(in *Input, lines map[string]*line) bool {
	for i := range in.Plan.Nodes {
		np := &in.Plan.Nodes[i]
		if np.Role != model.RoleControlPlane {
			continue
		}
		if !isSettled(in.stages[i]) && in.stages[i] != StageWaiting {
			return true
		}
		if end, watched := lines[np.Pool].watched[np.Node]; watched {
			d.addBlockers(soakingBlocker(np.Node, end, "no further node starts"))
			return true
		}
	}
	return false
}

// addonsSettle: what a new server has applied runs before the next node starts.
func (d *Decision) addonsSettle(in *Input) bool {
	if in.ControlPlane.Addons == "" || !in.Now.Before(in.ControlPlane.AddonsUntil) {
		return false
	}
	d.addBlockers(model.Blocker{Reason: reasonAddons, Waiting: true, Object: "Namespace/kube-system",
		Message: "further nodes start when the add-ons of the new version have been rolled out, at " + formatTime(in.ControlPlane.AddonsUntil) + " at the latest: " + in.ControlPlane.Addons})
	return true
}

func soakingBlocker(node string, until time.Time, then string) model.Blocker {
	if until.IsZero() {
		return nodeBlocker(node, reasonSoaking, " was updated and is not Ready: "+then)
	}
	return nodeBlocker(node, reasonSoaking, " was updated and is watched until "+formatTime(until)+": until then "+then)
}

func (d *Decision) tryStart(in *Input, i int, l *line) {
	np, n := &in.Plan.Nodes[i], in.row[i]
	if d.nodeWaits(n) || d.poolWaits(np, l) || d.stagingWaits(np, n, l) || d.controlPlaneWaits(in, np) || d.windowWaits(in, np, l) || d.turnWaits(np, n, l) || d.budgetWaits(in, np, l) || d.healthWaits(l) {
		return
	}
	l.useBudget(np.Node, np.Role)
	l.moving++
	d.addAction(Action{Verb: firstVerb(np, n, l.Pool), Node: np.Node, Attempt: nextAttempt(in, *n)})
	d.Current = append(d.Current, np.Node)
	in.stages[i] = StageDraining
}

func (d *Decision) nodeWaits(n *Node) bool {
	switch {
	case n.OnHold:
		v := nodeBlocker(n.Name, reasonNodeOnHold, " is on hold and does not start")
		if n.HoldReason != "" {
			v.Message += ": " + n.HoldReason
		}
		v.Fix, v.Waiting = "`refit release "+n.Name+"`", false
		d.addBlockers(v)
	case !n.Ready: // kubelets need a moment after the API server was unavailable
		v := nodeBlocker(n.Name, reasonNodeNotReady, " is not Ready and does not start")
		v.Fix = "repair the node, remove it from the cluster, or let the others go on with `refit hold " + n.Name + "`"
		d.addBlockers(v)
	default:
		return false
	}
	return true
}

func (d *Decision) poolWaits(np *model.NodePlan, l *line) bool {
	switch {
	case l.noPool:
		if l.firstTime(reasonNodeInNoPool) {
			d.addBlockers(model.Blocker{Reason: reasonNodeInNoPool, Message: "there is no pool " + np.Pool + " any more, in which nodes of the plan are: none of them starts", Object: "UpdatePool/" + np.Pool,
				Fix: "make the UpdatePool again, or delete this ClusterUpdate and make another, which is planned anew"})
		}
	case l.Paused:
		d.addBlockers(model.Blocker{Reason: reasonPaused, Message: "pool " + np.Pool + " is paused: node " + np.Node + " does not start", Fix: "set spec.paused of the UpdatePool to false", Object: "UpdatePool/" + np.Pool})
	case l.Invalid != "":
		if l.firstTime(reasonWindowInvalid) {
			d.addBlockers(model.Blocker{Reason: reasonWindowInvalid, Message: "no node of pool " + np.Pool + " starts: " + l.Invalid, Fix: "correct spec.windows of the UpdatePool", Object: "UpdatePool/" + np.Pool})
		}
	default:
		return false
	}
	return true
}

// controlPlaneWaits: a control-plane node starts only while all others are well,
// so that etcd keeps its quorum if it has three members or more.
func (d *Decision) controlPlaneWaits(in *Input, np *model.NodePlan) bool {
	if np.Role != model.RoleControlPlane {
		return false
	}
	var others []string
	for _, name := range slices.Sorted(maps.Keys(in.ControlPlane.Unhealthy)) {
		if name != np.Node {
			others = append(others, name+" "+in.ControlPlane.Unhealthy[name])
		}
	}
	if len(others) > 0 {
		v := nodeBlocker(np.Node, reasonUnhealthy, "")
		v.Message = "control-plane node " + np.Node + " does not start while " + strings.Join(others, ", ")
		v.Fix = "repair the control plane first"
		d.addBlockers(v)
		return true
	}
	v := etcdQuorum(in.ControlPlane.Etcd, np.Node)
	if v != nil {
		d.addBlockers(*v)
	}
	return v != nil
}

// etcdQuorum says why a node's etcd member may not go away now, nil if it may.
func etcdQuorum(etcd map[string]bool, node string) *model.Blocker {
	if _, member := etcd[node]; !member {
		return nil
	}
	var away []string
	for _, name := range slices.Sorted(maps.Keys(etcd)) {
		if name != node && !etcd[name] {
			away = append(away, name)
		}
	}
	if len(away) == 0 {
		return nil
	}
	v := nodeBlocker(node, reasonEtcdQuorum, "")
	v.Message = fmt.Sprintf("control-plane node %s does not start: the etcd members on %s are not Ready; all %d are needed while one moves, the quorum is %d",
		node, strings.Join(away, ", "), len(etcd), len(etcd)/2+1)
	v.Fix = "repair the etcd member first"
	return &v
}

func (in *Input) wallClock() time.Time {
	if in.Wall.IsZero() {
		return in.Now
	}
	return in.Wall
}

// windowWaits: nothing starts outside a window, or if it would not be finished in it.
func (d *Decision) windowWaits(in *Input, np *model.NodePlan, l *line) bool {
	if len(l.Windows) == 0 {
		return false
	}
	f, known := l.fits[np.Role]
	if !known {
		took := in.Learned.ForRole(np.Role)
		more := exclusion(np, l.Pool)
		f = FitWindows(l.Windows, in.wallClock(), took.Low+more, took.High+more)
		l.fits[np.Role] = f
	}
	if f.Now {
		return false
	}
	if l.firstTime(reasonOutsideWindow + np.Role) {
		d.addBlockers(outsideWindow(f, in.Learned.ForRole(np.Role), *np))
	}
	return true
}

// outsideWindow says why no node of a role starts now, and when one may.
func outsideWindow(f WindowFit, took Range, np model.NodePlan) model.Blocker {
	v := model.Blocker{Reason: reasonOutsideWindow, Object: "UpdatePool/" + np.Pool, Waiting: true, Message: "pool " + np.Pool + " is outside its windows"}
	if f.Open {
		v.Message = fmt.Sprintf("pool %s: the window closes at %s, and a %s node takes up to %s here (learned from %d)", np.Pool, FormatWindowTime(f.Closes), np.Role, FormatDuration(f.Need), took.Samples)
	}
	if f.Next.IsZero() {
		v.Message = fmt.Sprintf("pool %s: no window is as long as a %s node takes here, %s (learned from %d)", np.Pool, np.Role, FormatDuration(f.Need), took.Samples)
		v.Fix, v.Waiting = "make a window of the UpdatePool longer", false
		return v
	}
	v.Message += "; the next opens " + FormatWindowTime(f.Next)
	return v
}

// turnWaits: another zone's turn, or the canaries'. Waiting for one's turn is no
// news; that the canaries are watched is.
func (d *Decision) turnWaits(np *model.NodePlan, n *Node, l *line) bool {
	if np.Role != model.RoleWorker {
		return false
	}
	if !l.passed && !l.canary[np.Node] {
		d.reportCanary(np.Pool, l.until, l)
		return true
	}
	if !l.hasZone || n.Zone == l.zone {
		return false
	}
	if l.moving == 0 && len(l.watched) > 0 && l.firstTime("zone") {
		d.addBlockers(model.Blocker{Reason: reasonSoaking, Object: "UpdatePool/" + np.Pool, Waiting: true,
			Message: fmt.Sprintf("pool %s: the next zone waits, %s", np.Pool, l.lastFree())})
	}
	return true
}

func (d *Decision) reportCanary(pool string, until time.Time, l *line) {
	if !l.firstTime("canary") {
		return
	}
	names := strings.Join(slices.Sorted(maps.Keys(l.canary)), ", ")
	v := model.Blocker{Reason: reasonSoaking, Object: "UpdatePool/" + pool, Waiting: true}
	switch {
	case !until.IsZero():
		v.Message = fmt.Sprintf("pool %s: the canary %s is watched until %s", pool, names, formatTime(until))
	case l.unready(inSet(l.canary)):
		v.Message = fmt.Sprintf("pool %s: the canary %s was updated and is not Ready", pool, names)
	default:
		return // it is being updated, which its own blocker reports
	}
	d.addBlockers(v)
}

// inSet is the filter of a set.
func inSet(set map[string]bool) func(string) bool { return func(s string) bool { return set[s] } }

// unready reports whether one of some watched nodes is not Ready.
func (l *line) unready(of func(string) bool) bool {
	for name, end := range l.watched {
		if of(name) && end.IsZero() {
			return true
		}
	}
	return false
}

// budgetWaits: as many nodes as the pool bears are unavailable or watched.
func (d *Decision) budgetWaits(in *Input, np *model.NodePlan, l *line) bool {
	if l.used[np.Node] || l.usedBudget(np.Role) < l.Budget {
		return false
	}
	if l.firstTime(reasonBudgetSpent + np.Role) {
		if v := l.overBudget(in, np.Role); v != nil {
			d.addBlockers(*v)
		}
	}
	return true
}

// overBudget says so only when the budget is spent on nodes that this update did
// not take, that failed, or that are watched: waiting for one's turn is no news. If
// nodes that only a person makes available take every place, time alone helps nothing.
func (l *line) overBudget(in *Input, role string) *model.Blocker {
	var foreign []string
	moves, forPerson := false, 0
	for _, name := range l.Unavailable {
		if role == model.RoleControlPlane && !slices.Contains(l.ControlPlane, name) {
			continue
		}
		why, person := l.foreign(in, name)
		switch {
		case why == "":
			moves = true
			continue
		case person:
			forPerson++
		}
		foreign = append(foreign, name+" "+why)
	}
	v := model.Blocker{Object: "UpdatePool/" + l.Name, Waiting: forPerson < l.Budget, Message: fmt.Sprintf("pool %s allows %d unavailable nodes, and ", l.Name, l.Budget)}
	switch {
	case len(foreign) > 0:
		v.Reason, v.Fix = reasonBudgetSpent, "repair or uncordon the node, or raise the pool's maxUnavailable"
		v.Message += strings.Join(foreign, ", ")
	case !moves && len(l.watched) > 0:
		v.Reason, v.Waiting = reasonSoaking, true
		v.Message += l.firstFree()
	default:
		return nil
	}
	return &v
}

// foreign says why a node is unavailable that this update does not move, and
// whether only a person makes it available; "" of one that the update moves.
func (l *line) foreign(in *Input, name string) (why string, person bool) {
	i, planned := in.at[name]
	if !planned {
		if slices.Contains(l.Cordoned, name) {
			return "is cordoned, but not by refit", true
		}
		return "is cordoned or not Ready", false
	}
	switch n := in.row[i]; {
	case n.Started && isFailure(in.stages[i]):
		return "has failed", in.stages[i] == StageFailed
	case n.Started:
		return "", false
	case n.Ready && n.Unschedulable:
		return "is cordoned, but not by refit", true
	}
	return "is not Ready", false
}

// ExhaustedBudgets says, before an update starts, which pools will never let a node of the plan
// start, because nodes that only a person makes available take their whole budget.
func ExhaustedBudgets(in Input) []model.Blocker {
	in.align()
	in.stages = make([]string, len(in.Plan.Nodes))
	for i := range in.stages {
		in.stages[i], _ = stageOfIdleNode(in.row[i])
	}
	lines := queueNodes(&in)
	var out []model.Blocker
	for i := range in.Plan.Nodes {
		np := &in.Plan.Nodes[i]
		l := lines[np.Pool]
		if in.stages[i] != StageWaiting || l.used[np.Node] || l.usedBudget(np.Role) < l.Budget || !l.firstTime(np.Role) {
			continue
		}
		if v := l.overBudget(&in, np.Role); v != nil && !v.Waiting {
			out = append(out, *v)
		}
	}
	return out
}

// firstFree says which watched node's place is free first.
func (l *line) firstFree() string {
	who := ""
	for _, name := range slices.Sorted(maps.Keys(l.watched)) {
		if end := l.watched[name]; !end.IsZero() && (who == "" || end.Before(l.watched[who])) {
			who = name
		}
	}
	if who == "" {
		return firstFive(slices.Sorted(maps.Keys(l.watched))) + " was updated and is not Ready"
	}
	return who + " was updated and is watched until " + formatTime(l.watched[who])
}

// lastFree says which watched node has soaked last.
func (l *line) lastFree() string {
	who := ""
	for _, name := range slices.Sorted(maps.Keys(l.watched)) {
		end := l.watched[name]
		if end.IsZero() {
			return name + " was updated and is not Ready"
		}
		if who == "" || end.After(l.watched[who]) {
			who = name
		}
	}
	return who + " was updated and is watched until " + formatTime(l.watched[who])
}

// firstFive names the first of many.
func firstFive(names []string) string { return text.FirstOf(names, 5, ", ") }

// formatTime is a time for people that does not change from one look to the next.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }
