package track

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const longB = "r.example/app:2.6.2-rev1-b5.2@"

// pods of a static pod: n1 of the control plane, n2 and n3 workers, all with an
// older image and well.
func staticTarget(change ...func(*Target)) Target {
	w := Target{Kind: StaticPod, Namespace: "kube-system", Name: "proxy", Critical: true, Settled: true,
		Containers: []Container{{Name: "app", Image: "r.example/app:2.6.2-rev1"}}}
	for _, n := range []string{"n1", "n2", "n3"} {
		w.Nodes = append(w.Nodes, NodePod{Node: n, ControlPlane: n == "n1", Ready: true, Containers: []Container{{Name: "app", Image: "r.example/app:2.6.2-rev1"}}})
	}
	for _, c := range change {
		c(&w)
	}
	return w
}

// on changes what is seen of nodes.
func on(nodes string, how ...func(*NodePod)) func(*Target) {
	return func(w *Target) {
		for i := range w.Nodes {
			if strings.Contains(nodes, w.Nodes[i].Node) {
				for _, h := range how {
					h(&w.Nodes[i])
				}
			}
		}
	}
}

func hasIt(n *NodePod)   { n.Containers[0].Image = longB + d("b") }
func noReady(n *NodePod) { n.Ready = false }
func came(state, reason string) func(*NodePod) {
	return func(n *NodePod) { n.Run = &NodeRun{Attempt: 1, State: state, Reason: reason, Message: "as it says"} }
}
func undo(state string) func(*NodePod) {
	return func(n *NodePod) {
		n.Run = &NodeRun{Attempt: 2, Undo: true, State: state, UndoReason: "it hung", Message: "as it says"}
	}
}

