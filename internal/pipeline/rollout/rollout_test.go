package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/model"
)

// drawPool draws a pool with any pace.
func drawPool(t *rapid.T, name string) Pool {
	p := Pool{Name: name, Budget: rapid.IntRange(1, 3).Draw(t, "budget"), Zones: rapid.Bool().Draw(t, "zones"), Undo: rapid.Bool().Draw(t, "undo"),
		MaxFailures: rapid.IntRange(0, 3).Draw(t, "maxFailures"), Attempts: int32(rapid.IntRange(0, 3).Draw(t, "attempts")),
		Soak: time.Duration(rapid.IntRange(0, 3).Draw(t, "soak")) * time.Minute, CanarySoak: time.Duration(rapid.IntRange(0, 3).Draw(t, "canarySoak")) * time.Minute}
	p.OutOfBalancers = time.Duration(rapid.IntRange(0, 2).Draw(t, "outOfBalancers")) * time.Minute
	switch rapid.IntRange(0, 3).Draw(t, "canary") {
	case 0:
		p.Canary = Amount{Value: rapid.IntRange(1, 2).Draw(t, "canaries")}
	case 1:
		p.Canary = Amount{Value: rapid.IntRange(1, 100).Draw(t, "percent"), Percent: true}
	}
	if rapid.IntRange(0, 2).Draw(t, "windowed") == 0 {
		for range rapid.IntRange(1, 2).Draw(t, "windows") {
			w := Window{Start: rapid.IntRange(0, 24*60-1).Draw(t, "opens"), Duration: time.Duration(rapid.IntRange(60, 600).Draw(t, "length")) * time.Minute, Zone: berlin()}
			for d := range time.Weekday(7) {
				if rapid.Bool().Draw(t, "day") {
					w.Days = append(w.Days, d)
				}
			}
			p.Windows = append(p.Windows, w)
		}
	}
	return p
}

func drawCluster(t *rapid.T) (*cluster, []*member) {
	pools := map[string]Pool{}
	for i := range rapid.IntRange(1, 3).Draw(t, "pools") {
		name := fmt.Sprintf("p%d", i)
		pools[name] = drawPool(t, name)
	}
	in := func() string { return fmt.Sprintf("p%d", rapid.IntRange(0, len(pools)-1).Draw(t, "pool")) }
	var members []*member
	for i := range rapid.SampledFrom([]int{1, 2, 3, 5}).Draw(t, "cps") {
		members = append(members, ok(fmt.Sprintf("c%d", i), in(), true))
	}
	for i := range rapid.IntRange(0, 6).Draw(t, "workers") {
		members = append(members, inZone(ok(fmt.Sprintf("w%d", i), in(), false), rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "zone")))
	}
	for _, m := range members {
		for try := range int32(3) {
			m.fails[try+1] = rapid.IntRange(0, 4).Draw(t, "fails") == 0
		}
		m.foreignLabel = rapid.IntRange(0, 4).Draw(t, "foreignLabel") == 0
		m.Excluded = m.foreignLabel
		m.undoFail = rapid.IntRange(0, 4).Draw(t, "undoFails") == 0
		m.pods = rapid.IntRange(0, 3).Draw(t, "pods")
	}
	c := newCluster(pools, members...)
	if rapid.Bool().Draw(t, "learned") {
		c.in.Learned.Worker = Range{Low: 20 * time.Minute, High: 40 * time.Minute, Samples: 4}
	}
	return c, members
}

