package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/model"
)

var start = time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC)

func nodePlan(name, role, pool string, wave int) model.NodePlan {
	return model.NodePlan{Node: name, Role: role, Pool: pool, Wave: wave, From: "v1.35.4", To: "v1.36.3",
		Steps: []model.Step{{ID: "cordon"}, {ID: Drained}, {ID: "kubeadm", By: model.ByAgent}, {ID: "uncordon"}}}
}

// cluster is a small world that obeys actions; it is what the controller sees.
type cluster struct {
	in    Input
	truth map[string]*member
}

type member struct {
	Node
	pool    string
	cp      bool
	pods    int
	running int // rounds until the run ends
	fails   int // attempts that fail
}

func newCluster(pools map[string]Pool, members ...*member) *cluster {
	c := &cluster{truth: map[string]*member{}, in: Input{Attempt: 1, Now: start, Pools: pools}}
	waves := 0
	for _, m := range members {
		role := model.RoleWorker
		wave := 1000
		if m.cp {
			role, wave = model.RoleControlPlane, waves
			waves++
		}
		c.truth[m.Name] = m
		c.in.Plan.Nodes = append(c.in.Plan.Nodes, nodePlan(m.Name, role, m.pool, wave))
	}
	return c
}

func (c *cluster) facts() Input {
	in := c.in
	in.Nodes = map[string]Node{}
	in.Pools = map[string]Pool{}
	for name, p := range c.in.Pools {
		p.Unavailable = nil
		in.Pools[name] = p
	}
	in.UnhealthyControlPlanes = nil
	for _, np := range in.Plan.Nodes {
		m := c.truth[np.Node]
		if m.Gone {
			continue
		}
		n := m.Node
		if n.Started && n.Run == nil && n.Unschedulable {
			n.Drain = &Drain{Left: m.pods}
		}
		if m.Run != nil {
			run := *m.Run
			n.Run = &run
		}
		in.Nodes[m.Name] = n
		if p := in.Pools[m.pool]; !n.Ready || n.Unschedulable || n.Started {
			p.Unavailable = append(p.Unavailable, m.Name)
			in.Pools[m.pool] = p
		}
		if m.cp && !n.Ready {
			in.UnhealthyControlPlanes = append(in.UnhealthyControlPlanes, m.Name)
		}
	}
	return in
}

func (c *cluster) obey(d Decision) {
	for _, a := range d.Actions {
		m := c.truth[a.Node]
		switch a.Verb {
		case Cordon:
			m.Started, m.Unschedulable, m.StartedAt, m.StartedAttempt = true, true, c.in.Now, a.Attempt
		case DrainIt:
			m.pods = max(0, m.pods-1)
		case Permit:
			if m.Run == nil || m.Run.Attempt < a.Attempt {
				m.Run = &Run{Attempt: a.Attempt}
				m.running = 2
			}
		case Uncordon:
			m.Started, m.Unschedulable = false, false
		}
	}
}

// pass lets time go by: runs go on and end.
func (c *cluster) pass() {
	c.in.Now = c.in.Now.Add(5 * time.Second)
	for _, m := range c.truth {
		if m.Run == nil || m.Run.State == RunFailed || m.Run.State == RunSucceeded {
			continue
		}
		m.Run.State = RunRunning
		if m.running--; m.running > 0 {
			continue
		}
		if m.fails > 0 {
			m.fails--
			m.Run.State, m.Run.Step, m.Run.Message = RunFailed, "kubeadm", "ended with 1"
			continue
		}
		m.Run.State, m.AtTarget = RunSucceeded, true
	}
}

func ok(name, pool string, cp bool) *member {
	return &member{Node: Node{Name: name, Ready: true, NotYet: "its kubelet says v1.35.4"}, pool: pool, cp: cp, pods: 1}
}

