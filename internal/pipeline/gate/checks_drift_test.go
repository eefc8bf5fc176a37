package gate

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Drift blocks the start of an update, and the blocker names the drift and its fix. An
// accepted risk, by name and with an expiry, lifts the block.
func TestDrift(t *testing.T) {
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		drift   Drift
		outside bool
		closes  bool
	}{
		"a file":                               {Drift{Kind: DriftFiles, Detail: "/etc/motd is not as refit wrote it"}, false, true},
		"an overlay over /usr":                 {Drift{Kind: DriftOverlay, Detail: "/usr was unlocked"}, false, true},
		"layered packages":                     {Drift{Kind: DriftPackages, Detail: "vim"}, false, true},
		"another deployment":                   {Drift{Kind: DriftForeign, Detail: "the node runs x"}, false, true},
		"undone by hand":                       {Drift{Kind: DriftLeft, Detail: "the file was restored by hand"}, false, true},
		"it rolled back by itself":             {Drift{Kind: DriftFailed, Detail: "it did not come up"}, false, true},
		"drift that the update itself repairs": {Drift{Kind: DriftFiles, Detail: "/etc/motd is not as refit wrote it", RepairedByUpdate: true}, false, false},
		"a kind that is only worth knowing":    {Drift{Kind: "SelfUpdates", Detail: "a timer"}, false, false},
		"a node that the plan leaves":          {Drift{Kind: DriftFiles, Detail: "x"}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			ask := func(risks ...Risk) (Answer, Result) {
				r := Decide(Input{Now: now, Accepted: risks, Nodes: []*Node{{Name: "n1", InPlan: !c.outside, Drift: []Drift{c.drift}}}})
				return r.Answers[slices.IndexFunc(r.Answers, func(a Answer) bool { return a.Name == "drift" })], r
			}
			a, r := ask()
			if (a.Result == Closed) != c.closes || (a.Blockers == 1) != c.closes {
				t.Fatalf("%+v", a)
			}
			for _, v := range r.Blockers {
				if v.Reason == reasonDrifted && (!strings.Contains(v.Message, "n1: "+c.drift.Detail) || v.Fix == "" || v.Object != "Node/n1") {
					t.Errorf("%+v", v)
				}
			}
			if a, _ := ask(Risk{Check: "drift", Reason: "known", Until: now.Add(time.Hour)}); c.closes && a.Result != Accepted {
				t.Errorf("accepted: %+v", a)
			}
			if a, _ := ask(Risk{Check: "drift", Reason: "known", Until: now.Add(-time.Hour)}); c.closes && a.Result != Closed {
				t.Errorf("accepted until an hour ago: %+v", a)
			}
		})
	}
}