// These invariants hold for all pools, budgets, failures and accidents, and wherever the
// controller dies (any suffix of the actions is lost):
//   - refit never makes more nodes unavailable or unproven than the budget allows;
//   - etcd never falls below its quorum;
//   - no node starts outside a window, out of its turn, after a halt or above the attempts;
//   - no node is done that is not at its target.
//
// The end is always the same: every node at its target, no mark and no cordon of ours left.
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, members := drawCluster(t)
		for look := 0; ; look++ {
			if look > 6000 { // 12 weeks: a window may open once a week, for one node of a control plane
				t.Fatalf("no end at %s: %+v", c.in.Now, Next(c.facts()))
			}
			calm := look > 150 // from then on nothing happens but what we do
			in := c.facts()
			d := Next(in)
			if diff := cmp.Diff(d, Next(in), cmp.AllowUnexported(Stages{})); diff != "" {
				t.Fatalf("the same facts, another decision: %s", diff)
			}
			check(t, c, in, d)
			if d.Finished {
				break
			}
			if len(d.Actions) == 0 && d.Failed > 0 && (calm || rapid.IntRange(0, 3).Draw(t, "retry") == 0) {
				c.askAgain(t, d)
			}
			c.accident(t, calm)
			cut := len(d.Actions)
			if !calm && rapid.IntRange(0, 3).Draw(t, "crash") == 0 {
				cut = rapid.IntRange(0, len(d.Actions)).Draw(t, "at")
			}
			d.Actions = d.Actions[:cut]
			c.obey(d)
			before := c.snapshot()
			c.obey(d)
			if diff := cmp.Diff(before, c.snapshot()); diff != "" {
				t.Fatalf("done twice is not as done once: %s", diff)
			}
			passes := 20 * time.Minute
			if !calm {
				passes = rapid.SampledFrom([]time.Duration{5 * time.Second, time.Minute, 3 * time.Hour}).Draw(t, "passes")
			}
			c.pass(passes)
		}
		for _, m := range members {
			if !m.Gone && (!m.AtTarget || m.Unschedulable || m.Started || !m.Ready || m.Excluded != m.foreignLabel) {
				t.Fatalf("%s is not done: %+v", m.Name, m.Node)
			}
			if m.done > 1 {
				t.Fatalf("%s was brought to its target %d times", m.Name, m.done)
			}
		}
	})
}

// askAgain: a person raises the retry, of all or of one; the cause is fixed.
func (c *cluster) askAgain(t *rapid.T, d Decision) {
	for _, np := range c.in.Plan.Nodes {
		if !isFailure(d.Stages.ByNode(np.Node)) {
			continue
		}
		c.truth[np.Node].fails, c.truth[np.Node].undoFail = nil, false
		if rapid.Bool().Draw(t, "by name") {
			c.in.RetryNodes = maps.Clone(c.in.RetryNodes)
			c.in.RetryNodes[np.Node]++
			return
		}
	}
	c.in.Retry++
}

// snapshot is the state of the nodes as the controller would observe it.
func (c *cluster) snapshot() map[string]Node {
	out := map[string]Node{}
	for name, m := range c.truth {
		n := m.Node
		if m.Run != nil {
			run := *m.Run
			n.Run = &run
		}
		n.Drain = &Drain{Left: max(0, m.pods)}
		if n.Started {
			n.Drain = nil // evicting is repeated; a pod that is gone is gone
		}
		out[name] = n
	}
	return out
}

// accident: nodes become not Ready and come back, leave, are held and released;
// a user uncordons a node that is being updated.
func (c *cluster) accident(t *rapid.T, calm bool) {
	for _, np := range c.in.Plan.Nodes {
		m := c.truth[np.Node]
		if calm {
			m.Ready, m.OnHold = true, false
			continue
		}
		if !m.Ready {
			if m.Ready = rapid.Bool().Draw(t, "back"); m.Ready {
				m.ReadySince = c.in.Now
			}
			continue
		}
		if m.OnHold {
			m.OnHold = rapid.Bool().Draw(t, "held")
			continue
		}
		switch rapid.IntRange(0, 60).Draw(t, "accident") {
		case 0:
			m.Ready = false
		case 1:
			m.Gone = !m.cp
		case 2:
			m.OnHold = true
		case 3:
			m.Unschedulable = m.Unschedulable && !m.Started
		}
	}
}

