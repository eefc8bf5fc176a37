package rollout

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/model"
)

// plannedNode is a node of a plan and what is seen of it.
type plannedNode struct {
	pool, name, role string
	change           func(*Node)
}

func worker(pool, name string, change func(*Node)) plannedNode {
	return plannedNode{pool, name, model.RoleWorker, change}
}

func inputOf(pools map[string]Pool, nodes ...plannedNode) Input {
	in := Input{Now: start, Pools: pools, Nodes: map[string]Node{}}
	for _, p := range nodes {
		n := Node{Name: p.name, Ready: true}
		if p.change != nil {
			p.change(&n)
		}
		in.Nodes[p.name] = n
		in.Plan.Nodes = append(in.Plan.Nodes, nodePlan(p.name, p.role, p.pool, 0))
	}
	return in
}

// The queue of each pool: workers by zone, canaries from the front, and places in the
// budget, each pool's own even where the plan mixes them.
func TestQueues(t *testing.T) {
	t.Parallel()
	zone := func(z string) func(*Node) { return func(n *Node) { n.Zone = z } }
	in := inputOf(map[string]Pool{
		"edge": {Budget: 2, Zones: true, Canary: Amount{Value: 2}, Unavailable: []string{"stranger"}},
		"core": {Canary: Amount{Value: 50, Percent: true}, Soak: time.Hour},
		"free": {Budget: 3},
	},
		worker("edge", "e0", zone("b")), worker("core", "c0", func(n *Node) { n.OnHold = true }), worker("edge", "e1", zone("a")), worker("core", "c1", nil),
		worker("edge", "e2", func(n *Node) { n.Zone, n.Unschedulable = "a", true }), worker("core", "c2", func(n *Node) { n.AtTarget, n.FinishedAt = true, start.Add(-time.Minute) }),
		worker("edge", "e3", func(n *Node) { n.Gone = true }), worker("core", "c3", func(n *Node) { n.Ready = false }), worker("free", "f0", nil),
		plannedNode{"edge", "cp0", model.RoleControlPlane, func(n *Node) { n.Ready = false }})
	queues := Queues(in, StagesOf(in))
	if len(queues) != 3 {
		t.Fatalf("%d queues", len(queues))
	}
	names := func(pool string) (workers, canary []string) {
		for _, i := range queues[pool].Workers {
			workers = append(workers, in.Plan.Nodes[i].Node)
		}
		for name := range queues[pool].Canary {
			canary = append(canary, name)
		}
		slices.Sort(canary)
		return workers, canary
	}
	for pool, want := range map[string]string{
		"edge": "workers e1 e2 e0, canary e1 e2, unavailable stranger e2 cp0, control plane cp0, budget 2",
		"core": "workers c0 c1 c2 c3, canary c1 c2, unavailable c3, control plane , budget 1",
		"free": "workers , canary , unavailable , control plane , budget 3",
	} {
		q := queues[pool]
		workers, canary := names(pool)
		got := "workers " + strings.Join(workers, " ") + ", canary " + strings.Join(canary, " ") + ", unavailable " + strings.Join(q.Unavailable, " ") +
			", control plane " + strings.Join(q.ControlPlane, " ") + ", budget " + string(rune('0'+q.Budget))
		if got != want || q.Name != pool {
			t.Errorf("pool %s: %s, want %s", q.Name, got, want)
		}
	}
	if got := in.Pools["edge"].Unavailable; !slices.Equal(got, []string{"stranger"}) {
		t.Errorf("the caller's list became %v", got)
	}
}

