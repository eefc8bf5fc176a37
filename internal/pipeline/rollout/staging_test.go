package rollout

import (
	"slices"
	"testing"
	"time"
)

// staging is a pool of so many workers that boot something else.
func staging(n int) []*member {
	out := workersOf("edge", n)
	for _, m := range out {
		m.Staging = &Staging{}
	}
	return out
}

func init() {
	stories["what nodes boot next is staged on them before their update, two at a time"] = func() story {
		return story{cluster: newCluster(pool(func(p *Pool) { p.Staging = 2 }), staging(5)...)}
	}
	stories["an unreachable registry costs nothing: no node starts until it is back"] = func() story {
		w := staging(3)
		for _, m := range w {
			m.Staging.Problem = "registry.example does not answer"
		}
		return story{cluster: newCluster(pool(func(p *Pool) { p.Staging = 1 }), w...), happens: func(_ *cluster, look int) {
			for _, m := range w {
				if look == 6 {
					m.Staging.Problem = ""
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
			p.Staging, p.Windows = 5, []Window{{Start: 12*60 + 5, Duration: 60 * time.Minute, Zone: time.UTC}}
		}), staging(2)...)}
	}
}

// A node that was asked to stage and no longer works on it does not delay the others. If it
// did, the pool would stand still, and a hold would not help.
func TestAnUnreachableNodeDelaysNoStaging(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		away func(*Node)
		next bool
	}{
		"one that is at it has the only place":   {func(*Node) {}, false},
		"one that is not Ready any more has not": {func(n *Node) { n.Ready = false }, true},
		"one that a person holds has not":        {func(n *Node) { n.OnHold = true }, true},
		"one whose agent is not heard has not":   {func(n *Node) { n.AgentHeartbeatLost = true }, true},
		"one that cannot, and tries, has not":    {func(n *Node) { n.Staging.Problem = "no room" }, true},
		"one that has left the cluster has not":  {func(n *Node) { n.Gone = true }, true},
		"one that has it ready has not":          {func(n *Node) { n.Staging.Ready = true }, true},
		"a cordoned node still stages":           {func(n *Node) { n.Unschedulable = true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := staging(2)
			w[0].Staging.Ordered = true
			tc.away(&w[0].Node)
			d := Next(newCluster(pool(func(p *Pool) { p.Staging = 1 }), w...).facts())
			staged := slices.ContainsFunc(d.Actions, func(a Action) bool { return a.Verb == Stage && a.Node == "w2" })
			if staged != tc.next {
				t.Errorf("w2 is asked to stage: %t, want %t: %+v", staged, tc.next, d.Actions)
			}
		})
	}
}

// Never more nodes of a pool than it bears are at it, and none is cordoned before it
// is ready.
func TestReadyBeforeTaken(t *testing.T) {
	for _, limit := range []int{0, 1, 3, 100} {
		w := staging(12)
		w[3].OnHold, w[5].Ready = true, false
		c := newCluster(pool(func(p *Pool) { p.Staging, p.Budget = limit, 4 }), w...)
		for range 200 {
			in := c.facts()
			d := Next(in)
			going := 0
			for _, m := range w {
				if m.Staging.Ordered && !m.Staging.Ready {
					going++
				}
			}
			for _, a := range d.Actions {
				switch m := c.truth[a.Node]; {
				case a.Verb == Stage:
					going++
					if m.OnHold || !m.Ready || m.Started {
						t.Fatalf("limit %d: %s is asked to stage", limit, a.Node)
					}
				case a.Verb == Cordon && !m.Staging.Ready:
					t.Fatalf("limit %d: %s is taken and has nothing ready", limit, a.Node)
				}
			}
			if going > max(1, limit) {
				t.Fatalf("limit %d: %d nodes are at it", limit, going)
			}
			c.obey(d)
			c.pass(30 * time.Second)
		}
		if n := slices.IndexFunc(w, func(m *member) bool { return !m.AtTarget && !m.OnHold && m.Ready }); n >= 0 {
			t.Fatalf("limit %d: %s never moved: %+v", limit, w[n].Name, w[n].Staging)
		}
	}
}