// Static pods last, workers before control planes, one node
// at a time, each ready before the next starts.
func TestStaticPodsNodeByNode(t *testing.T) {
	t.Parallel()
	held := Preload{Wanted: true, Done: 3, Nodes: 3}
	for name, c := range map[string]struct {
		targets []Target
		pre     Preload
		gate    Gate
		propose bool
		states  []string
		// node that gets a permission, "" for none; undo: to roll back; turn: the node with the turn.
		node string
		undo bool
		turn string
		says string
	}{
		"workers first": {targets: []Target{staticTarget()}, pre: held, states: []string{Rolling}, node: "n2", turn: "n2", says: "0 of 3 nodes have it"},
		"one at a time: its agent has the permission":      {targets: []Target{staticTarget(on("n2", func(n *NodePod) { n.Run = &NodeRun{Attempt: 1} }))}, pre: held, states: []string{Rolling}, turn: "n2", says: "its agent has the permission"},
		"one at a time: it runs":                           {targets: []Target{staticTarget(on("n2", came(RunRunning, "Updating")))}, pre: held, states: []string{Rolling}, turn: "n2", says: "as it says"},
		"its report is waited for":                         {targets: []Target{staticTarget(on("n2", hasIt, came(RunRunning, "")))}, pre: held, states: []string{Rolling}, turn: "n2", says: "1 of 3"},
		"then the next worker":                             {targets: []Target{staticTarget(on("n2", hasIt, came(RunSucceeded, "")))}, pre: held, states: []string{Rolling}, node: "n3", turn: "n3", says: "1 of 3"},
		"the one before must be Ready":                     {targets: []Target{staticTarget(on("n2", hasIt, noReady, came(RunSucceeded, "")))}, pre: held, states: []string{Waiting}, says: "not Ready: the next one waits"},
		"the control plane last":                           {targets: []Target{staticTarget(on("n2 n3", hasIt))}, pre: held, states: []string{Rolling}, node: "n1", turn: "n1"},
		"not while the control plane is ill":               {targets: []Target{staticTarget(on("n2 n3", hasIt))}, pre: held, gate: Gate{ControlPlane: "the etcd member of node n7 is not Ready"}, states: []string{Waiting}, says: "control-plane node n1 waits: the etcd member"},
		"workers need it not":                              {targets: []Target{staticTarget()}, pre: held, gate: Gate{ControlPlane: "ill"}, states: []string{Rolling}, node: "n2", turn: "n2"},
		"all have it":                                      {targets: []Target{staticTarget(on("n1 n2 n3", hasIt))}, pre: held, states: []string{Current}},
		"all have it, one is not well":                     {targets: []Target{staticTarget(on("n1 n2 n3", hasIt), on("n1", noReady))}, pre: held, states: []string{Rolling}, says: "node n1 has it, and its pod is not Ready"},
		"nothing before the nodes hold it":                 {targets: []Target{staticTarget()}, pre: Preload{Wanted: true, Done: 2, Nodes: 3, Why: "node n3: no room"}, states: []string{Preloading}, says: "no room"},
		"nothing that is not on the node":                  {targets: []Target{staticTarget()}, states: []string{Stopped}, says: "spec.preload"},
		"a started step ends with any preload state":       {targets: []Target{staticTarget(on("n2", came(RunRunning, "")))}, pre: Preload{Wanted: true, Nodes: 3}, states: []string{Rolling}, turn: "n2"},
		"not while a ClusterUpdate moves nodes":            {targets: []Target{staticTarget()}, pre: held, gate: Gate{Update: "to-1-36"}, states: []string{Waiting}, says: "ClusterUpdate to-1-36"},
		"not while another track has the turn":             {targets: []Target{staticTarget()}, pre: held, gate: Gate{Turn: "ImageTrack lb on node n2"}, states: []string{Waiting}, says: "ImageTrack lb"},
		"not outside of the windows":                       {targets: []Target{staticTarget(func(w *Target) { w.Closed = "opens at night" })}, pre: held, states: []string{Waiting}, says: "opens at night"},
		"not without the right to":                         {targets: []Target{staticTarget(func(w *Target) { w.Denied = "kubectl create rolebinding" })}, pre: held, states: []string{Stopped}, says: "rolebinding"},
		"a node that is not well waits, another one goes":  {targets: []Target{staticTarget(on("n2", func(n *NodePod) { n.Unready = "it is not Ready" }))}, pre: held, states: []string{Rolling}, node: "n3", turn: "n3"},
		"only one is left, and it is not well":             {targets: []Target{staticTarget(on("n1 n3", hasIt), on("n2", func(n *NodePod) { n.Unready = "its agent is silent" }))}, pre: held, states: []string{Waiting}, says: "node n2 waits: its agent is silent"},
		"a node that runs an update's steps is left alone": {targets: []Target{staticTarget(on("n2 n3", func(n *NodePod) { n.Busy = "to-1-36" }))}, pre: held, states: []string{Rolling}, node: "n1", turn: "n1"},
		"after all others": {targets: []Target{staticTarget(), target(Deployment, "a"), target(DaemonSet, "b", func(w *Target) { w.Critical = true })}, pre: held,
			states: []string{Waiting, Rolling, Waiting}, says: "the turn of"},
		"failed and restored: halted":                           {targets: []Target{staticTarget(on("n2", came(RunFailed, "StaticPodNotReady")))}, pre: held, states: []string{Stopped}, says: "no other node starts; raise spec.retry"},
		"failed before anything was changed: halted":            {targets: []Target{staticTarget(on("n2", came(RunFailed, "StaticPodRefused")))}, pre: held, states: []string{Stopped}, says: "as it says"},
		"failed in the middle: it must roll back":               {targets: []Target{staticTarget(on("n2", hasIt, came(RunFailed, "StepDeadline")))}, pre: held, states: []string{Rolling}, node: "n2", undo: true, turn: "n2", says: "must roll back"},
		"an earlier step finishes first, also of another image": {targets: []Target{staticTarget(on("n3", func(n *NodePod) { n.Ending = true }))}, pre: held, states: []string{Rolling}, turn: "n3", says: "finishes an earlier step"},
		"it rolls back":                                          {targets: []Target{staticTarget(on("n2", undo(RunRunning)))}, pre: held, states: []string{Rolling}, turn: "n2", says: "rolls back"},
		"it has taken it back: halted":                           {targets: []Target{staticTarget(on("n2", undo(RunUndone)))}, pre: held, states: []string{Stopped}, says: "it hung; no other node"},
		"it could not roll back: halted":                         {targets: []Target{staticTarget(on("n2", undo(RunFailed)))}, pre: held, states: []string{Stopped}, says: "could not roll back"},
		"a user changed the manifest: halted":                    {targets: []Target{staticTarget(on("n2", came(RunSucceeded, "")))}, pre: held, states: []string{Stopped}, says: "its manifest has another image"},
		"a halt counts before the preload, and before the gates": {targets: []Target{staticTarget(on("n2", came(RunFailed, "ImagesMissing")))}, pre: Preload{Wanted: true, Nodes: 3}, gate: Gate{Update: "u"}, states: []string{Stopped}, says: "as it says"},
		"kubeadm's own are never touched":                        {targets: []Target{staticTarget(func(w *Target) { w.Kubeadm = true })}, pre: held, states: []string{Stopped}, says: "only a ClusterUpdate changes it"},
		"kubeadm's own, which have it":                           {targets: []Target{staticTarget(func(w *Target) { w.Kubeadm = true }, on("n1 n2 n3", hasIt))}, pre: held, states: []string{Current}},
		"a track that only proposes":                             {targets: []Target{staticTarget()}, pre: held, propose: true, states: []string{Proposed}, says: "spec.mode"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows, step := Roll(c.targets, approved, c.pre, c.gate, c.propose)
			var states []string
			said := ""
			for _, r := range rows {
				states = append(states, r.State)
				said += r.Message + "\n"
			}
			if diff := cmp.Diff(c.states, states); diff != "" || step.Node.Node != c.node || step.Node.Undo != c.undo || step.Turn != c.turn || !strings.Contains(said, c.says) {
				t.Fatalf("%s %+v said %s", diff, step, said)
			}
			if step.Node.Undo && step.Node.Attempt != 2 || step.Node.Node != "" && !step.Node.Undo && step.Node.Attempt != 1 {
				t.Fatalf("attempt %d", step.Node.Attempt)
			}
		})
	}
}

