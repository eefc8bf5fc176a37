package rollout

import (
	"maps"
	"slices"
	"time"

	"github.com/refit-dev/refit/internal/model"
)

// line is one pool's queue: who goes first, whose turn it is, who holds a place.
type line struct {
	Pool
	// canary are the workers that go first.
	canary map[string]bool
	// zone whose turn it is among the workers that are not settled.
	zone    string
	hasZone bool
	// used are the nodes that hold a place in the budget: unavailable or watched.
	used map[string]bool
	// usedBy counts them by role.
	usedBy map[string]int
	// watched are the done nodes that have not soaked, with the end of it; zero if
	// they must become Ready first.
	watched map[string]time.Time
	// moving counts the nodes that this update has started.
	moving int
	// workers as they go, by their places in the plan, if it matters who of them is
	// the first.
	workers []int
	// passed: every canary is done and has soaked; until is when the last will have,
	// zero if that is not known yet.
	passed bool
	until  time.Time
	// fits says by role whether a node may start in the pool's windows.
	fits map[string]WindowFit
	// staged of stages nodes have ready what they boot next.
	staged, stages int
	// noPool: the UpdatePool was deleted, so its pace is unknown.
	noPool bool
	// reported has what was reported for the pool, so that it is not repeated for every
	// node.
	reported map[string]bool
}

// isIdle reports whether a stage is one of nodes that have not started, or are done.
func isIdle(stage string) bool {
	return stage == StageWaiting || stage == StageDone || stage == StageGone
}

// queueNodes puts every node of the plan into its pool's line.
func queueNodes(in *Input) map[string]*line {
	lines := map[string]*line{}
	var l *line
	for i := range in.Plan.Nodes {
		np := &in.Plan.Nodes[i]
		if l == nil || l.Name != np.Pool {
			if l = lines[np.Pool]; l == nil {
				l = newLine(in, np.Pool)
				lines[np.Pool] = l
			}
		}
		if in.stages[i] != StageGone {
			l.addNode(in, i)
		}
	}
	return lines
}

// addNode puts the i-th node of the plan into the line. It counts in the pool that it was
// planned in, whichever selects it by now: its budget is not to be spent twice.
func (l *line) addNode(in *Input, i int) {
	n := in.row[i]
	role := in.Plan.Nodes[i].Role
	if (n.Started || n.Unschedulable || !n.Ready) && !l.used[n.Name] {
		l.useBudget(n.Name, role)
		l.Unavailable = append(l.Unavailable, n.Name)
		if role == model.RoleControlPlane {
			l.ControlPlane = append(l.ControlPlane, n.Name)
		}
	}
	if n.Started && !isIdle(in.stages[i]) {
		l.moving++
	}
	if l.ranks() && role == model.RoleWorker {
		l.workers = append(l.workers, i)
	}
}

// makeLines makes the queues of all pools.
func makeLines(in *Input) map[string]*line {
	lines := queueNodes(in)
	for _, l := range lines {
		l.workers = l.orderWorkers(in, l.workers)
		l.pickCanary(in)
	}
	pickUntried(in, lines)
	var last *line
	for i := range in.Plan.Nodes {
		if in.stages[i] != StageDone || in.row[i].FinishedAt.IsZero() {
			continue
		}
		if pool := in.Plan.Nodes[i].Pool; last == nil || last.Name != pool {
			last = lines[pool]
		}
		last.watchSoak(in.Now, in.row[i], in.Plan.Nodes[i].Role)
	}
	for _, l := range lines {
		l.pickZone(in)
		l.evaluateCanary(in)
	}
	return lines
}

// Queue is one pool's share of a rollout.
type Queue struct {
	Pool
	// Workers in the order in which they go, if the pool says in which: by their
	// places in the plan.
	Workers []int
	// Canary are those of them that go first.
	Canary map[string]bool
}

// Queues of all pools, at stages that StagesOf or Next gave.
func Queues(in Input, stages Stages) map[string]Queue {
	out := map[string]Queue{}
	in.align()
	in.stages = stages.row
	for name, l := range makeLines(&in) {
		out[name] = Queue{l.Pool, l.workers, l.canary}
	}
	return out
}