// Each watched node counts in its own pool, for any order of the nodes in the plan.
func TestWatchedNodesOfTwoPools(t *testing.T) {
	t.Parallel()
	done := func(ago time.Duration) func(*Node) {
		return func(n *Node) { n.AtTarget, n.FinishedAt = true, start.Add(-ago) }
	}
	in := inputOf(map[string]Pool{"edge": {Budget: 1, Soak: time.Hour}, "core": {Budget: 1, Soak: 2 * time.Hour}},
		worker("edge", "e0", done(time.Hour)), worker("core", "c0", done(90*time.Minute)), worker("edge", "e1", nil), worker("core", "c1", nil))
	d := Next(in)
	if !slices.Equal(verbs(d), []string{"cordon e1"}) || len(d.Blockers) != 1 || d.Blockers[0].Object != "UpdatePool/core" || !d.Blockers[0].Waiting ||
		d.Blockers[0].Message != "pool core allows 1 unavailable nodes, and c0 was updated and is watched until 2026-11-20 11:30:00Z" {
		t.Errorf("%v %+v", verbs(d), d.Blockers)
	}
}

// Who takes a place in the budget, and what is reported of it.
func TestBudgetNamesWhoTakesIt(t *testing.T) {
	t.Parallel()
	const fix = "repair or uncordon the node, or raise the pool's maxUnavailable"
	for name, c := range map[string]struct {
		pool    Pool
		nodes   []plannedNode
		starts  []string
		waiting bool
		message string
		blocked bool
		spent   bool
	}{
		"nobody": {Pool{Budget: 1}, []plannedNode{worker("p", "a", nil), worker("p", "b", nil)}, []string{"cordon a"}, false, "", false, false},
		"one is cordoned": {Pool{Budget: 1}, []plannedNode{worker("p", "a", func(n *Node) { n.Unschedulable, n.AtTarget = true, true }), worker("p", "b", nil)}, nil, false,
			"pool p allows 1 unavailable nodes, and a is cordoned, but not by refit", true, true},
		"one is not Ready": {Pool{Budget: 1}, []plannedNode{worker("p", "a", func(n *Node) { n.Ready, n.AtTarget = false, true }), worker("p", "b", nil)}, nil, true,
			"pool p allows 1 unavailable nodes, and a is not Ready", false, false},
		"one of two places": {Pool{Budget: 2}, []plannedNode{worker("p", "a", func(n *Node) { n.Unschedulable, n.AtTarget = true, true }), worker("p", "b", nil)}, []string{"cordon b"}, false, "", false, false},
		"a cordoned one and one that is not Ready": {Pool{Budget: 2}, []plannedNode{worker("p", "a", func(n *Node) { n.Unschedulable, n.AtTarget = true, true }), worker("p", "b", func(n *Node) { n.Ready, n.AtTarget = false, true }), worker("p", "c", nil)}, nil, true,
			"pool p allows 2 unavailable nodes, and a is cordoned, but not by refit, b is not Ready", false, false},
		"a cordoned one and one that moves": {Pool{Budget: 2}, []plannedNode{worker("p", "a", func(n *Node) { n.Unschedulable, n.AtTarget = true, true }), worker("p", "b", func(n *Node) { n.Started, n.Unschedulable = true, true }), worker("p", "c", nil)}, []string{"drain b"}, true,
			"pool p allows 2 unavailable nodes, and a is cordoned, but not by refit", false, false},
		"one that is not in the plan": {Pool{Budget: 1, Unavailable: []string{"x"}}, []plannedNode{worker("p", "b", nil)}, nil, true, "pool p allows 1 unavailable nodes, and x is cordoned or not Ready", false, false},
		"one that is not in the plan, cordoned": {Pool{Budget: 1, Unavailable: []string{"x"}, Cordoned: []string{"x"}}, []plannedNode{worker("p", "b", nil)}, nil, false,
			"pool p allows 1 unavailable nodes, and x is cordoned, but not by refit", true, true},
		"one that left":  {Pool{Budget: 1}, []plannedNode{worker("p", "a", func(n *Node) { n.Gone, n.Ready, n.Unschedulable = true, false, true }), worker("p", "b", nil)}, []string{"cordon b"}, false, "", false, false},
		"one that moves": {Pool{Budget: 1}, []plannedNode{worker("p", "a", func(n *Node) { n.Started, n.Unschedulable = true, true }), worker("p", "b", nil)}, []string{"drain a"}, false, "", false, false},
		"one that has failed": {Pool{Budget: 1, MaxFailures: 2}, []plannedNode{worker("p", "a", func(n *Node) {
			n.Started, n.Unschedulable, n.Attempt, n.Run = true, true, Attempt{1, 0, 1}, &Run{Attempt: Attempt{1, 0, 1}, State: RunFailed}
		}), worker("p", "b", nil)}, nil, false, "pool p allows 1 unavailable nodes, and a has failed", false, false},
		"a worker, for the control plane": {Pool{Budget: 1}, []plannedNode{worker("p", "a", func(n *Node) { n.Unschedulable, n.AtTarget = true, true }), {"p", "b", model.RoleControlPlane, nil}}, []string{"cordon b"}, false, "", false, false},
		"a control-plane node, for a worker": {Pool{Budget: 1}, []plannedNode{{"p", "a", model.RoleControlPlane, func(n *Node) { n.Unschedulable, n.AtTarget = true, true }}, worker("p", "b", nil)}, nil, false,
			"pool p allows 1 unavailable nodes, and a is cordoned, but not by refit", true, true},
	} {
		in := inputOf(map[string]Pool{"p": c.pool}, c.nodes...)
		want := model.Blocker{Reason: reasonBudgetSpent, Object: "UpdatePool/p", Message: c.message, Fix: fix, Waiting: c.waiting}
		d := Next(in)
		if !slices.Equal(verbs(d), append([]string{}, c.starts...)) || d.Blocked != c.blocked {
			t.Errorf("%s: %v, blocked %t", name, verbs(d), d.Blocked)
		}
		found := slices.Contains(d.Blockers, want)
		if said := slices.Contains(reasonsOf(d), reasonBudgetSpent); said != (c.message != "") || said && !found {
			t.Errorf("%s: %+v, want %+v", name, d.Blockers, want)
		}
		before := ExhaustedBudgets(in)
		if len(before) > 1 || (len(before) == 1) != c.spent || c.spent && c.message != "" && before[0] != want {
			t.Errorf("%s: before the start %+v", name, before)
		}
	}
}

