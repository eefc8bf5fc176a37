package updatecmd

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/render"
)

// upTo is an update through two hops to c; of its three hops, done are done, and the next one has
// started or not.
func upTo(done int, started bool) *v1alpha1.ClusterUpdate {
	u := &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "u", UID: "uid"}, Spec: v1alpha1.ClusterUpdateSpec{Bundle: "c", Hops: []string{"a", "b"}}}
	now := metav1.Now()
	for i, d := range u.Bundles() {
		h := v1alpha1.HopStatus{Bundle: d, Version: d}
		if i < done {
			h.StartedAt, h.FinishedAt = &now, &now
		}
		if i == done && started {
			h.StartedAt = &now
		}
		u.Status.Hops = append(u.Status.Hops, h)
	}
	return u
}

// Where an update is on its way, and who is who there.
func TestWhichHop(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		u             *v1alpha1.ClusterUpdate
		hop           int
		bundle, uid   string
		between, last bool
		states        []string
	}{
		"before the first": {upTo(0, false), 0, "a", "uid", false, false, []string{render.HopWaits, render.HopWaits, render.HopWaits}},
		"in the first":     {upTo(0, true), 0, "a", "uid", false, false, []string{render.HopRuns, render.HopWaits, render.HopWaits}},
		"after the first":  {upTo(1, false), 1, "b", "uid-2", true, false, []string{render.HopDone, render.HopNext, render.HopWaits}},
		"in the second":    {upTo(1, true), 1, "b", "uid-2", false, false, []string{render.HopDone, render.HopRuns, render.HopWaits}},
		"before the last":  {upTo(2, false), 2, "c", "uid-3", true, false, []string{render.HopDone, render.HopDone, render.HopNext}},
		"in the last":      {upTo(2, true), 2, "c", "uid-3", false, true, []string{render.HopDone, render.HopDone, render.HopRuns}},
		"done":             {upTo(3, false), 2, "c", "uid-3", false, true, []string{render.HopDone, render.HopDone, render.HopDone}},
		"without hops":     {&v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{UID: "uid"}, Spec: v1alpha1.ClusterUpdateSpec{Bundle: "c"}}, 0, "c", "uid", false, true, nil},
	} {
		var states []string
		for _, h := range describeHops(tc.u) {
			states = append(states, h.State)
		}
		if d := cmp.Diff([]any{tc.hop, tc.bundle, tc.uid, tc.between, tc.last, tc.states}, []any{tc.u.Hop(), tc.u.HopBundle(), tc.u.RunUID(), tc.u.BetweenHops(), tc.u.LastHop(), states}); d != "" {
			t.Errorf("%s (-want +got): %s", name, d)
		}
	}
}

// refit pause --after-hop names the hop that ends, and refit resume ends a pause that holds now.
func TestPauseAfterHop(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		u    *v1alpha1.ClusterUpdate
		want string
	}{
		"in the first": {upTo(0, true), "a"}, "in the second": {upTo(1, true), "b"}, "between them": {upTo(1, false), "a"}, "in the last": {upTo(2, true), ""},
	} {
		_, err := pauseAfterHop(tc.u)
		if tc.u.Spec.PauseAfter != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s: pauses after %q, %v", name, tc.u.Spec.PauseAfter, err)
		}
		holds := tc.u.BetweenHops()
		resumeHops(tc.u)
		if tc.want != "" && (tc.u.Spec.PauseAfter == "") != holds {
			t.Errorf("%s: after resume it pauses after %q", name, tc.u.Spec.PauseAfter)
		}
	}
}