func newLine(in *Input, name string) *line {
	p, known := in.Pools[name]
	p.Name, p.Unavailable, p.ControlPlane = name, slices.Clip(p.Unavailable), slices.Clip(p.ControlPlane) // whose it is keeps it
	l := &line{Pool: p, noPool: !known, canary: map[string]bool{}, used: map[string]bool{}, usedBy: map[string]int{}, watched: map[string]time.Time{}, fits: map[string]WindowFit{}, reported: map[string]bool{}}
	l.Budget = max(1, l.Budget)
	for _, n := range p.Unavailable {
		role := model.RoleWorker
		if slices.Contains(p.ControlPlane, n) {
			role = model.RoleControlPlane
		}
		l.useBudget(n, role)
	}
	return l
}

// useBudget gives a node a place in the budget.
func (l *line) useBudget(name, role string) {
	if !l.used[name] {
		l.used[name] = true
		l.usedBy[role]++
	}
}

// usedBudget counts the places of the budget that are taken for nodes of a role. A worker
// shares the pool's budget with all its nodes. A control-plane node shares it with its own
// kind only, of which one moves at a time.
func (l *line) usedBudget(role string) int {
	if role == model.RoleControlPlane {
		return l.usedBy[role]
	}
	return len(l.used)
}

// orderWorkers are the workers of a pool as they go: by zone if the pool says so,
// else as planned.
func (l *line) orderWorkers(in *Input, workers []int) []int {
	if !l.Zones {
		return workers
	}
	zones := map[string][]int{}
	for _, i := range workers {
		z := in.row[i].Zone
		zones[z] = append(zones[z], i)
	}
	out := workers[:0]
	for _, z := range slices.Sorted(maps.Keys(zones)) {
		out = append(out, zones[z]...)
	}
	return out
}

// pickCanary takes the first workers, without those that a person holds.
func (l *line) pickCanary(in *Input) {
	want := l.Canary.CountOf(len(l.workers))
	for _, i := range l.workers {
		if len(l.canary) >= want {
			return
		}
		if in.row[i].OnHold && in.stages[i] == StageWaiting {
			continue
		}
		l.canary[in.row[i].Name] = true
	}
}

// ranks reports whether it matters which of the pool's workers are the first.
func (l *line) ranks() bool { return l.Zones || l.Canary.Value > 0 }

// watchSoak notes a done node that has not soaked: it keeps its place in the budget.
func (l *line) watchSoak(now time.Time, n *Node, role string) {
	soak := l.Soak
	if len(l.canary) > 0 && l.canary[n.Name] {
		soak = max(soak, l.CanarySoak)
	}
	if soak == 0 && n.Ready {
		return
	}
	end := n.soakFrom(now).Add(soak)
	switch {
	case !n.Ready:
		end = time.Time{}
	case !end.After(now):
		return
	}
	l.watched[n.Name] = end
	l.useBudget(n.Name, role)
}

// soakFrom is when a node started to soak: when it was uncordoned, or became Ready again
// since. A time in the future is a wrong clock.
func (n *Node) soakFrom(now time.Time) time.Time {
	if n.ReadySince.After(n.FinishedAt) && !n.ReadySince.After(now) {
		return n.ReadySince
	}
	return n.FinishedAt
}

// pickZone finds the zone whose turn it is: the one in which a node moves or is
// watched, else the first in which one waits. A zone does not wait for nodes that
// a person holds.
func (l *line) pickZone(in *Input) {
	if !l.Zones {
		return
	}
	for _, i := range l.workers {
		n, stage := in.row[i], in.stages[i]
		_, watched := l.watched[n.Name]
		moves := !isSettled(stage) && stage != StageWaiting
		if watched || moves || stage == StageWaiting && !n.OnHold && !l.hasZone {
			l.zone, l.hasZone = n.Zone, true
		}
		if watched || moves {
			return
		}
	}
}

// evaluateCanary sees whether every canary is done and has soaked.
func (l *line) evaluateCanary(in *Input) {
	l.passed = true
	for name := range l.canary {
		end, watched := l.watched[name]
		switch {
		case in.stages[in.at[name]] != StageDone, watched && end.IsZero():
			l.passed, l.until = false, time.Time{}
			return
		case watched:
			l.passed = false
			if end.After(l.until) {
				l.until = end
			}
		}
	}
}

// firstTime reports true the first time.
func (l *line) firstTime(what string) bool {
	first := !l.reported[what]
	l.reported[what] = true
	return first
}

// soakEnd is when the last watched node has soaked, and who that is.
func soakEnd(in *Input, lines map[string]*line) (until time.Time, who string) {
	for i := range in.Plan.Nodes {
		np := &in.Plan.Nodes[i]
		if end, ok := lines[np.Pool].watched[np.Node]; ok && in.stages[i] == StageDone && end.After(until) {
			until, who = end, np.Node
		}
	}
	return until, who
}
