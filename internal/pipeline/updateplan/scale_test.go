package updateplan_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// large is a cluster of one control-plane node that is at the target, and many
// workers that are not.
func large(workers int) updateplan.Input {
	in := updateplan.Input{Target: model.Target{Bundle: "sha256:0", Name: "b", Version: "1.36.3", Kubernetes: "v1.36.3"}, KubeadmVersion: "v1.36.3",
		Payloads: []updateplan.Payload{{Name: "kubeadm", Platform: "linux/amd64"}, {Name: "kubelet", Platform: "linux/amd64"}},
		Pools:    []updateplan.Pool{{Name: "workers"}},
		Nodes:    []updateplan.Node{{Name: "cp", ControlPlane: true, Kubelet: "v1.36.3", ControlPlaneVersion: "v1.36.3", Platform: "linux/amd64"}}}
	for i := range workers {
		in.Nodes = append(in.Nodes, updateplan.Node{Name: fmt.Sprintf("node-%05d", i), Pools: []string{"workers"}, Kubelet: "v1.35.4", Platform: "linux/amd64",
			Current: updateplan.Fields{"program/runc": "sha256:1"}})
	}
	return in
}

// BenchmarkMake30000 plans thirty thousand nodes that are all alike.
func BenchmarkMake30000(b *testing.B) {
	in := large(30000)
	for b.Loop() {
		if out := updateplan.Make(in); len(out.Plan.Nodes) != 30000 {
			b.Fatalf("%d nodes planned, %v", len(out.Plan.Nodes), out.Blockers)
		}
	}
}

// A node's plan does not depend on which nodes were planned before it: sharing
// among nodes that are alike is invisible. An updater that claims nothing turns
// sharing off.
func TestNodesThatAreAlikeGetWhatEachWouldGet(t *testing.T) {
	t.Parallel()
	idle := updateplan.Updater{Name: "idle", Claim: func(updateplan.Question) updateplan.Claim { return updateplan.Claim{} }}
	rapid.Check(t, func(t *rapid.T) {
		pick := func(name string, of ...string) string { return rapid.SampledFrom(of).Draw(t, name) }
		in := large(0)
		in.Pools = append(in.Pools, updateplan.Pool{Name: "others", Order: 1})
		for i := range rapid.IntRange(0, 12).Draw(t, "nodes") {
			n := updateplan.Node{Name: fmt.Sprintf("n%02d", i), Kubelet: pick("kubelet", "v1.35.4", "v1.36.3", "v1.32.0", "1.36.3", "v1.37.0", "odd"), Platform: pick("platform", "linux/amd64", "linux/arm64"),
				Current: updateplan.Fields{"file/a": pick("current", "", "x", "y")}, Desired: updateplan.Fields{"file/a": pick("desired", "x", "y")}}
			n.Pools = map[string][]string{"none": nil, "one": {"workers"}, "other": {"others"}, "two": {"workers", "others"}}[pick("pools", "none", "one", "other", "two")]
			in.Nodes = append(in.Nodes, n)
		}
		alone := in
		alone.Updaters = []updateplan.Updater{idle}
		if d := cmp.Diff(updateplan.Make(alone), updateplan.Make(in)); d != "" {
			t.Fatal(d)
		}
	})
}