func check(t *rapid.T, c *cluster, in Input, d Decision) {
	for _, a := range d.Actions {
		checkAction(t, c, in, d, a)
	}
	checkBudget(t, c, in, d)
	cps := 0
	for i, np := range in.Plan.Nodes {
		name, stage := np.Node, d.Stages.ByIndex(i)
		m := c.truth[name]
		if stage == StageDone && !m.AtTarget {
			t.Fatalf("%s is called done", name)
		}
		if m.cp && !isSettled(stage) && stage != StageWaiting {
			cps++
		}
	}
	if cps > 1 {
		t.Fatalf("%d control planes at once", cps)
	}
	if starts := startedNodes(in, d); cps == 1 && len(starts) > 0 && (len(starts) > 1 || !c.truth[starts[0]].cp) {
		t.Fatalf("other nodes start during the update of a control plane: %v", starts)
	}
}

func checkAction(t *rapid.T, c *cluster, in Input, d Decision, a Action) {
	n, m := in.Nodes[a.Node], c.truth[a.Node]
	switch {
	case a.Verb == Uncordon && (!n.AtTarget || !n.Ready):
		t.Fatalf("%s is returned although not at its target", a.Node)
	case a.Verb == ReleaseNode && len(m.began) > 0:
		t.Fatalf("%s is returned although not undone", a.Node)
	case a.Verb == Permit && !n.Unschedulable:
		t.Fatalf("%s runs although new pods may come", a.Node)
	case a.Verb == ReleaseNode && !n.Ready:
		t.Fatalf("%s is returned although it is not Ready", a.Node)
	case a.Verb == Permit && m.pods > 0:
		t.Fatalf("%s runs although it is not drained", a.Node)
	case a.Verb == DrainNode && c.in.Pools[m.pool].OutOfBalancers > 0 && !n.Excluded:
		t.Fatalf("%s is drained although load balancers have it", a.Node)
	case (a.Verb == Cordon || a.Verb == Exclude || a.Verb == Permit) && a.Attempt.Try > max(1, c.in.Pools[m.pool].Attempts):
		t.Fatalf("%s is tried a %d. time", a.Node, a.Attempt.Try)
	case (a.Verb == Cordon || a.Verb == Exclude) && !n.Started && (n.Run == nil || n.Run.finished()):
		checkStart(t, c, in, d, m)
	}
}

func checkStart(t *rapid.T, c *cluster, in Input, d Decision, m *member) {
	p := c.in.Pools[m.pool]
	switch {
	case d.Halted || in.Paused || m.OnHold || !m.Ready:
		t.Fatalf("%s starts although halted %t, paused %t, held %t, Ready %t", m.Name, d.Halted, in.Paused, m.OnHold, m.Ready)
	case !isOpen(p.Windows, in.Now):
		t.Fatalf("%s starts outside its windows at %s", m.Name, in.Now)
	}
	if m.cp {
		ready := 0
		for name, up := range in.ControlPlane.Etcd {
			if up && name != m.Name {
				ready++
			}
		}
		if total := len(in.ControlPlane.Etcd); total >= 3 && ready < total/2+1 {
			t.Fatalf("%s starts, and %d of %d etcd members are left", m.Name, ready, total)
		}
	}
	for _, other := range c.truth { // zones one after another
		n := in.Nodes[other.Name]
		moves := n.Started && !isFailure(d.Stages.ByNode(other.Name)) // what failed and was borne holds no zone up
		if p.Zones && moves && !other.cp && !m.cp && other.pool == m.pool && other.Zone != m.Zone {
			t.Fatalf("%s of zone %q starts together with %s of zone %q", m.Name, m.Zone, other.Name, other.Zone)
		}
	}
}

// isOpen is the same question as the code's, answered by asking every minute
// since a day before.
func isOpen(ws []Window, now time.Time) bool {
	for _, w := range ws {
		for back := time.Duration(0); back < w.Duration; back += time.Minute {
			at := now.Add(-back).In(w.Zone)
			if at.Hour()*60+at.Minute() == w.Start && (len(w.Days) == 0 || slices.Contains(w.Days, at.Weekday())) {
				return true
			}
		}
	}
	return len(ws) == 0
}

