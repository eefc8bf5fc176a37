package gatefacts

import (
	"slices"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/gate"
)

// The gate asks before the first hop for what all hops need: the updaters of every hop, and the last
// version. Nodes with steps in a later hop need an agent that knows hops. There is room for two
// snapshots at most.
func TestMovesOfHops(t *testing.T) {
	t.Parallel()
	step := func(updater string) model.Step { return model.Step{ID: updater, Updater: updater, By: model.ByAgent} }
	hop := func(version string, nodes ...model.NodePlan) model.Plan {
		return model.Plan{Target: model.Target{Bundle: version, Kubernetes: version}, Nodes: nodes}
	}
	cp := func() model.NodePlan {
		return model.NodePlan{Node: "c1", Role: model.RoleControlPlane, Pool: "p", Steps: []model.Step{step("kubeadm")}}
	}
	worker := model.NodePlan{Node: "w1", Role: model.RoleWorker, Pool: "p", Steps: []model.Step{step("kubelet"), {ID: "drain"}}}
	first := model.NodePlan{Node: "w2", Role: model.RoleWorker, Pool: "p", Steps: []model.Step{step("files")}}
	p := hop("v1.35.1", cp(), first)
	p.Then = []model.Plan{hop("v1.36.1", cp()), hop("v1.37.1", cp(), worker)}
	m := MovesOf(p)
	if m.target != "v1.37.1" || m.controlPlanes != 3 || m.workers["p"] != 2 || !m.Drains("w1") {
		t.Errorf("%+v", m)
	}
	for node, knows := range map[string]bool{"c1": true, "w1": true, "w2": false} {
		if n := m.Needs(node); n == nil || slices.Contains(n.Formats, model.HopsVersion) != knows {
			t.Errorf("%s needs an agent that knows hops: %t, got %+v", node, knows, n)
		}
	}
	if n := m.Needs("w1"); !slices.Equal(n.Updaters, []string{"kubelet"}) {
		t.Errorf("updaters of w1: %v", n.Updaters)
	}
	for snapshots, want := range map[int]int64{0: 0, 1: 1, 2: 2, 3: 2} {
		g := &gate.Node{}
		healthFacts(g, &v1alpha1.NodeHealth{Etcd: &v1alpha1.EtcdHealth{SizeBytes: 1000}}, snapshots)
		if g.Snapshot != want*model.EtcdSnapshotSpace(1000) {
			t.Errorf("%d hops: room of %d bytes", snapshots, g.Snapshot)
		}
	}
	if alone := MovesOf(hop("v1.35.1", cp())); slices.Contains(alone.Needs("c1").Formats, model.HopsVersion) || alone.snapshots["c1"] != 1 {
		t.Errorf("without hops nothing more is asked: %+v", alone.Needs("c1"))
	}
}
