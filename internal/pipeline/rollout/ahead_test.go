package rollout

import (
	"slices"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/pipeline/rollout/window"
)

// staging is a pool of so many workers that boot something else.
func staging(n int) []*member {
	out := workersOf("edge", n)
	for _, m := range out {
		m.Ahead = &Ahead{}
	}
	return out
}

func init() {
	stories["what nodes boot next lies ready on them before they are taken, two at a time"] = func() story {
		return story{cluster: newCluster(pool(func(p *Pool) { p.Staging = 2 }), staging(5)...)}
	}
	stories["a registry that is away costs nothing: no node is taken until it is back"] = func() story {
		w := staging(3)
		for _, m := range w {
			m.Ahead.Problem = "registry.example does not answer"
		}
		return story{cluster: newCluster(pool(func(p *Pool) { p.Staging = 1 }), w...), happens: func(_ *cluster, look int) {
			for _, m := range w {
				if look == 6 {
					m.Ahead.Problem = ""
				}
			}
		}}
	}
	stories["a node whose agent fell silent while it made ready is named, and the others go on"] = func() story {
		w := staging(3)
		w[0].AgentHeartbeatLost = true
		return story{cluster: newCluster(pool(func(p *Pool) { p.Staging = 1 }), w...), happens: func(_ *cluster, look int) {
			w[0].AgentHeartbeatLost = look < 20
		}}
	}
	stories["outside its window a pool makes ready, and takes no node"] = func() story {
		return story{cluster: newCluster(pool(func(p *Pool) {
			p.Staging, p.Windows = 5, []window.Window{{Start: 12*60 + 5, Duration: 60 * time.Minute, Zone: time.UTC}}
		}), staging(2)...)}
	}
}

// A node that was told and is not at it any more keeps no other from its turn: the pool
// would stand still, and a hold would not help.
func TestWhoIsAwayIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		away func(*Node)
		next bool
	}{
		"one that is at it has the only place":      {func(*Node) {}, false},
		"one that is not Ready any more has not":    {func(n *Node) { n.Ready = false }, true},
		"one that a person holds has not":           {func(n *Node) { n.Held = true }, true},
		"one whose agent is not heard has not":      {func(n *Node) { n.AgentHeartbeatLost = true }, true},
		"one that cannot, and tries, has not":       {func(n *Node) { n.Ahead.Problem = "no room" }, true},
		"one that has left the cluster has not":     {func(n *Node) { n.Gone = true }, true},
		"one that has it ready has not":             {func(n *Node) { n.Ahead.Ready = true }, true},
		"one that somebody cordoned is still at it": {func(n *Node) { n.Unschedulable = true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := staging(2)
			w[0].Ahead.Told = true
			tc.away(&w[0].Node)
			d := Next(newCluster(pool(func(p *Pool) { p.Staging = 1 }), w...).facts())
			told := slices.ContainsFunc(d.Actions, func(a Action) bool { return a.Verb == Stage && a.Node == "w2" })
			if told != tc.next {
				t.Errorf("w2 is told: %t, want %t: %+v", told, tc.next, d.Actions)
			}
		})
	}
}

// Never more nodes of a pool than it bears are at it, and none is cordoned before it
// is ready.
func TestReadyBeforeTaken(t *testing.T) {
	for _, limit := range []int{0, 1, 3, 100} {
		w := staging(12)
		w[3].Held, w[5].Ready = true, false
		c := newCluster(pool(func(p *Pool) { p.Staging, p.Budget = limit, 4 }), w...)
		for range 200 {
			in := c.facts()
			d := Next(in)
			going := 0
			for _, m := range w {
				if m.Ahead.Told && !m.Ahead.Ready {
					going++
				}
			}
			for _, a := range d.Actions {
				switch m := c.truth[a.Node]; {
				case a.Verb == Stage:
					going++
					if m.Held || !m.Ready || m.Started {
						t.Fatalf("limit %d: %s is told to", limit, a.Node)
					}
				case a.Verb == Cordon && !m.Ahead.Ready:
					t.Fatalf("limit %d: %s is taken and has nothing ready", limit, a.Node)
				}
			}
			if going > max(1, limit) {
				t.Fatalf("limit %d: %d nodes are at it", limit, going)
			}
			c.obey(d)
			c.pass(30 * time.Second)
		}
		if n := slices.IndexFunc(w, func(m *member) bool { return !m.AtTarget && !m.Held && m.Ready }); n >= 0 {
			t.Fatalf("limit %d: %s never moved: %+v", limit, w[n].Name, w[n].Ahead)
		}
	}
}
