package rollout

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/model"
)

// A foreign cordon in one pool changes nothing of what starts in another, and one of
// a worker nothing of what the control plane does.
func TestACordonInOnePoolDoesNotHoldAnother(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		pools := map[string]Pool{}
		for _, name := range []string{"p", "q"} {
			pools[name] = Pool{Name: name, Budget: rapid.IntRange(1, 3).Draw(rt, "budget of "+name)}
		}
		make := func(cordon string) Decision {
			var members []*member
			for _, m := range []struct {
				name, pool string
				cp         bool
			}{{"c1", "p", true}, {"p1", "p", false}, {"p2", "p", false}, {"p3", "p", false}, {"q1", "q", false}, {"q2", "q", false}} {
				x := ok(m.name, m.pool, m.cp)
				if strings.Contains(cordon, m.name) {
					x.Unschedulable, x.AtTarget = true, true
				}
				members = append(members, x)
			}
			return Next(newCluster(pools, members...).facts())
		}
		cordoned := rapid.SliceOfDistinct(rapid.SampledFrom([]string{"p1", "p2", "p3"}), rapid.ID[string]).Draw(rt, "cordoned")
		free, held := make(""), make(strings.Join(cordoned, " "))
		if got, want := startsOutside(held, "p1 p2 p3"), startsOutside(free, "p1 p2 p3"); got != want {
			rt.Fatalf("with %v cordoned %q starts, else %q", cordoned, got, want)
		}
	})
}

func startsOutside(d Decision, without string) string {
	var out []string
	for _, a := range d.Actions {
		if a.Verb == Cordon && !strings.Contains(without, a.Node) {
			out = append(out, a.Node)
		}
	}
	return strings.Join(out, " ")
}

// If only the administrator can end a wait, the decision is Blocked, and a message says so
// before the update starts. A node that is not Ready may recover by itself.
func TestAForeignCordonBlocks(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change  func(*Input, map[string]*member)
		blocked bool
		warning string // before the start
	}{
		"nothing is wrong":                     {func(*Input, map[string]*member) {}, false, ""},
		"a node at its target is cordoned":     {func(_ *Input, w map[string]*member) { w["w2"].Unschedulable, w["w2"].AtTarget = true, true }, true, "w2 is cordoned, but not by refit"},
		"a node at its target is not Ready":    {func(_ *Input, w map[string]*member) { w["w2"].Ready, w["w2"].AtTarget = false, true }, false, ""},
		"a node outside the plan is cordoned":  {func(in *Input, _ map[string]*member) { away(in, "x", true) }, true, "x is cordoned, but not by refit"},
		"a node outside the plan is not Ready": {func(in *Input, _ map[string]*member) { away(in, "x", false) }, false, ""},
		"paused as well": {func(in *Input, _ map[string]*member) {
			away(in, "x", true)
			in.Paused = true
		}, false, "x is cordoned, but not by refit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(pool(nil), ok("w1", "edge", false), ok("w2", "edge", false))
			tc.change(&Input{Pools: map[string]Pool{}}, c.truth)
			facts := func() Input {
				in := c.facts()
				tc.change(&in, c.truth)
				return in
			}
			if d := Next(facts()); d.Blocked != tc.blocked {
				t.Errorf("blocked %t, want %t: %+v", d.Blocked, tc.blocked, d.Blockers)
			}
			vs := ExhaustedBudgets(facts())
			if warned := len(vs) == 1 && model.NeedsPerson(vs) && strings.Contains(vs[0].Message, tc.warning) && vs[0].Fix != ""; warned != (tc.warning != "") {
				t.Errorf("before the start: %+v, want %q", vs, tc.warning)
			}
		})
	}
}

// away takes a place of the pool for a node that the plan does not name.
func away(in *Input, name string, cordoned bool) {
	p := in.Pools["edge"]
	p.Unavailable = append(p.Unavailable, name)
	if cordoned {
		p.Cordoned = append(p.Cordoned, name)
	}
	in.Pools["edge"] = p
}