// checkBudget: what is unavailable, and what was updated and is not proven yet. A
// control-plane node starts alone, and only its own kind takes its place.
func checkBudget(t *rapid.T, c *cluster, in Input, d Decision) {
	starts := map[string][]string{}
	for _, name := range startedNodes(in, d) {
		starts[c.truth[name].pool] = append(starts[c.truth[name].pool], name)
	}
	for pool, names := range starts {
		p := in.Pools[pool]
		taken := map[string]bool{}
		cp := c.truth[names[0]].cp
		for _, n := range p.Unavailable {
			if m := c.truth[n]; !cp || m != nil && m.cp {
				taken[n] = true
			}
		}
		for name, m := range c.truth {
			if m.pool == pool && (!cp || m.cp) && !m.Gone && !m.FinishedAt.IsZero() && m.AtTarget && in.Now.Sub(m.FinishedAt) < p.Soak {
				taken[name] = true
			}
		}
		before := len(taken)
		for _, n := range names {
			taken[n] = true
		}
		if len(taken) > max(p.Budget, before) {
			t.Fatalf("pool %s: %v unavailable or unproven, budget %d", pool, slices.Sorted(maps.Keys(taken)), p.Budget)
		}
	}
}

// No canary's pool lets another worker begin before the canaries are done.
func TestNoNodeOvertakesTheCanary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		soak := time.Duration(rapid.IntRange(0, 10).Draw(t, "soak")) * time.Minute
		c := newCluster(pool(func(p *Pool) { p.Budget, p.Canary, p.CanarySoak = 4, Amount{Value: 2}, soak }), workersOf("edge", 6)...)
		for range 200 {
			in := c.facts()
			d := Next(in)
			for _, name := range startedNodes(in, d) {
				for _, canary := range []string{"w1", "w2"} {
					n := c.truth[canary]
					if name != "w1" && name != "w2" && (n.FinishedAt.IsZero() || in.Now.Sub(n.FinishedAt) < soak) {
						t.Fatalf("%s starts at %s before %s has soaked", name, in.Now, canary)
					}
				}
			}
			if d.Finished {
				return
			}
			c.obey(d)
			c.pass(time.Minute)
		}
		t.Fatal("no end")
	})
}

