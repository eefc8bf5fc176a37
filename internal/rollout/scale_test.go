package rollout

import (
	"fmt"
	"testing"
	"time"

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
