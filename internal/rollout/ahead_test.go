package rollout

import (
	"slices"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/rollout/window"
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
	stories["outside its window a pool makes ready, and takes no node"] = func() story {
		return story{cluster: newCluster(pool(func(p *Pool) {
			p.Staging, p.Windows = 5, []window.Window{{Start: 12*60 + 5, Duration: 60 * time.Minute, Zone: time.UTC}}
		}), staging(2)...)}
	}
}

// Never more nodes of a pool than it bears are at it, and none is cordoned before it
// is ready (R2.91).
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
