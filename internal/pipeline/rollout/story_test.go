package rollout

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/model"
)

var updateGolden = flag.Bool("update", false, "write the golden stories anew")

// story is a rollout from the beginning until nothing moves any more.
type story struct {
	cluster *cluster
	// tick is the time between two looks; 30 s if it is 0.
	tick time.Duration
	// happens is called before each look.
	happens func(c *cluster, look int)
}

func pool(change func(*Pool)) map[string]Pool {
	p := Pool{Name: "edge", Budget: 1}
	if change != nil {
		change(&p)
	}
	return map[string]Pool{"edge": p}
}

func berlin() *time.Location {
	l, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err)
	}
	return l
}

var stories = map[string]func() story{
	"a cordoned worker keeps the workers, not the control plane": func() story {
		gone := ok("w0", "edge", false)
		gone.Unschedulable, gone.AtTarget = true, true
		s := story{cluster: newCluster(pool(nil), gone, ok("c1", "edge", true), ok("w1", "edge", false))}
		s.happens = func(c *cluster, look int) {
			if look == 20 {
				gone.Unschedulable = false // a person uncordons it
			}
		}
		return s
	},
	"a canary is watched, then the others go": func() story {
		return story{cluster: newCluster(pool(func(p *Pool) {
			p.Budget, p.Canary, p.CanarySoak = 2, Amount{Value: 1}, 5*time.Minute
		}), workersOf("edge", 3)...)}
	},
	"a canary fails, is undone, and everything halts": func() story {
		w := workersOf("edge", 3)
		failing(w[0], 1)
		return story{cluster: newCluster(pool(func(p *Pool) { p.Canary, p.Undo, p.MaxFailures = Amount{Value: 1}, true, 5 }), w...)}
	},
	"after an undo a person asks again and it goes through": func() story {
		w := workersOf("edge", 2)
		failing(w[0], 1)
		s := story{cluster: newCluster(pool(func(p *Pool) { p.Undo = true }), w...)}
		s.happens = func(c *cluster, look int) {
			if look == 12 {
				delete(w[0].fails, 1)
				c.in.Retry = 1
			}
		}
		return s
	},
	"an OS image that a node rolled back by itself is retried only by the administrator": func() story {
		w := workersOf("edge", 2)
		failing(w[0], 1).reason = reasonOSUnhealthy
		s := story{cluster: newCluster(pool(func(p *Pool) { p.Attempts = 3 }), w...)}
		s.happens = func(c *cluster, look int) {
			if look == 12 {
				delete(w[0].fails, 1)
				c.in.Retry = 1
			}
		}
		return s
	},
	"an attempt whose journal is damaged is neither tried again nor undone by itself": func() story {
		w := workersOf("edge", 2)
		failing(w[0], 1).reason = reasonJournalCorrupt
		s := story{cluster: newCluster(pool(func(p *Pool) { p.Attempts, p.Undo = 3, true }), w...)}
		s.happens = func(c *cluster, look int) {
			if look == 12 {
				delete(w[0].fails, 1)
				c.in.Retry = 1
			}
		}
		return s
	},
	"a node that cannot be undone says why and halts": func() story {
		c := newCluster(pool(func(p *Pool) { p.Undo = true }), failing(ok("c1", "edge", true), 1), ok("w1", "edge", false))
		c.plan("c1", func(np *model.NodePlan) {
			np.Steps[2].NotReversible = "kubeadm cannot downgrade a control plane"
			np.PointOfNoReturn = "kubeadm"
		})
		return story{cluster: c}
	},
	"an undo that fails leaves the node cordoned": func() story {
		w := workersOf("edge", 2)
		failing(w[0], 1).undoFail = true
		return story{cluster: newCluster(pool(func(p *Pool) { p.Undo = true }), w...)}
	},
	"a failed step is tried as often as the pool says and no more": func() story {
		w := workersOf("edge", 2)
		failing(w[0], 1, 2, 3)
		return story{cluster: newCluster(pool(func(p *Pool) { p.Attempts = 3 }), w...)}
	},
	"the second attempt goes through": func() story {
		w := workersOf("edge", 2)
		failing(w[0], 1)
		return story{cluster: newCluster(pool(func(p *Pool) { p.Attempts = 2 }), w...)}
	},
	"one failure is borne, the second halts": func() story {
		w := workersOf("edge", 5)
		failing(w[0], 1)
		failing(w[2], 1)
		return story{cluster: newCluster(pool(func(p *Pool) { p.MaxFailures, p.Budget = 2, 2 }), w...)}
	},
	"a failure that is borne stays a failure at the end": func() story {
		w := workersOf("edge", 3)
		failing(w[0], 1)
		return story{cluster: newCluster(pool(func(p *Pool) { p.MaxFailures, p.Budget, p.Undo = 2, 1, true }), w...)}
	},
	"one node is tried again by name": func() story {
		w := workersOf("edge", 2)
		failing(w[0], 1)
		failing(w[1], 1)
		s := story{cluster: newCluster(pool(func(p *Pool) { p.MaxFailures, p.Budget = 3, 2 }), w...)}
		s.happens = func(c *cluster, look int) {
			if look == 10 {
				delete(w[1].fails, 1)
				c.in.RetryNodes["w2"] = 1
			}
		}
		return s
	},
	"the window closes, and the rest goes the next night": func() story {
		c := newCluster(pool(func(p *Pool) {
			p.Windows = []Window{{Days: []time.Weekday{time.Friday, time.Saturday}, Start: 22 * 60, Duration: 30 * time.Minute, Zone: berlin()}}
		}), workersOf("edge", 4)...)
		c.in.Learned.Worker = Range{Low: 8 * time.Minute, High: 12 * time.Minute, Samples: 3}
		return story{cluster: c, tick: 3 * time.Minute}
	},
	"no window is long enough": func() story {
		c := newCluster(pool(func(p *Pool) {
			p.Windows = []Window{{Start: 12*60 + 5, Duration: 10 * time.Minute, Zone: time.UTC}}
		}), workersOf("edge", 1)...)
		c.in.Learned.Worker = Range{Low: 15 * time.Minute, High: 20 * time.Minute, Samples: 3}
		return story{cluster: c}
	},
	"a window that cannot be read starts nothing": func() story {
		return story{cluster: newCluster(pool(func(p *Pool) { p.Invalid = "there is no time zone Mars/Olympus" }), workersOf("edge", 1)...)}
	},
	"zone after zone": func() story {
		return story{cluster: newCluster(pool(func(p *Pool) { p.Zones, p.Budget, p.Soak = true, 3, time.Minute }),
			inZone(ok("w1", "edge", false), "b"), inZone(ok("w2", "edge", false), "a"), inZone(ok("w3", "edge", false), "a"), inZone(ok("w4", "edge", false), "b"), ok("w5", "edge", false))}
	},
	"each node is watched before another takes its place": func() story {
		return story{cluster: newCluster(pool(func(p *Pool) { p.Budget, p.Soak = 2, 4*time.Minute }), workersOf("edge", 4)...)}
	},
	"a watched node that is not Ready holds up the rest": func() story {
		w := workersOf("edge", 2)
		s := story{cluster: newCluster(pool(func(p *Pool) { p.Soak = 2 * time.Minute }), w...)}
		s.happens = func(c *cluster, look int) {
			if look == 7 {
				w[0].Ready = false
			}
			if look == 14 {
				w[0].Ready, w[0].ReadySince = true, c.in.Now
			}
		}
		return s
	},
	"a node comes back at its old version": func() story {
		w := workersOf("edge", 3)
		s := story{cluster: newCluster(pool(nil), w...)}
		s.happens = func(_ *cluster, look int) {
			if look == 7 {
				w[0].AtTarget = false
			}
		}
		return s
	},
	"a node that comes back again and again is not tried for ever": func() story {
		w := workersOf("edge", 1)
		s := story{cluster: newCluster(pool(func(p *Pool) { p.Attempts, p.Soak = 3, time.Minute }), w...)}
		s.happens = func(*cluster, int) {
			if !w[0].FinishedAt.IsZero() && !w[0].Started {
				w[0].AtTarget = false
			}
		}
		return s
	},
	"two etcd members": func() story {
		return story{cluster: newCluster(pool(nil), ok("c1", "edge", true), ok("c2", "edge", true))}
	},
	"three etcd members, one is unreachable": func() story {
		cs := []*member{ok("c1", "edge", true), ok("c2", "edge", true), ok("c3", "edge", true)}
		cs[2].etcdDown = true
		s := story{cluster: newCluster(pool(nil), cs...)}
		s.happens = func(_ *cluster, look int) {
			if look == 4 {
				cs[2].etcdDown = false
			}
		}
		return s
	},
	"a single node is not drained": func() story {
		c := newCluster(pool(nil), ok("n1", "edge", true))
		c.plan("n1", func(np *model.NodePlan) {
			np.Steps = append(np.Steps[:1], np.Steps[2:]...)
		})
		return story{cluster: c}
	},
	"a held node is left out until it is released": func() story {
		w := workersOf("edge", 3)
		w[0].OnHold, w[0].HoldReason = true, "a tape robot hangs on it"
		s := story{cluster: newCluster(pool(func(p *Pool) { p.Canary = Amount{Value: 1} }), w...)}
		s.happens = func(_ *cluster, look int) {
			if look == 20 {
				w[0].OnHold = false
			}
		}
		return s
	},
	"paused in the middle": func() story {
		s := story{cluster: newCluster(pool(nil), workersOf("edge", 2)...)}
		s.happens = func(c *cluster, look int) { c.in.Paused = look >= 2 && look < 9 }
		return s
	},
	"a drain that takes too long is tried again when a person asks": func() story {
		w := workersOf("edge", 1)
		w[0].pods = 1000
		s := story{cluster: newCluster(pool(func(p *Pool) { p.DrainTimeout = 2 * time.Minute }), w...)}
		s.happens = func(c *cluster, look int) {
			if look == 9 {
				w[0].pods, c.in.Retry = 3, 1
			}
		}
		return s
	},
	"another actor removes our mark while the node runs": func() story {
		w := workersOf("edge", 1)
		s := story{cluster: newCluster(pool(nil), w...)}
		s.happens = func(_ *cluster, look int) {
			if look == 3 {
				w[0].Started, w[0].Unschedulable = false, false
			}
		}
		return s
	},
}

