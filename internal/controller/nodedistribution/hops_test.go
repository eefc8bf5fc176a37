package nodedistribution

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// Nodes hold the bundles of all hops until the whole update is done; of two that give one name to
// different images the current hop comes first. Afterwards the hops are releases of the past.
func TestHopsAreHeld(t *testing.T) {
	t.Parallel()
	now := metav1.NewTime(at(5).Time)
	for name, c := range map[string]struct {
		change      func(*v1alpha1.ClusterUpdate)
		order, uses string
	}{
		"the first hop runs": {func(*v1alpha1.ClusterUpdate) {}, "b c a", "Runs Update Update"},
		"between the hops":   {func(u *v1alpha1.ClusterUpdate) { u.Status.Hops[0].FinishedAt = &now }, "c b a", "Runs Update Update"},
		"it halted in the second": {func(u *v1alpha1.ClusterUpdate) {
			u.Status.Phase, u.Status.Hops[0].FinishedAt, u.Status.Hops[1].StartedAt = v1alpha1.PhaseHalted, &now, &now
		}, "c b a", "Runs Update Update"},
		"it is done": {func(u *v1alpha1.ClusterUpdate) {
			u.Status.Hops[0].FinishedAt, u.Status.Hops[1].StartedAt, u.Status.Hops[1].FinishedAt = &now, &now, &now
			end := at(9)
			u.Status.Phase, u.Status.FinishedAt = v1alpha1.PhaseDone, &end
		}, "c a b", "Released Rollback Runs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := releases()
			start := at(4)
			u := v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "up", UID: "u"}, Spec: v1alpha1.ClusterUpdateSpec{Bundle: dig("c"), Hops: []string{dig("b")}},
				Status: v1alpha1.ClusterUpdateStatus{Phase: v1alpha1.PhaseUpdating, PlanDigest: "p", StartedAt: &start, Hops: []v1alpha1.HopStatus{{Bundle: dig("b"), StartedAt: &start}, {Bundle: dig("c")}}}}
			c.change(&u)
			f.moves = append(f.moves[:1], u) // the cluster was updated to a before
			f.nodes[0].Status.NodeInfo.KubeletVersion = "v1.36.3"
			w, approvals, order := f.decideAll()
			var names, uses []string
			for _, d := range order {
				names = append(names, d[7:8])
			}
			for _, d := range []string{dig("a"), dig("b"), dig("c")} {
				uses = append(uses, string(w.retained[d].Use))
			}
			if got := strings.Join(names, " "); got != c.order || strings.Join(uses, " ") != c.uses {
				t.Errorf("order %s, uses %v; want %s, %s", got, uses, c.order, c.uses)
			}
			if u.Status.Phase == v1alpha1.PhaseDone {
				return
			}
			gone := w.removableSets(nil) // even if no approval is left
			if slices.ContainsFunc(gone, func(s *v1alpha1.PinnedImageSet) bool { return s.Spec.Bundle != dig("a") }) {
				t.Errorf("the set of a hop goes: %+v", gone)
			}
			if want := w.headersWanted(approvals); !want[dig("b")] || !want[dig("c")] {
				t.Errorf("headers of the hops are not kept: %v", want)
			}
		})
	}
}