// Whatever the pools, budgets and accidents: never more nodes unavailable by us
// than the budget, control planes alone, no node done that is not at its
// target, nothing new after a failure, and the end is reached.
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pools := map[string]Pool{}
		for i := range rapid.IntRange(1, 3).Draw(t, "pools") {
			name := fmt.Sprintf("p%d", i)
			pools[name] = Pool{Name: name, Budget: rapid.IntRange(1, 3).Draw(t, "budget")}
		}
		var members []*member
		for i := range rapid.IntRange(1, 3).Draw(t, "cps") {
			members = append(members, ok(fmt.Sprintf("c%d", i), fmt.Sprintf("p%d", rapid.IntRange(0, len(pools)-1).Draw(t, "pool")), true))
		}
		for i := range rapid.IntRange(0, 6).Draw(t, "workers") {
			members = append(members, ok(fmt.Sprintf("w%d", i), fmt.Sprintf("p%d", rapid.IntRange(0, len(pools)-1).Draw(t, "pool")), false))
		}
		for _, m := range members {
			m.fails = rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "fails")
			m.pods = rapid.IntRange(0, 3).Draw(t, "pods")
		}
		c := newCluster(pools, members...)
		for round := 0; ; round++ {
			if round > 400 {
				t.Fatalf("no end: %+v", Next(c.facts()))
			}
			in := c.facts()
			d := Next(in)
			if diff := cmp.Diff(d, Next(in)); diff != "" {
				t.Fatalf("the same facts, another decision: %s", diff)
			}
			check(t, c, in, d)
			if d.Finished {
				break
			}
			if d.Halted && len(d.Actions) == 0 && rapid.Bool().Draw(t, "retry") {
				c.in.Attempt++
			}
			c.accident(t)
			if rapid.IntRange(0, 4).Draw(t, "crash") > 0 { // else: decided, and died before it did anything
				c.obey(d)
			}
			c.pass()
		}
		for _, m := range members {
			if !m.Gone && (!m.AtTarget || m.Unschedulable || m.Started) {
				t.Fatalf("%s is not done: %+v", m.Name, m.Node)
			}
		}
	})
}

// accident: nodes become not Ready and come back, leave, are cordoned by people.
func (c *cluster) accident(t *rapid.T) {
	for _, np := range c.in.Plan.Nodes {
		m := c.truth[np.Node]
		if !m.Ready {
			m.Ready = rapid.Bool().Draw(t, "back")
			continue
		}
		switch rapid.IntRange(0, 40).Draw(t, "accident") {
		case 0:
			m.Ready = false
		case 1:
			m.Gone = !m.cp
		}
	}
}

func check(t *rapid.T, c *cluster, in Input, d Decision) {
	begun := map[string][]string{}
	cps := 0
	for _, a := range d.Actions {
		n := in.Nodes[a.Node]
		if a.Verb == Cordon && !n.Started {
			begun[c.truth[a.Node].pool] = append(begun[c.truth[a.Node].pool], a.Node)
			if d.Halted || in.Paused {
				t.Fatalf("%s starts although halted or paused", a.Node)
			}
			if !n.Ready {
				t.Fatalf("%s starts although not Ready", a.Node)
			}
		}
		if a.Verb == Uncordon && (!n.AtTarget || !n.Ready) {
			t.Fatalf("%s is given back although not at its target", a.Node)
		}
		if a.Verb == Permit && n.Run == nil && c.truth[a.Node].pods > 0 {
			t.Fatalf("%s runs although it is not drained", a.Node)
		}
	}
	for pool, names := range begun {
		after := slices.Clone(in.Pools[pool].Unavailable)
		for _, n := range names {
			if !slices.Contains(after, n) {
				after = append(after, n)
			}
		}
		if len(after) > max(in.Pools[pool].Budget, len(in.Pools[pool].Unavailable)) {
			t.Fatalf("pool %s: %v unavailable, budget %d", pool, after, in.Pools[pool].Budget)
		}
	}
	for name, stage := range d.Stages {
		m := c.truth[name]
		if stage == StageDone && !m.AtTarget {
			t.Fatalf("%s is called done", name)
		}
		if m.cp && stage != StageDone && stage != StageWaiting && stage != StageGone {
			cps++
		}
	}
	if cps > 1 {
		t.Fatalf("%d control planes at once", cps)
	}
	if cps == 1 && len(d.Current) > 1 {
		t.Fatalf("others move beside a control plane: %v", d.Current)
	}
}

