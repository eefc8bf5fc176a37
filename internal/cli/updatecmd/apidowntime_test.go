package updatecmd

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
)

// What the plan says of the API server's absence was measured in this cluster, in
// the last update in which it was unavailable at all.
func TestTheAPIServersAbsenceIsLearnedFromTheLastUpdate(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	done := func(name string, after time.Duration, away *v1alpha1.Unavailability) v1alpha1.ClusterUpdate {
		u := v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		end := metav1.NewTime(at.Add(after))
		u.Status.FinishedAt, u.Status.APIUnavailable = &end, away
		return u
	}
	all := []v1alpha1.ClusterUpdate{
		done("newer", 2*time.Hour, &v1alpha1.Unavailability{Seconds: 112, LongestSeconds: 42}),
		done("older", time.Hour, &v1alpha1.Unavailability{Seconds: 500, LongestSeconds: 400}),
		done("workers-only", 3*time.Hour, &v1alpha1.Unavailability{}),
		done("unmeasured", 4*time.Hour, nil),
		done("this", 5*time.Hour, &v1alpha1.Unavailability{Seconds: 1, LongestSeconds: 1}),
	}
	running := done("running", 6*time.Hour, &v1alpha1.Unavailability{Seconds: 9})
	running.Status.FinishedAt = nil
	all = append(all, running)
	got := newestAPIDowntime(all, &all[4])
	if got == nil || got.Update != "newer" || got.TotalSeconds != 112 || got.LongestSeconds != 42 {
		t.Fatalf("%+v", got)
	}
	if got := newestAPIDowntime(all[2:5], &all[4]); got != nil {
		t.Fatalf("learned from nothing: %+v", got)
	}
}
