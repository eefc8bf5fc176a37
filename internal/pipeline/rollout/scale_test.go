package rollout

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/model"
)

// halfWay is a large update in its middle: half of the nodes are done, as many
// as the budget allows are moving, the rest waits.
func halfWay(nodes, budget int) Input {
	now := time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC)
	steps := []model.Step{{ID: "cordon"}, {ID: "drain"}, {ID: "kubeadm", By: model.ByAgent}, {ID: "kubelet", By: model.ByAgent}, {ID: "settle", By: model.ByAgent}, {ID: "uncordon"}}
	in := Input{Now: now, Nodes: map[string]Node{}, Plan: model.Plan{Version: model.PlanVersion}}
	pool := Pool{Name: "workers", Budget: budget}
	for i := range nodes {
		name := fmt.Sprintf("node-%05d", i)
		in.Plan.Nodes = append(in.Plan.Nodes, model.NodePlan{Node: name, Pool: "workers", Role: model.RoleWorker, From: "v1.35.4", To: "v1.36.3", Steps: steps})
		n := Node{Name: name, Ready: true, ReadySince: now.Add(-time.Hour)}
		switch {
		case i < nodes/2:
			n.AtTarget, n.FinishedAt = true, now.Add(-10*time.Minute)
		case i < nodes/2+budget:
			n.Started, n.StartedAt, n.Attempt, n.Unschedulable = true, now.Add(-time.Minute), Attempt{Number: 1, Try: 1}, true
			n.Run = &Run{Attempt: n.Attempt, State: RunRunning, Step: "kubeadm"}
			pool.Unavailable = append(pool.Unavailable, name)
		}
		in.Nodes[name] = n
	}
	in.Pools = map[string]Pool{"workers": pool}
	return in
}

// BenchmarkNext30000 decides once for thirty thousand nodes with a budget of 1,500.
func BenchmarkNext30000(b *testing.B) {
	in := halfWay(30000, 1500)
	for b.Loop() {
		if d := Next(in); d.Done != 15000 || len(d.Current) != 1500 {
			b.Fatalf("%d done, %d current", d.Done, len(d.Current))
		}
	}
}

// A large update goes on within its budget, however many wait.
func TestALargeUpdateKeepsItsBudget(t *testing.T) {
	t.Parallel()
	in := halfWay(3000, 150)
	if d := Next(in); len(d.Actions) != 0 || len(d.Current) != 150 {
		t.Fatalf("with the budget spent: %d actions, %d current", len(d.Actions), len(d.Current))
	}
	p := in.Pools["workers"]
	p.Budget = 200
	in.Pools["workers"] = p
	if d := Next(in); len(d.Actions) != 50 || len(d.Current) != 200 {
		t.Errorf("with room for fifty: %d actions, %d current", len(d.Actions), len(d.Current))
	}
}

// The short way to a node's stage says what the long way says.
func TestStageOfMostIsTheStage(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		flag := rapid.Bool()
		n := Node{Name: "n1", Gone: flag.Draw(t, "gone"), Ready: flag.Draw(t, "ready"), Started: flag.Draw(t, "started"), AtTarget: flag.Draw(t, "at target"), OnHold: flag.Draw(t, "held"), ReportsOldVersion: flag.Draw(t, "old")}
		if flag.Draw(t, "finished") {
			n.FinishedAt = now.Add(-time.Minute)
		}
		if flag.Draw(t, "run") {
			n.Run = &Run{Attempt: Attempt{Number: rapid.Int32Range(0, 2).Draw(t, "attempt")}, Undo: flag.Draw(t, "undo"),
				State: rapid.SampledFrom([]string{"", RunRunning, RunSucceeded, RunFailed, RunUndone}).Draw(t, "state")}
		}
		n.Attempt.Number = rapid.Int32Range(0, 2).Draw(t, "marked")
		np := model.NodePlan{Node: "n1", Pool: "workers", Role: model.RoleWorker, Steps: []model.Step{{ID: "drain"}, {ID: "kubelet", By: model.ByAgent}}}
		in := Input{Now: now, Plan: model.Plan{Nodes: []model.NodePlan{np}}, Nodes: map[string]Node{"n1": n}, Retry: rapid.Int32Range(0, 2).Draw(t, "retry"),
			Pools: map[string]Pool{"workers": {Name: "workers", Budget: 1, Undo: flag.Draw(t, "undoes"), Attempts: 2}}}
		if stage, idle := stageOfIdleNode(&n); idle && stage != stageOf(&in, np, n) {
			t.Fatalf("%s the short way, %s the long way: %+v", stage, stageOf(&in, np, n), n)
		}
	})
}

// Who gives the facts in a row gets the decision that the map gives.
func TestInRowIsTheSame(t *testing.T) {
	t.Parallel()
	in := halfWay(300, 20)
	want := Next(in)
	var row []*Node
	at := map[string]int{}
	for i := range in.Plan.Nodes {
		n := in.Nodes[in.Plan.Nodes[i].Node]
		row, at[n.Name] = append(row, &n), i
	}
	in.Nodes = nil
	in.InRow(row, at, BootedImages(&in.Plan))
	if d := cmp.Diff(want, Next(in), cmp.AllowUnexported(Stages{})); d != "" {
		t.Error(d)
	}
}
