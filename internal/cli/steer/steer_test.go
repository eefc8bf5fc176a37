package steer

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/exit"
)

func TestRetry(t *testing.T) {
	t.Parallel()
	u := &v1alpha1.ClusterUpdate{}
	for _, node := range []string{"", "w1", "w2", "w1", ""} {
		if _, err := retry(u, node); err != nil {
			t.Fatal(err)
		}
	}
	want := v1alpha1.ClusterUpdateSpec{Retry: 2, RetryNodes: []v1alpha1.NodeRetry{{Name: "w1", Retry: 2}, {Name: "w2", Retry: 1}}}
	if diff := cmp.Diff(want, u.Spec); diff != "" {
		t.Error(diff)
	}
	u.Status.Phase = v1alpha1.PhaseDone
	if _, err := retry(u, ""); exit.Code(err) != exit.UsageCode {
		t.Errorf("an update that is done: %v", err)
	}
}

// Every verb says what it does beyond its one line, and pausing says that it is
// how to stop after the current node.
func TestVerbs(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range New(nil) {
		seen[c.Name()] = true
		if c.Short == "" {
			t.Errorf("%s says nothing", c.Name())
		}
	}
	for _, v := range []string{"pause", "resume", "retry", "hold", "release"} {
		if !seen[v] {
			t.Errorf("no verb %s", v)
		}
	}
}
