package track

import (
	"strings"
	"testing"
)

// drained is a DaemonSet with OnDelete whose template is as approved; n1 and n2 still run old pods.
func drained(change ...func(*Target)) Target {
	w := target(DaemonSet, "net", done, func(w *Target) {
		w.OnDelete, w.Drains, w.Old, w.NodeOf = true, true, []string{"net-1", "net-2"}, map[string]string{"net-1": "n1", "net-2": "n2"}
		w.Progress = "1 of 2 pods are available"
	})
	for _, c := range change {
		c(&w)
	}
	return w
}

func drains(d NodeDrain) func(*Target) { return func(w *Target) { w.Drain = d } }

// left are the pods that still run another image.
func left(pods ...string) func(*Target) { return func(w *Target) { w.Old = pods } }

// A node is drained before its pod goes, and stays cordoned until the new pod is Ready. The
// turn is what keeps it cordoned.
func TestDrains(t *testing.T) {
	t.Parallel()
	down := func(w *Target) { w.Settled, w.Down = false, 1 }
	for name, c := range map[string]struct {
		target Target
		gate   Gate
		state  string
		// drain, evict and turn as in Step.
		drain, evict, turn string
		says               string
	}{
		"the first node":                         {target: drained(), state: Rolling, drain: "n1", turn: "n1", says: "2 pods still run another image; node n1 is drained next"},
		"pods are left":                          {target: drained(drains(NodeDrain{Node: "n1", Message: "3 pods left"})), state: Rolling, drain: "n1", turn: "n1", says: "node n1 is drained: 3 pods left"},
		"it is empty":                            {target: drained(drains(NodeDrain{Node: "n1", Empty: true})), state: Rolling, evict: "net-1", turn: "n1"},
		"it is empty, a budget allows nothing":   {target: drained(drains(NodeDrain{Node: "n1", Empty: true}), func(w *Target) { w.Budgets = []Budget{{Name: "shop/net"}} }), state: Rolling, turn: "n1", says: "waits for budget shop/net"},
		"the new pod is not Ready":               {target: drained(drains(NodeDrain{Node: "n1", Empty: true}), left("net-2"), down), state: Rolling, turn: "n1", says: "stays cordoned until its new pod is Ready; 1 of 2"},
		"the new pod is Ready: the next node":    {target: drained(drains(NodeDrain{Node: "n1", Empty: true, Replaced: true}), left("net-2")), state: Rolling, drain: "n2", turn: "n2"},
		"the last one: no node keeps its cordon": {target: drained(drains(NodeDrain{Node: "n2", Empty: true, Replaced: true}), left()), state: Current},
		"a pod is down elsewhere":                {target: drained(left("net-2"), down), state: Rolling, says: "1 of 2 pods are available"},
		"a node that is not well is passed over": {target: drained(func(w *Target) { w.Undrainable = map[string]string{"n1": "it is not Ready"} }), state: Rolling, drain: "n2", turn: "n2"},
		"no node is well":                        {target: drained(func(w *Target) { w.Undrainable = map[string]string{"n1": "it is not Ready", "n2": "x"} }), state: Waiting, says: "node n1 waits: it is not Ready"},
		"not while a ClusterUpdate moves nodes":  {target: drained(), gate: Gate{Update: "to-1-36"}, state: Waiting, says: "ClusterUpdate to-1-36"},
		"not while another track has the turn":   {target: drained(), gate: Gate{Turn: "ImageTrack lb on node n2"}, state: Waiting, says: "ImageTrack lb"},
		"not outside of the windows":             {target: drained(func(w *Target) { w.Closed = "opens at night" }), state: Waiting, says: "opens at night"},
		"what has started ends in any window":    {target: drained(drains(NodeDrain{Node: "n1", Empty: true}), func(w *Target) { w.Closed = "opens at night" }), state: Rolling, evict: "net-1", turn: "n1"},
		"with RollingUpdate": {target: target(DaemonSet, "net", func(w *Target) { w.Drains = true }), state: Stopped,
			says: "spec.drain needs the updateStrategy OnDelete"},
		"a Deployment needs no drain":            {target: target(Deployment, "app", done), state: Current},
		"a static pod":                           {target: staticTarget(static), state: Rolling, drain: "n2", turn: "n2", says: "node n2 is drained first: 0 of 3 nodes have it"},
		"a static pod, pods are left":            {target: staticTarget(static, drains(NodeDrain{Node: "n2", Message: "1 pod left"})), state: Rolling, drain: "n2", turn: "n2", says: "1 pod left"},
		"a static pod has it, and is not Ready":  {target: staticTarget(static, drains(NodeDrain{Node: "n2", Empty: true}), on("n2", hasIt, noReady, came(RunSucceeded, ""))), state: Waiting, turn: "n2", says: "not Ready"},
		"a static pod has it: the next node":     {target: staticTarget(static, drains(NodeDrain{Node: "n2", Empty: true}), on("n2", hasIt, came(RunSucceeded, ""))), state: Rolling, drain: "n3", turn: "n3"},
		"a static pod that failed: released":     {target: staticTarget(static, drains(NodeDrain{Node: "n2", Empty: true}), on("n2", came(RunFailed, "StaticPodNotReady"))), state: Stopped, says: "no other node starts"},
		"the last static pod, and is not Ready":  {target: staticTarget(static, drains(NodeDrain{Node: "n1", Empty: true}), on("n1 n2 n3", hasIt), on("n1", noReady)), state: Rolling, turn: "n1", says: "not Ready"},
		"a static pod on a node that is drained": {target: staticTarget(static, drains(NodeDrain{Node: "n2", Empty: true}), on("n2", came(RunRunning, ""))), state: Rolling, turn: "n2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows, step := Roll([]Target{c.target}, approved, Preload{Wanted: true, Done: 3, Nodes: 3}, c.gate, false)
			if r := rows[0]; r.State != c.state || !strings.Contains(r.Message, c.says) || step.Drain != c.drain || step.Evict != c.evict || step.Turn != c.turn {
				t.Errorf("%s: %s; %+v", r.State, r.Message, step)
			}
		})
	}
	_, step := Roll([]Target{staticTarget(static, drains(NodeDrain{Node: "n2", Empty: true}))}, approved, Preload{Wanted: true}, Gate{}, false)
	if step.Node.Node != "n2" || step.Turn != "n2" || step.Drain != "" {
		t.Errorf("a static pod is written when its node is empty: %+v", step)
	}
}

func static(w *Target) { w.Drains = true }

// A node that is drained keeps the turn although another target has become busy.
func TestADrainedNodeKeepsItsTurn(t *testing.T) {
	t.Parallel()
	targets := []Target{target(Deployment, "app", done, unwell),
		drained(drains(NodeDrain{Node: "n1", Empty: true}), left("net-2"), func(w *Target) { w.Settled, w.Down = false, 1 })}
	rows, step := Roll(targets, approved, Preload{}, Gate{}, false)
	if step.Turn != "n1" || step.TurnOf != 1 || rows[0].State != Rolling {
		t.Errorf("%+v %+v", rows, step)
	}
}

// A track that only proposes evicts nothing, also where the template has the image already.
func TestProposingEvictsNothing(t *testing.T) {
	t.Parallel()
	for _, w := range []Target{drained(), drained(func(w *Target) { w.Drains = false }), drained(drains(NodeDrain{Node: "n1", Empty: true}))} {
		rows, step := Roll([]Target{w}, approved, Preload{}, Gate{}, true)
		if step.Drain != "" || step.Evict != "" || step.Turn != "" || rows[0].State != Waiting || !strings.Contains(rows[0].Message, "only proposes") {
			t.Errorf("%+v %+v", rows, step)
		}
	}
}
