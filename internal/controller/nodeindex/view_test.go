package nodeindex

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// The view after any events is the one that sorting all objects anew would give, and its
// edition changes exactly when the order of the nodes does.
func TestTheViewIsThatOfAllObjects(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := testIndex()
		nodes, updates := map[string]*corev1.Node{}, map[string]*v1alpha1.NodeUpdate{}
		name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
		for round := range rapid.IntRange(1, 12).Draw(t, "rounds") {
			before := x.view
			for i := range rapid.IntRange(0, 6).Draw(t, "events") {
				n, version := name.Draw(t, "name"), fmt.Sprint(round*10+i)
				switch rapid.IntRange(0, 3).Draw(t, "event") {
				case 0:
					nodes[n] = node(n, "u", version)
					x.nodes.put(nodes[n])
				case 1:
					delete(nodes, n)
					x.nodes.remove(node(n, "u", version))
				case 2:
					updates[n] = report(n, version)
					x.updates.put(updates[n])
				case 3:
					delete(updates, n)
					x.updates.remove(report(n, version))
				}
			}
			got, want := x.refresh(), View{Edition: before.Edition}
			for _, n := range slices.Sorted(maps.Keys(nodes)) {
				want.Nodes, want.Reports = append(want.Nodes, nodes[n]), append(want.Reports, updates[n])
			}
			for _, n := range slices.Sorted(maps.Keys(updates)) {
				if nodes[n] == nil {
					want.Departed = append(want.Departed, updates[n])
				}
			}
			sameNames := slices.EqualFunc(before.Nodes, want.Nodes, func(a, b *corev1.Node) bool { return a.Name == b.Name })
			if !sameNames {
				want.Edition++
			}
			if !slices.Equal(got.Nodes, want.Nodes) || !slices.Equal(got.Reports, want.Reports) || !slices.Equal(got.Departed, want.Departed) || got.Edition != want.Edition {
				t.Fatalf("round %d (-want +got):\n%s", round, cmp.Diff(want, *got))
			}
		}
	})
}