// A zone's turn: the one that moves or is watched, else the first in which a node waits
// that is not on hold.
func TestTurnOfAZone(t *testing.T) {
	t.Parallel()
	at := func(zone string, change func(*Node)) func(*Node) {
		return func(n *Node) {
			if n.Zone = zone; change != nil {
				change(n)
			}
		}
	}
	held := func(n *Node) { n.OnHold = true }
	done := func(n *Node) { n.AtTarget, n.FinishedAt = true, start.Add(-time.Minute) }
	moves := func(n *Node) { n.Started, n.Unschedulable = true, true }
	for name, c := range map[string]struct {
		soak   time.Duration
		nodes  []plannedNode
		starts []string
		says   string
	}{
		"the first zone waits":   {0, []plannedNode{worker("p", "a", at("1", nil)), worker("p", "b", at("2", nil))}, []string{"cordon a"}, ""},
		"the first is on hold":   {0, []plannedNode{worker("p", "a", at("1", held)), worker("p", "b", at("2", nil))}, []string{"cordon b"}, ""},
		"the first is done":      {0, []plannedNode{worker("p", "a", at("1", done)), worker("p", "b", at("2", nil))}, []string{"cordon b"}, ""},
		"the first is watched":   {time.Hour, []plannedNode{worker("p", "a", at("1", done)), worker("p", "b", at("2", nil))}, nil, "pool p: the next zone waits, a was updated and is watched until 2026-11-20 11:59:00Z"},
		"two of it are watched":  {time.Hour, []plannedNode{worker("p", "a", at("1", done)), worker("p", "a2", at("1", func(n *Node) { n.AtTarget, n.FinishedAt = true, start })), worker("p", "b", at("2", nil))}, nil, "pool p: the next zone waits, a2 was updated and is watched until 2026-11-20 12:00:00Z"},
		"one of it is not Ready": {time.Hour, []plannedNode{worker("p", "a", at("1", done)), worker("p", "a2", at("1", func(n *Node) { done(n); n.Ready = false })), worker("p", "b", at("2", nil))}, nil, "pool p: the next zone waits, a2 was updated and is not Ready"},
		"the second moves":       {0, []plannedNode{worker("p", "a", at("1", nil)), worker("p", "b", at("2", moves)), worker("p", "c", at("2", nil))}, []string{"drain b", "cordon c"}, ""},
		"watched, and one waits": {time.Hour, []plannedNode{worker("p", "a", at("1", done)), worker("p", "a2", at("1", nil)), worker("p", "b", at("2", nil))}, []string{"cordon a2"}, ""},
		"the one with no zone":   {0, []plannedNode{worker("p", "a", at("1", nil)), worker("p", "b", nil)}, []string{"cordon b"}, ""},
		"all of a zone at once":  {0, []plannedNode{worker("p", "a", at("1", nil)), worker("p", "b", at("2", nil)), worker("p", "c", at("1", nil))}, []string{"cordon a", "cordon c"}, ""},
	} {
		d := Next(inputOf(map[string]Pool{"p": {Budget: 5, Zones: true, Soak: c.soak}}, c.nodes...))
		if !slices.Equal(verbs(d), append([]string{}, c.starts...)) {
			t.Errorf("%s: %v, want %v", name, verbs(d), c.starts)
		}
		said := ""
		for _, v := range d.Blockers {
			if v.Reason == reasonSoaking {
				said += v.Message
			}
		}
		if said != c.says || d.Blocked {
			t.Errorf("%s: %q, blocked %t", name, said, d.Blocked)
		}
	}
}

