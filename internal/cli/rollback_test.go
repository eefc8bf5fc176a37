package cli

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
)

func TestTheWayBack(t *testing.T) {
	t.Parallel()
	at := func(minute int64) *metav1.Time {
		m := metav1.NewTime(time.Unix(minute*60, 0))
		return &m
	}
	upd := func(name, bundle, phase string, started, finished int64) v1alpha1.ClusterUpdate {
		u := v1alpha1.ClusterUpdate{Spec: v1alpha1.ClusterUpdateSpec{Bundle: bundle}, Status: v1alpha1.ClusterUpdateStatus{Phase: phase}}
		u.Name = name
		if started > 0 {
			u.Status.StartedAt = at(started)
		}
		if finished > 0 {
			u.Status.FinishedAt = at(finished)
		}
		return u
	}
	for name, tc := range map[string]struct {
		in   []v1alpha1.ClusterUpdate
		want string
		says string
	}{
		"nothing has ever moved":                                      {nil, "", "nothing to roll back"},
		"a plan that never started":                                   {[]v1alpha1.ClusterUpdate{upd("a", "A", "Ready", 0, 0)}, "", "nothing to roll back"},
		"the first update has no before":                              {[]v1alpha1.ClusterUpdate{upd("a", "A", "Done", 1, 2)}, "", "--to"},
		"to the one before":                                           {[]v1alpha1.ClusterUpdate{upd("a", "A", "Done", 1, 2), upd("b", "B", "Done", 3, 4)}, "A", ""},
		"from a halted one":                                           {[]v1alpha1.ClusterUpdate{upd("b", "B", "Halted", 5, 0), upd("a", "A", "Done", 1, 2)}, "A", ""},
		"the last of several before":                                  {[]v1alpha1.ClusterUpdate{upd("a", "A", "Done", 1, 2), upd("b", "B", "Done", 3, 4), upd("c", "C", "Updating", 5, 0)}, "B", ""},
		"the same bundle twice is no way":                             {[]v1alpha1.ClusterUpdate{upd("a", "A", "Done", 1, 2), upd("b", "B", "Done", 3, 4), upd("b2", "B", "Done", 5, 6)}, "A", ""},
		"an update without a bundle is no way, and none to come from": {[]v1alpha1.ClusterUpdate{upd("a", "A", "Done", 1, 2), upd("b", "B", "Done", 3, 4), upd("c", "", "Done", 5, 6)}, "A", ""},
		"only configurations have moved nodes":                        {[]v1alpha1.ClusterUpdate{upd("c", "", "Done", 5, 6)}, "", "the last update, c, had no bundle"},
		"one that never ended is no way":                              {[]v1alpha1.ClusterUpdate{upd("a", "A", "Halted", 1, 0), upd("b", "B", "Done", 3, 4)}, "", "--to"},
	} {
		current, previous := lastUpdates(tc.in)
		got, err := backTo(current, previous)
		err = withConfigured(err, configuredSince(tc.in, current))
		if got != tc.want || (err == nil) != (tc.says == "") || err != nil && (!strings.Contains(err.Error(), tc.says) || console.ExitCode(err) != console.ExitUsage) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
