package gate

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A node that still works for a deleted update changes while the next plan is made. That
// plan would be stale when it starts, and a node that seems to be at its target would not
// be in it at all.
func TestNoUpdateStartsWhileANodeIsAtWork(t *testing.T) {
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		node    Node
		running string
		result  string
		says    string
	}{
		"a node of the plan":                        {Node{InPlan: true, Busy: "x"}, "", Closed, "node n1 is still at work for x"},
		"a node that the plan leaves":               {Node{Busy: "x"}, "", Closed, "node n1 is still at work for x"},
		"a node whose agent is silent does nothing": {Node{Busy: "x", Heartbeat: now.Add(-time.Hour)}, "", Warned, "node n1 is still at work for x"},
		"no node is at work":                        {Node{InPlan: true}, "", Passed, ""},
		"the update that moves nodes is named once": {Node{InPlan: true, Busy: "x"}, "other", Closed, "ClusterUpdate other has started"},
	} {
		t.Run(name, func(t *testing.T) {
			n := c.node
			if n.Name, n.AgentKnown = "n1", true; n.Heartbeat.IsZero() {
				n.Heartbeat = now.Add(-time.Minute)
			}
			r := Decide(Input{Now: now, Running: c.running, Nodes: []*Node{&n}, Accepted: []Risk{{Check: "no-other-update", Reason: "never", Until: now.Add(time.Hour)}}})
			a := r.Answers[slices.IndexFunc(r.Answers, func(a Answer) bool { return a.Name == "no-other-update" })]
			if a.Result != c.result || a.Blockers+a.Warnings > 1 {
				t.Fatalf("%+v, want %s", a, c.result)
			}
			said := ""
			for _, v := range slices.Concat(r.Blockers, r.Warnings) {
				if v.Reason == reasonAnotherUpdate {
					said = v.Message
					if !v.Waiting || v.Fix == "" || v.Object == "" {
						t.Errorf("%+v", v)
					}
				}
			}
			if !strings.HasPrefix(said, c.says) || (c.says == "") != (said == "") {
				t.Errorf("it says %q", said)
			}
		})
	}
}
