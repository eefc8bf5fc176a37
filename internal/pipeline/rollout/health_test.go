package rollout

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/model"
)

var sick = []model.Blocker{{Reason: "HealthCheckFailed", Message: "pool edge: health check shop: it is down", Waiting: true}}

func unwellPool(in *Input, name string, found []model.Blocker) {
	p := in.Pools[name]
	p.Unwell = found
	in.Pools[name] = p
}

// While a health check of a pool fails, no further node of that pool starts; a started node
// finishes, and another pool goes on. The last node does not end the update either.
func TestHealthChecksHoldTheNextNode(t *testing.T) {
	t.Parallel()
	pools := map[string]Pool{"edge": {Name: "edge", Budget: 1}, "core": {Name: "core", Budget: 1}}
	c := newCluster(pools, ok("w1", "edge", false), ok("w2", "edge", false), ok("x1", "core", false))
	in := c.facts()
	d := Next(in)
	if got := AsksHealth(in, d); !slices.Equal(got, []string{"core", "edge"}) {
		t.Errorf("a node of both would start, and %v is asked", got)
	}
	c.obey(d)
	for range 10 { // w1 and x1 finish although edge is not well by now
		in := c.facts()
		unwellPool(&in, "edge", sick)
		d = Next(in)
		c.obey(d)
		c.pass(time.Minute)
	}
	if !c.truth["w1"].AtTarget || c.truth["w1"].Started || !c.truth["x1"].AtTarget || c.truth["w2"].Started {
		t.Fatalf("w1 %+v\nw2 %+v", c.truth["w1"].Node, c.truth["w2"].Node)
	}
	if diff := cmp.Diff(sick, d.Blockers); diff != "" || d.Blocked || d.Halted {
		t.Errorf("want it once: %s", diff)
	}
	forbidden := []model.Blocker{{Reason: "HealthCheckForbidden"}}
	in = c.facts()
	unwellPool(&in, "edge", forbidden)
	if d := Next(in); !d.Blocked {
		t.Error("only a person helps, and the decision is not Blocked")
	}
	for range 10 {
		c.obey(Next(c.facts()))
		c.pass(time.Minute)
	}
	in = c.facts()
	if d = Next(in); !d.Finished || !slices.Equal(AsksHealth(in, d), []string{"core", "edge"}) {
		t.Fatalf("the end asks every pool: %+v", d)
	}
	unwellPool(&in, "core", sick)
	if d = Next(in); d.Finished || !cmp.Equal(sick, d.Blockers) {
		t.Errorf("the last node made a check fail, and the update is done: %+v", d)
	}
}

// Only pools are asked whose nodes would start: not for a drain, another attempt at a started node,
// or another pool.
func TestHealthIsAskedOnlyBeforeAStart(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		out    time.Duration
		change func(*member)
		asked  string
	}{
		"a node starts":            {0, func(*member) {}, "edge"},
		"it leaves the balancers":  {time.Minute, func(*member) {}, "edge"},
		"it is drained":            {0, func(m *member) { markStarted(m) }, ""},
		"it is cordoned again":     {0, func(m *member) { markStarted(m); m.Unschedulable = false }, ""},
		"it is excluded again":     {time.Minute, func(m *member) { markStarted(m) }, ""},
		"it is back, and returned": {0, func(m *member) { m.AtTarget, m.Started, m.Attempt = true, true, Attempt{1, 0, 1} }, ""},
		"it is gone by now":        {0, func(m *member) { m.Gone = true }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pools := map[string]Pool{"edge": {Name: "edge", Budget: 1, OutOfBalancers: tc.out}, "core": {Name: "core", Budget: 1, Paused: true}}
			c := newCluster(pools, ok("w1", "edge", false), ok("x1", "core", false))
			tc.change(c.truth["w1"])
			in := c.facts()
			if got := strings.Join(AsksHealth(in, Next(in)), " "); got != tc.asked {
				t.Errorf("%q is asked, want %q", got, tc.asked)
			}
		})
	}
	c := newCluster(map[string]Pool{}, ok("w1", "edge", false))
	in := c.facts()
	d := Next(in)
	d.Actions = []Action{{Verb: Stage, Node: "w1"}, {Verb: Cordon, Node: "unknown"}}
	if got := AsksHealth(in, d); len(got) != 0 {
		t.Errorf("%v is asked", got)
	}
}

// A failing check is one blocker, however many nodes wait for it.
func TestAFailingCheckIsReportedOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(map[string]Pool{"edge": {Name: "edge", Budget: 3}}, workersOf("edge", 3)...)
	in := c.facts()
	unwellPool(&in, "edge", sick)
	if d := Next(in); len(d.Actions) != 0 || !cmp.Equal(sick, d.Blockers) {
		t.Errorf("%+v", d)
	}
}

// A node is out of the load balancers for the pool's time before it is cordoned and drained, and
// in them again when it is back.
func TestANodeLeavesTheLoadBalancersFirst(t *testing.T) {
	t.Parallel()
	pools := map[string]Pool{"edge": {Name: "edge", Budget: 1, OutOfBalancers: time.Minute, DrainTimeout: 30 * time.Second}}
	for name, tc := range map[string]struct {
		change func(*cluster, *member)
		want   string
	}{
		"a node":                            {func(*cluster, *member) {}, "exclude|wait|wait|cordon|drain|run"},
		"another writer took it out before": {func(_ *cluster, m *member) { m.Excluded = true }, "cordon|drain|run"},
		"its plan leaves the pods where are": {func(c *cluster, _ *member) {
			c.plan("w1", func(np *model.NodePlan) { np.Steps = append(np.Steps[:1:1], np.Steps[2:]...) })
		}, "cordon|run"},
		"its label was removed in between": {func(_ *cluster, m *member) { m.Started, m.StartedAt, m.Attempt = true, start, Attempt{1, 0, 1} }, "exclude|wait|wait|cordon|drain|run"},
		"an administrator cordoned it":     {func(_ *cluster, m *member) { m.Unschedulable = true }, "exclude|wait|wait|drain|run"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(map[string]Pool{"edge": pools["edge"]}, ok("w1", "edge", false))
			tc.change(c, c.truth["w1"])
			var said []string
			for range 6 {
				d := Next(c.facts())
				c.obey(d)
				for _, a := range d.Actions {
					said = append(said, a.Verb)
				}
				for _, b := range d.Blockers {
					if b.Reason == reasonLeavingBalancers {
						said = append(said, "wait")
						if !b.Waiting || !strings.Contains(b.Message, "until 2026-11-20 11:01:00Z") {
							t.Errorf("%+v", b)
						}
					}
				}
				if c.truth["w1"].Run != nil {
					break
				}
				c.in.Now = c.in.Now.Add(25 * time.Second)
			}
			if got := strings.Join(said, "|"); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// A node starts only if the wait fits into the window too.
func TestTheWaitCountsInTheWindow(t *testing.T) {
	t.Parallel()
	for wait, starts := range map[time.Duration]bool{0: true, 30 * time.Minute: false} {
		p := Pool{Name: "edge", Budget: 1, OutOfBalancers: wait, Windows: []Window{{Start: 11 * 60, Duration: time.Hour, Zone: time.UTC}}}
		c := newCluster(map[string]Pool{"edge": p}, ok("w1", "edge", false))
		c.in.Learned.Worker = Range{Low: 40 * time.Minute, High: 45 * time.Minute, Samples: 3}
		if d := Next(c.facts()); (len(d.Actions) == 1) != starts {
			t.Errorf("wait %s: %+v", wait, d)
		}
	}
}