// While a control-plane node is watched nothing starts, and why is reported.
func TestWatchedControlPlane(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Node)
		says   string
	}{
		"it soaks":        {func(n *Node) { n.AtTarget, n.FinishedAt = true, start.Add(-time.Minute) }, "node c was updated and is watched until 2026-11-20 11:59:00Z: until then no further node starts"},
		"it is not Ready": {func(n *Node) { n.AtTarget, n.FinishedAt, n.Ready = true, start.Add(-2*time.Hour), false }, "node c was updated and is not Ready: no further node starts"},
		"it has soaked":   {func(n *Node) { n.AtTarget, n.FinishedAt = true, start.Add(-time.Hour) }, ""},
	} {
		d := Next(inputOf(map[string]Pool{"p": {Budget: 5, Soak: time.Hour}}, plannedNode{"p", "c", model.RoleControlPlane, c.change}, worker("p", "w", nil)))
		switch {
		case c.says == "":
			if !slices.Equal(verbs(d), []string{"cordon w"}) || len(d.Blockers) > 0 {
				t.Errorf("%s: %v %+v", name, verbs(d), d.Blockers)
			}
		case len(d.Actions) > 0 || len(d.Blockers) != 1 || d.Blockers[0] != (model.Blocker{Reason: reasonSoaking, Object: "Node/c", Waiting: true, Message: c.says}):
			t.Errorf("%s: %v %+v", name, verbs(d), d.Blockers)
		}
	}
}