func TestBudget(t *testing.T) {
	for name, tc := range map[string]struct {
		value   int
		percent bool
		size    int
		want    int
	}{
		"a number is that number":            {3, false, 100, 3},
		"a percentage is rounded down":       {25, true, 10, 2},
		"a small percentage is at least one": {1, true, 10, 1},
		"all of them":                        {100, true, 7, 7},
	} {
		if got := Budget(tc.value, tc.percent, tc.size); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
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
		"paused, nothing starts": {func() *cluster {
			c := newCluster(one, ok("w1", "p", false))
			c.in.Paused = true
			return c
		}, "", "Paused", false},
		"a paused pool does not start, another does": {func() *cluster {
			return newCluster(map[string]Pool{"p": {Name: "p", Budget: 1, Paused: true}, "q": {Name: "q", Budget: 1}}, ok("w1", "p", false), ok("w2", "q", false))
		}, "cordon w2", "Paused", false},
		"a failure halts, what runs goes on": {func() *cluster {
			c := newCluster(map[string]Pool{"p": {Name: "p", Budget: 3}}, ok("w1", "p", false), ok("w2", "p", false), ok("w3", "p", false))
			for _, n := range []string{"w1", "w2"} {
				c.truth[n].Started, c.truth[n].Unschedulable, c.truth[n].StartedAttempt = true, true, 1
			}
			c.truth["w1"].Run = &Run{Attempt: 1, State: RunFailed, Step: "kubeadm", Message: "ended with 1"}
			return c
		}, "drain w2", "StepFailed, Draining, Halted", true},
		"a raised retry permits the failed node again": {func() *cluster {
			c := newCluster(one, ok("w1", "p", false))
			m := c.truth["w1"]
			m.Started, m.Unschedulable, m.StartedAttempt, m.Run = true, true, 1, &Run{Attempt: 1, State: RunFailed}
			c.in.Attempt = 2
			return c
		}, "run w1", "Updating", false},
		"a drain that takes too long halts": {func() *cluster {
			c := newCluster(map[string]Pool{"p": {Name: "p", Budget: 1, DrainTimeout: time.Minute}}, ok("w1", "p", false), ok("w2", "p", false))
			m := c.truth["w1"]
			m.Started, m.Unschedulable, m.StartedAttempt, m.StartedAt = true, true, 1, start.Add(-2*time.Minute)
			return c
		}, "", "DrainBlocked, Halted", true},
		"a retry gives the drain its time again": {func() *cluster {
			c := newCluster(map[string]Pool{"p": {Name: "p", Budget: 1, DrainTimeout: time.Minute}}, ok("w1", "p", false))
			m := c.truth["w1"]
			m.Started, m.Unschedulable, m.StartedAttempt, m.StartedAt = true, true, 1, start.Add(-2*time.Minute)
			c.in.Attempt = 2
			return c
		}, "cordon w1", "", false},
		"an agent that is silent is named": {func() *cluster {
			c := newCluster(one, ok("w1", "p", false))
			m := c.truth["w1"]
			m.Started, m.Unschedulable, m.StartedAttempt, m.AgentSilent, m.Run = true, true, 1, true, &Run{Attempt: 1, State: RunRunning, Step: "kubeadm"}
			return c
		}, "", "AgentSilent", false},
		"a run that ended is not done before it is seen": {func() *cluster {
			c := newCluster(one, ok("w1", "p", false), ok("w2", "p", false))
			m := c.truth["w1"]
			m.Started, m.Unschedulable, m.StartedAttempt, m.Run = true, true, 1, &Run{Attempt: 1, State: RunSucceeded}
			return c
		}, "", "Settling", false},
		"no control plane starts while another is not Ready": {func() *cluster {
			c := newCluster(map[string]Pool{"p": {Name: "p", Budget: 3}}, ok("c1", "p", true), ok("c2", "p", true))
			c.truth["c2"].Ready = false
			return c
		}, "", "ControlPlaneUnhealthy", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := Next(tc.cluster().facts())
			var actions, reasons []string
			for _, a := range d.Actions {
				actions = append(actions, a.Verb+" "+a.Node)
			}
			for _, v := range d.Verdicts {
				reasons = append(reasons, v.Reason)
			}
			if got := strings.Join(actions, ", "); got != tc.actions {
				t.Errorf("actions %q, want %q", got, tc.actions)
			}
			if got := strings.Join(reasons, ", "); got != tc.reasons {
				t.Errorf("reasons %q, want %q: %+v", got, tc.reasons, d.Verdicts)
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
	in := Input{Attempt: 1, Now: start, Pools: map[string]Pool{"p": {Name: "p", Budget: 1}}, Plan: model.Plan{Nodes: []model.NodePlan{np}},
		Nodes: map[string]Node{"n1": {Name: "n1", Ready: true, Started: true, StartedAttempt: 1, StartedAt: start, NotYet: "a file"}}}
	if d := Next(in); len(d.Actions) != 1 || d.Actions[0].Verb != Permit {
		t.Fatalf("%+v", d.Actions)
	}
}