func TestStories(t *testing.T) {
	for name, make := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := tell(t, make())
			file := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".golden")
			if *updateGolden {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("the story has changed (-want +got); -update writes it anew:\n%s", diff)
			}
		})
	}
}

// tell lets a story happen and writes down what is done and said, when it changes.
func tell(t *testing.T, s story) string {
	if s.tick == 0 {
		s.tick = 30 * time.Second
	}
	var b strings.Builder
	said, quiet := "", 0
	for look := range 3000 {
		if s.happens != nil {
			s.happens(s.cluster, look)
		}
		d := Next(s.cluster.facts())
		before := b.Len()
		now := s.cluster.in.Now.Format("Mon 15:04:05")
		for _, a := range d.Actions {
			if line := actionLine(a); line != "" {
				fmt.Fprintf(&b, "%s %s\n", now, line)
			}
		}
		if v := blockers(d); v != said {
			said = v
			fmt.Fprintf(&b, "%s %d/%d done, %d failed\n%s", now, d.Done, d.Total, d.Failed, v)
		}
		if d.Finished {
			fmt.Fprintf(&b, "%s finished\n", now)
			return b.String()
		}
		if quiet++; b.Len() > before {
			quiet = 0
		}
		if quiet > 40 && len(d.Actions) == 0 && !waits(s, d) {
			fmt.Fprintf(&b, "nothing more happens; halted %t\n", d.Halted)
			return b.String()
		}
		s.cluster.obey(d)
		s.cluster.pass(s.tick)
	}
	t.Fatalf("no end:\n%s", b.String())
	return ""
}

// waits: time alone brings a window or the end of a soak.
func waits(s story, d Decision) bool {
	for _, v := range d.Blockers {
		if v.Reason == reasonOutsideWindow && v.Waiting || v.Reason == reasonSoaking {
			return true
		}
	}
	return false
}

func actionLine(a Action) string {
	switch a.Verb {
	case DrainNode:
		return ""
	case Cordon, Permit:
		return fmt.Sprintf("%s %s, attempt %d (try %d)", a.Verb, a.Node, a.Attempt.Number, a.Attempt.Try)
	case Undo:
		return fmt.Sprintf("%s %s, attempt %d, because %s", a.Verb, a.Node, a.Attempt.Number, a.UndoReason)
	}
	return a.Verb + " " + a.Node
}

func blockers(d Decision) string {
	var b strings.Builder
	for _, v := range d.Blockers {
		kind := "no"
		if v.Waiting {
			kind = "waits"
		}
		fmt.Fprintf(&b, "    %s %s: %s", kind, v.Reason, v.Message)
		if v.Fix != "" {
			b.WriteString(" | " + v.Fix)
		}
		b.WriteString("\n")
	}
	return b.String()
}