func TestAmount(t *testing.T) {
	for name, tc := range map[string]struct {
		amount Amount
		size   int
		want   int
	}{
		"a number is that number":            {Amount{3, false}, 100, 3},
		"a percentage is rounded down":       {Amount{25, true}, 10, 2},
		"a small percentage is at least one": {Amount{1, true}, 10, 1},
		"all of them":                        {Amount{100, true}, 7, 7},
		"none is none":                       {Amount{}, 7, 0},
	} {
		if got := tc.amount.CountOf(tc.size); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

// markStarted puts the mark of a started node on m.
func markStarted(m *member) {
	m.Started, m.Unschedulable, m.Attempt, m.StartedAt = true, true, Attempt{1, 0, 1}, start
}

// Single situations, keyed by a sentence.
func TestNext(t *testing.T) {
	one := map[string]Pool{"p": {Name: "p", Budget: 1}}
	cases := map[string]struct {
		cluster func() *cluster
		actions string // verb node, in order
		reasons string
		halted  bool
	}{
		"the control plane starts alone": {func() *cluster { return newCluster(one, ok("c", "p", true), ok("w", "p", false)) }, "cordon c", "", false},
		"two at once with a budget of two": {func() *cluster {
			return newCluster(map[string]Pool{"p": {Name: "p", Budget: 2}}, ok("w1", "p", false), ok("w2", "p", false), ok("w3", "p", false))
		}, "cordon w1, cordon w2", "", false},
		"a node cordoned by a person uses up the budget": {func() *cluster {
			c := newCluster(one, ok("w1", "p", false), ok("w2", "p", false))
			c.truth["w2"].Unschedulable = true
			return c
		}, "cordon w2", "BudgetSpent", false},
		"a paused pool does not start, another does": {func() *cluster {
			return newCluster(map[string]Pool{"p": {Name: "p", Budget: 1, Paused: true}, "q": {Name: "q", Budget: 1}}, ok("w1", "p", false), ok("w2", "q", false))
		}, "cordon w2", "Paused", false},
		"a failure halts, what runs goes on": {func() *cluster {
			c := newCluster(map[string]Pool{"p": {Name: "p", Budget: 3}}, ok("w1", "p", false), ok("w2", "p", false), ok("w3", "p", false))
			markStarted(c.truth["w1"])
			markStarted(c.truth["w2"])
			c.truth["w1"].Run = &Run{Attempt: Attempt{1, 0, 1}, State: RunFailed, Step: "kubeadm", Message: "ended with 1"}
			return c
		}, "drain w2", "StepFailed, Draining, Halted", true},
		"a raised retry marks the failed node with its next attempt": {func() *cluster {
			c := newCluster(one, ok("w1", "p", false))
			m := c.truth["w1"]
			markStarted(m)
			m.Run = &Run{Attempt: Attempt{1, 0, 1}, State: RunFailed}
			c.in.Retry = 1
			return c
		}, "cordon w1", "Retrying", false},
		"a retry waits until the static pods have come to rest": {func() *cluster {
			c := newCluster(one, ok("c1", "p", true))
			m := c.truth["c1"]
			markStarted(m)
			m.Run = &Run{Attempt: Attempt{1, 0, 1}, State: RunFailed, EndedAgo: time.Minute}
			m.Unsettled = "kube-scheduler is being rolled back"
			c.in.Retry = 1
			return c
		}, "", "Retrying", false},
		"static pods that never come to rest do not hold up a person": {func() *cluster {
			c := newCluster(one, ok("c1", "p", true))
			m := c.truth["c1"]
			markStarted(m)
			m.Run = &Run{Attempt: Attempt{1, 0, 1}, State: RunFailed, EndedAgo: 4 * time.Minute}
			m.Unsettled = "kube-scheduler is being rolled back"
			c.in.Retry = 1
			return c
		}, "cordon c1", "Retrying", false},
		"an agent that is silent is named": {func() *cluster {
			c := newCluster(one, ok("w1", "p", false))
			m := c.truth["w1"]
			markStarted(m)
			m.AgentHeartbeatLost, m.Run = true, &Run{Attempt: Attempt{1, 0, 1}, State: RunRunning, Step: "kubeadm"}
			return c
		}, "", "AgentHeartbeatLost", false},
		"one that is silent for longer than its step may take has failed": {func() *cluster {
			c := newCluster(map[string]Pool{"p": {Name: "p", Budget: 3}}, ok("w1", "p", false), ok("w2", "p", false))
			c.lose("w1", 31*time.Minute)
			return c
		}, "", "NodeLost, Halted", true},
		"its step may take that long": {func() *cluster {
			c := newCluster(one, ok("w1", "p", false))
			c.lose("w1", 30*time.Minute)
			return c
		}, "", "AgentHeartbeatLost", false},
		"a person who asks for another attempt at a lost node gets it": {func() *cluster {
			c := newCluster(one, ok("w1", "p", false))
			c.lose("w1", time.Hour)
			c.in.Retry = 1
			return c
		}, "cordon w1", "Retrying", false},
		"a lost node that reports again goes on": {func() *cluster {
			c := newCluster(one, ok("w1", "p", false))
			c.lose("w1", time.Hour)
			c.truth["w1"].AgentHeartbeatLost = false
			return c
		}, "", "Updating", false},
		"a step that may take for ever is never late": {func() *cluster {
			c := newCluster(one, ok("w1", "p", false))
			c.lose("w1", 100*time.Hour)
			c.plan("w1", func(np *model.NodePlan) { np.Steps[2].DeadlineSeconds = 0 })
			return c
		}, "", "AgentHeartbeatLost", false},
		"a run that ended is not done before it is seen": {func() *cluster {
			c := newCluster(one, ok("w1", "p", false), ok("w2", "p", false))
			m := c.truth["w1"]
			markStarted(m)
			m.Run = &Run{Attempt: Attempt{1, 0, 1}, State: RunSucceeded}
			return c
		}, "", "Settling", false},
		"a node whose agent still sees the old version long after has come back": {func() *cluster {
			c := newCluster(one, ok("w1", "p", false), ok("w2", "p", false))
			m := c.truth["w1"]
			markStarted(m)
			m.Run, m.ReportsOldVersion = &Run{Attempt: Attempt{1, 0, 1}, State: RunSucceeded}, true
			return c
		}, "", "VersionReverted, Halted", true},
		"a node that comes back old is not undone, it is old already": {func() *cluster {
			c := newCluster(map[string]Pool{"p": {Name: "p", Budget: 1, Undo: true}}, ok("w1", "p", false), ok("w2", "p", false))
			c.truth["w1"].FinishedAt = start
			return c
		}, "", "VersionReverted, Halted", true},
		"no control plane starts while another is not Ready": {func() *cluster {
			c := newCluster(map[string]Pool{"p": {Name: "p", Budget: 3}}, ok("c1", "p", true), ok("c2", "p", true))
			c.truth["c2"].Ready = false
			return c
		}, "", "ControlPlaneUnhealthy", false},
		"a held control plane keeps the workers back": {func() *cluster {
			c := newCluster(map[string]Pool{"p": {Name: "p", Budget: 3}}, ok("c1", "p", true), ok("w1", "p", false))
			c.truth["c1"].OnHold = true
			return c
		}, "", "NodeOnHold", false},
		"a control plane that soaks keeps the workers back": {func() *cluster {
			c := newCluster(map[string]Pool{"p": {Name: "p", Budget: 3, Soak: time.Minute}}, ok("c1", "p", true), ok("w1", "p", false))
			c.truth["c1"].AtTarget, c.truth["c1"].FinishedAt = true, start
			return c
		}, "", "Soaking", false},
		"a node that was at its target before needs no soak": {func() *cluster {
			c := newCluster(map[string]Pool{"p": {Name: "p", Budget: 1, Soak: time.Hour}}, ok("w1", "p", false), ok("w2", "p", false))
			c.truth["w1"].AtTarget = true
			return c
		}, "cordon w2", "", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := Next(tc.cluster().facts())
			var actions, reasons []string
			for _, a := range d.Actions {
				actions = append(actions, a.Verb+" "+a.Node)
			}
			for _, v := range d.Blockers {
				reasons = append(reasons, v.Reason)
			}
			if got := strings.Join(actions, ", "); got != tc.actions {
				t.Errorf("actions %q, want %q", got, tc.actions)
			}
			if got := strings.Join(reasons, ", "); got != tc.reasons {
				t.Errorf("reasons %q, want %q: %+v", got, tc.reasons, d.Blockers)
			}
			if d.Halted != tc.halted {
				t.Errorf("halted %v", d.Halted)
			}
		})
	}
}

// A change that only reloads takes no pod and keeps none away: the node is marked
// and runs its steps.
func TestAPlanWithoutCordonRunsOnAnOpenNode(t *testing.T) {
	np := model.NodePlan{Node: "n1", Role: model.RoleWorker, Pool: "p", Steps: []model.Step{{ID: "files", By: model.ByAgent}}}
	in := Input{Now: start, Pools: map[string]Pool{"p": {Name: "p", Budget: 1}}, Plan: model.Plan{Nodes: []model.NodePlan{np}},
		Nodes: map[string]Node{"n1": {Name: "n1", Ready: true, Started: true, Attempt: Attempt{1, 0, 1}, StartedAt: start, NotYet: "a file"}}}
	if d := Next(in); len(d.Actions) != 1 || d.Actions[0].Verb != Permit {
		t.Fatalf("%+v", d.Actions)
	}
}

// What no observation proves does not count as done: a restart of the machine, and the
// checks that a failed attempt did not reach.
func TestDoneByHand(t *testing.T) {
	t.Parallel()
	failedRun := &Run{Attempt: Attempt{Number: 1, Try: 1}, State: RunFailed, Step: "reboot", EndedAgo: time.Hour}
	for name, tc := range map[string]struct {
		run      *Run
		attempt  int32
		restarts bool
		want     string
	}{
		"an administrator brings a node to its target during its drain":      {nil, 1, false, StageFinishing},
		"the same, and the plan restarts the machine as well":                {nil, 1, true, StageDraining},
		"a node that failed when all was there is not done by being retried": {failedRun, 2, false, StageDraining},
		"a restart that failed is not done by being retried":                 {failedRun, 2, true, StageDraining},
		"it stays failed until a retry, although it is at its target":        {failedRun, 1, true, StageFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := ok("w1", "edge", false)
			w.Started, w.Unschedulable, w.AtTarget, w.Attempt, w.Run = true, true, true, Attempt{Number: tc.attempt, Try: 1}, tc.run
			c := newCluster(pool(nil), w)
			c.plan("w1", func(np *model.NodePlan) {
				if tc.restarts {
					np.Steps = slices.Insert(np.Steps, 4, model.Step{ID: "reboot", Updater: "reboot", By: model.ByAgent, Disruption: model.DisruptionReboot})
				}
			})
			if got := Next(c.facts()).Stages.ByNode("w1"); got != tc.want {
				t.Errorf("it is %s, want %s", got, tc.want)
			}
		})
	}
}