// For any reports of nodes, there are never two nodes at once, no control-plane node before a
// worker that could start, and no node after a failure.
func TestNeverTwoNodesAtOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := staticTarget()
		w.Nodes = nil
		for i := range rapid.IntRange(1, 8).Draw(t, "nodes") {
			w.Nodes = append(w.Nodes, NodePod{Node: fmt.Sprintf("n%d", i), ControlPlane: rapid.Bool().Draw(t, "control plane"), Ready: true,
				Containers: []Container{{Name: "app", Image: "r.example/app:2.6.2-rev1"}}})
		}
		pre := Preload{Wanted: true}
		failed := false
		for range 200 {
			running := 0
			for i := range w.Nodes {
				n := &w.Nodes[i]
				if n.isRunning() {
					running++
				}
				n.Unready = rapid.SampledFrom([]string{"", "", "", "it is not Ready"}).Draw(t, "sick")
			}
			rows, step := Roll([]Target{w}, approved, pre, Gate{}, false)
			if n := step.Node; n.Node != "" && !n.Undo {
				if running > 0 || failed {
					t.Fatalf("%s started: %d run, failed %v: %+v", n.Node, running, failed, w.Nodes)
				}
				for i := range w.Nodes {
					x := &w.Nodes[i]
					switch {
					case x.Node == n.Node:
						x.Run = &NodeRun{Attempt: 1, State: rapid.SampledFrom([]string{"", RunRunning}).Draw(t, "state")}
					case !x.ControlPlane && x.changes(approved) && x.Unready == "":
						if i := w.index(n.Node); w.Nodes[i].ControlPlane {
							t.Fatalf("control-plane node %s before worker %s", n.Node, x.Node)
						}
					}
				}
			}
			for i := range w.Nodes {
				n := &w.Nodes[i]
				if !n.isRunning() || !rapid.Bool().Draw(t, "ends") {
					continue
				}
				if rapid.IntRange(0, 19).Draw(t, "fails") == 0 {
					n.Run.State, n.Run.Reason, failed = RunFailed, "StaticPodNotReady", true
					continue
				}
				n.Run.State = RunSucceeded
				hasIt(n)
			}
			if rows[0].State == Current {
				return
			}
		}
		if !failed {
			t.Fatalf("no end: %+v", w.Nodes)
		}
	})
}

func (w *Target) index(node string) int {
	for i := range w.Nodes {
		if w.Nodes[i].Node == node {
			return i
		}
	}
	return -1
}
