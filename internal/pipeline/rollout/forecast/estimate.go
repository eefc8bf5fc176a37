package forecast

import (
	"sort"
	"time"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
	"github.com/refit-dev/refit/internal/pipeline/rollout/window"
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
	// Samples is the number of nodes it was learned from.
	Samples int
}

// Estimate says when an update will be done if nothing holds it up; ok is false
// while no node of a role that must still move was ever timed, when no window
// is long enough, and when there is nothing left.
func Estimate(in rollout.Input, stages rollout.Stages) (eta ETA, ok bool) {
	work := remaining(in, stages)
	roles := map[string]bool{}
	for _, w := range work {
		roles[w.role] = true
	}
	for role := range roles {
		r := in.Learned.Of(role)
		if r.Samples == 0 {
			return eta, false
		}
		eta.Samples += r.Samples
	}
	var okLow, okHigh bool
	eta.Earliest, okLow = predict(in, work, func(role string) time.Duration { return in.Learned.Of(role).Low })
	eta.Latest, okHigh = predict(in, work, func(role string) time.Duration { return in.Learned.Of(role).High })
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
		if !rollout.Moves(stages.At(i)) {
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
		q.add(in.Now, np, in.At(i))
	}
	return out
}

// add puts a node into its group.
func (q *queue) add(now time.Time, np *model.NodePlan, n *rollout.Node) {
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

// predict walks through the queues; those of one wave run side by side.
func predict(in rollout.Input, work []*queue, took func(role string) time.Duration) (time.Time, bool) {
	t, waveEnd, wave := in.Now, in.Now, -1
	for _, q := range work {
		if q.of.wave != wave {
			t, wave = waveEnd, q.of.wave
		}
		end, ok := q.end(t, took(q.role))
		if !ok {
			return t, false
		}
		if end.After(waveEnd) {
			waveEnd = end
		}
	}
	return waveEnd, true
}

// end of a queue that begins at t, if a node takes so long.
func (q *queue) end(t time.Time, took time.Duration) (time.Time, bool) {
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
		if t, ok = walk(q.line.Windows, t, rounds, took, took+g.soak); !ok {
			return t, false
		}
	}
	return t, true
}

// walk takes so many rounds, each of which begins in a window that has room for
// it, and ends after another length.
func walk(ws []window.Window, t time.Time, rounds int, took, length time.Duration) (time.Time, bool) {
	if len(ws) == 0 {
		return t.Add(time.Duration(rounds) * length), true
	}
	for guard := 0; rounds > 0; guard++ {
		f := window.FitIn(ws, t, took, took)
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

// Steady keeps an estimate that still holds: one that moved by less than a tenth
// of what is left, or a minute, is the old one, so that it is not written anew
// at every look.
func Steady(old, fresh ETA, now time.Time) ETA {
	bound := max(time.Minute, fresh.Latest.Sub(now)/10)
	near := func(a, b time.Time) bool { return a.Sub(b).Abs() <= bound }
	if near(old.Earliest, fresh.Earliest) && near(old.Latest, fresh.Latest) {
		return old
	}
	return fresh
}