// Who deletes a pool in the middle, or moves nodes into another, does not lift the budget:
// what has started counts where it was planned.
func TestAPoolThatGoesDoesNotLiftTheBudget(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		happens func(*cluster)
		starts  int
		says    string
	}{
		"the pool is there":                 {func(*cluster) {}, 1, ""},
		"the pool is deleted":               {func(c *cluster) { c.in.Pools = map[string]Pool{"other": {Name: "other"}} }, 0, reasonNodeInNoPool},
		"the nodes are selected by another": {func(c *cluster) { c.elsewhere = true }, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(pool(nil), workersOf("edge", 5)...)
			for _, m := range c.truth {
				m.pods = 1000 // it is never empty
			}
			tc.happens(c)
			said := map[string]bool{}
			for range 10 {
				d := Next(c.facts())
				for _, v := range d.Blockers {
					said[v.Reason] = true
				}
				c.obey(d)
				c.pass(30 * time.Second)
			}
			started := 0
			for _, m := range c.truth {
				if m.Started {
					started++
				}
			}
			if started != tc.starts || said[tc.says] != (tc.says != "") {
				t.Errorf("%d nodes were started, want %d; it says %v", started, tc.starts, slices.Sorted(maps.Keys(said)))
			}
		})
	}
}

// A node that undid its steps by itself says that, and not that it could not be undone.
func TestANodeThatUndidItsStepsSaysSo(t *testing.T) {
	np := model.NodePlan{Node: "w1", Pool: "edge", Steps: []model.Step{{ID: "kubelet", By: model.ByAgent, NotReversible: "it is too late"}, {ID: "files", By: model.ByAgent}}}
	in := &Input{Pools: map[string]Pool{"edge": {Undo: true}}}
	n := Node{Name: "w1", Started: true, Run: &Run{State: RunFailed, Reason: reasonUndoneByDeadline, Message: "the node was not well for 10m0s"}}
	if v := failedBlocker(in, np, n); v.Reason != reasonUndoneByDeadline || v.Waiting || !strings.Contains(v.Message, "not well for 10m0s") || strings.Contains(v.Message, "not undone") {
		t.Errorf("%+v", v)
	}
}

// A node whose agent waits, for its disk for example, is not just being updated.
func TestANodeThatWaitsSaysSo(t *testing.T) {
	for _, word := range runWaits {
		n := Node{Name: "w1", Started: true, Run: &Run{State: RunRunning, Reason: word, Message: "no space left on device"}}
		v := updatingBlocker(&Input{}, model.NodePlan{}, n)
		if v.Reason != word || !strings.Contains(v.Message, "no space left on device") || !v.Waiting {
			t.Errorf("%s: %+v", word, v)
		}
	}
}
