package forecast

import (
	"sort"
	"time"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
)

// Learn makes a range of what single nodes took: the shortest and the longest,
// without the tenth at either end once there are ten or more.
func Learn(took []time.Duration) rollout.Range {
	if len(took) == 0 {
		return rollout.Range{}
	}
	s := append([]time.Duration(nil), took...)
	sort.Slice(s, func(i, j int) bool { return s[i] < s[j] })
	cut := len(s) / 10
	return rollout.Range{Low: s[cut], High: s[len(s)-1-cut], Samples: len(s)}
}

// ETA is when an update is expected to be done.
type ETA struct {
	Earliest, Latest time.Time
	// Samples is the number of nodes it was learned from. It is 0 while nodes of a role that
	// must still move were never timed in this cluster: their times are those of the lab.
	Samples int
}

// labTimes are for the first update of a cluster. Low is what nodes took in refit's lab
// (docs/evidence.md, the demo). High leaves room for slower machines, for drains of usual
// workloads and for kubeadm's own way of a control plane.
var labTimes = rollout.Learned{
	ControlPlane: rollout.Range{Low: 30 * time.Second, High: 5 * time.Minute},
	Worker:       rollout.Range{Low: 20 * time.Second, High: 4 * time.Minute},
}

// Estimate predicts when an update will be done if nothing delays it. ok is false if no
// window is long enough, and if no node is left.
func Estimate(in rollout.Input, stages rollout.Stages) (eta ETA, ok bool) {
	work := remaining(in, stages)
	times, samples := map[string]rollout.Range{}, 0
	known := true
	for _, w := range work {
		if _, twice := times[w.role]; twice {
			continue
		}
		r := in.Learned.ForRole(w.role)
		samples += r.Samples
		if r.Samples == 0 {
			r, known = labTimes.ForRole(w.role), false
		}
		times[w.role] = r
	}
	if known {
		eta.Samples = samples
	}
	var okLow, okHigh bool
	eta.Earliest, okLow = predictEnd(in, work, func(role string) time.Duration { return times[role].Low })
	eta.Latest, okHigh = predictEnd(in, work, func(role string) time.Duration { return times[role].High })
	return eta, okLow && okHigh && len(work) > 0
}

// queue is what one pool still has to do in one wave.
type queue struct {
	of   key
	role string
	line rollout.Queue
	// groups go one after another: the canaries, the rest, each zone; at has their
	// places by name.
	groups []group
	at     map[string]int
	// elapsed is how long the nodes that move have been at it, at the least.
	elapsed time.Duration
}

type key struct {
	wave int
	pool string
}

type group struct {
	nodes int
	soak  time.Duration
}

// remaining lists the queues in the order of the waves.
func remaining(in rollout.Input, stages rollout.Stages) []*queue {
	queues := rollout.Queues(in, stages)
	byKey := map[key]*queue{}
	var out []*queue
	var q *queue // of the node before: the plan goes pool by pool
	for i := range in.Plan.Nodes {
		np := &in.Plan.Nodes[i]
		if !rollout.Moves(stages.ByIndex(i)) {
			continue
		}
		if k := (key{np.Wave, np.Pool}); q == nil || q.of != k {
			if q = byKey[k]; q == nil {
				l := queues[np.Pool]
				q = &queue{of: k, role: np.Role, line: l, at: map[string]int{}}
				byKey[k] = q
				out = append(out, q)
			}
		}
		q.addNode(in.Now, np, in.NodeAt(i))
	}
	return out
}

// addNode puts a node into its group.
func (q *queue) addNode(now time.Time, np *model.NodePlan, n *rollout.Node) {
	l := &q.line
	name, soak := "rest", l.Soak
	switch {
	case l.Canary[np.Node]:
		name, soak = "canary", max(l.Soak, l.CanarySoak)
	case l.Zones && np.Role == model.RoleWorker:
		name = "zone " + n.Zone
	}
	at, known := q.at[name]
	if !known {
		at = len(q.groups)
		q.at[name] = at
		q.groups = append(q.groups, group{soak: soak})
	}
	q.groups[at].nodes++
	if n.Started {
		if e := now.Sub(n.StartedAt); q.elapsed == 0 || e < q.elapsed {
			q.elapsed = e
		}
	}
}

// predictEnd walks through the queues; those of one wave run side by side.
func predictEnd(in rollout.Input, work []*queue, took func(role string) time.Duration) (time.Time, bool) {
	t, waveEnd, wave := in.Now, in.Now, -1
	for _, q := range work {
		if q.of.wave != wave {
			t, wave = waveEnd, q.of.wave
		}
		end, ok := q.endsAt(t, took(q.role))
		if !ok {
			return t, false
		}
		if end.After(waveEnd) {
			waveEnd = end
		}
	}
	return waveEnd, true
}

// endsAt of a queue that begins at t, if a node takes so long.
func (q *queue) endsAt(t time.Time, took time.Duration) (time.Time, bool) {
	elapsed := min(q.elapsed, took)
	for _, g := range q.groups {
		budget := max(1, q.line.Budget)
		if q.role == model.RoleControlPlane {
			budget = 1
		}
		rounds := (g.nodes + budget - 1) / budget
		if elapsed > 0 { // the first round is on its way
			t, rounds, elapsed = t.Add(took-elapsed+g.soak), rounds-1, 0
		}
		var ok bool
		if t, ok = addRounds(q.line.Windows, t, rounds, took, took+g.soak); !ok {
			return t, false
		}
	}
	return t, true
}

// addRounds takes so many rounds, each of which begins in a window that has room for
// it, and ends after another length.
func addRounds(ws []rollout.Window, t time.Time, rounds int, took, length time.Duration) (time.Time, bool) {
	if len(ws) == 0 {
		return t.Add(time.Duration(rounds) * length), true
	}
	for guard := 0; rounds > 0; guard++ {
		f := rollout.FitWindows(ws, t, took, took)
		switch {
		case guard > 1000:
			return t, false
		case f.Now:
			room := f.Closes.Sub(t) - took
			n := min(rounds, int(room/max(length, time.Second))+1)
			t, rounds = t.Add(time.Duration(n)*length), rounds-n
		case f.Next.IsZero():
			return t, false
		default:
			t = f.Next
		}
	}
	return t, true
}

// KeepSteady returns the old estimate if the new one differs by less than a tenth of the
// remaining time, or a minute, so that the status is not written at every reconcile.
func KeepSteady(old, fresh ETA, now time.Time) ETA {
	bound := max(time.Minute, fresh.Latest.Sub(now)/10)
	near := func(a, b time.Time) bool { return a.Sub(b).Abs() <= bound }
	if (old.Samples == 0) == (fresh.Samples == 0) && near(old.Earliest, fresh.Earliest) && near(old.Latest, fresh.Latest) {
		return old
	}
	return fresh
}