// An update is blocked when nothing moves and only a person can change that.
func TestBlocked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  func(*Input)
		nodes   []plannedNode
		blocked bool
		reasons []string
	}{
		"held":                    {nil, []plannedNode{worker("p", "a", func(n *Node) { n.OnHold = true })}, true, []string{reasonNodeOnHold}},
		"held, another goes on":   {nil, []plannedNode{worker("p", "a", func(n *Node) { n.OnHold = true }), worker("p", "b", nil)}, false, []string{reasonNodeOnHold}},
		"held, another runs":      {nil, []plannedNode{worker("p", "a", func(n *Node) { n.OnHold = true }), worker("p", "b", func(n *Node) { n.Started, n.Run = true, &Run{State: RunRunning} })}, false, []string{reasonUpdating, reasonNodeOnHold}},
		"held and paused":         {func(in *Input) { in.Paused = true }, []plannedNode{worker("p", "a", func(n *Node) { n.OnHold = true })}, false, []string{reasonPaused}},
		"not Ready":               {nil, []plannedNode{worker("p", "a", func(n *Node) { n.Ready = false })}, false, []string{reasonNodeNotReady}},
		"held, another not Ready": {nil, []plannedNode{worker("p", "a", func(n *Node) { n.OnHold = true }), worker("p", "b", func(n *Node) { n.Ready = false })}, false, []string{reasonNodeOnHold, reasonNodeNotReady}},
		"its pool is paused":      {func(in *Input) { in.Pools["p"] = Pool{Paused: true} }, []plannedNode{worker("p", "a", nil)}, false, []string{reasonPaused}},
		"its pool is gone":        {func(in *Input) { delete(in.Pools, "p") }, []plannedNode{worker("p", "a", nil), worker("p", "b", nil)}, true, []string{reasonNodeInNoPool}},
		"its windows are bad":     {func(in *Input) { in.Pools["p"] = Pool{Invalid: "no such zone"} }, []plannedNode{worker("p", "a", nil), worker("p", "b", nil)}, true, []string{reasonWindowInvalid}},
		"halted":                  {nil, []plannedNode{worker("p", "a", func(n *Node) { n.Run = &Run{State: RunFailed, Attempt: Attempt{1, 0, 1}} }), worker("p", "b", nil)}, false, []string{reasonStepFailed, reasonHalted}},
	} {
		in := inputOf(map[string]Pool{"p": {Budget: 5}}, c.nodes...)
		if c.change != nil {
			c.change(&in)
		}
		if d := Next(in); d.Blocked != c.blocked || !slices.Equal(reasonsOf(d), c.reasons) {
			t.Errorf("%s: blocked %t, %v", name, d.Blocked, reasonsOf(d))
		}
	}
}

// A node that is not in the facts has left, and one that says so has too.
func TestUnknownNodesAreGone(t *testing.T) {
	t.Parallel()
	in := inputOf(map[string]Pool{"p": {Budget: 5}}, worker("p", "a", nil), worker("p", "b", func(n *Node) { n.Gone = true }), worker("p", "c", nil))
	delete(in.Nodes, "c")
	d := Next(in)
	if d.Gone != 2 || d.Total != 1 || !slices.Equal(verbs(d), []string{"cordon a"}) || in.NodeAt(0).Gone || !in.NodeAt(1).Gone || !in.NodeAt(2).Gone || in.NodeAt(2).Name != "c" {
		t.Errorf("%d of %d left: %v", d.Gone, d.Total, verbs(d))
	}
}

// What becomes of the API server while one of so many control-plane nodes moves.
func TestAPIServerWhileANodeMoves(t *testing.T) {
	t.Parallel()
	members := func(n int) map[string]bool {
		out := map[string]bool{}
		for i := range n {
			out[string(rune('a'+i))] = true
		}
		return out
	}
	const away, hangs, stays = "the API server is unavailable meanwhile, workloads continue to run", "etcd has two members, and one alone has no quorum: the API server hangs while either moves", "the API server stays available"
	for _, c := range []struct {
		etcd, nodes int
		says        string
	}{
		{0, 0, away}, {1, 1, away}, {3, 1, away}, {0, 2, stays}, {1, 2, stays}, {2, 2, hangs}, {2, 3, hangs}, {0, 3, stays},
		{3, 2, "etcd keeps its quorum of 2 of 3 members"}, {3, 3, "etcd keeps its quorum of 2 of 3 members"}, {4, 4, "etcd keeps its quorum of 3 of 4 members"}, {5, 5, "etcd keeps its quorum of 3 of 5 members"},
	} {
		if got := APIServerClause(members(c.etcd), c.nodes); got != c.says {
			t.Errorf("%d members on %d nodes: %q, want %q", c.etcd, c.nodes, got, c.says)
		}
	}
}
