package cli

import (
	"context"
	"strings"
	"testing"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
)

// refit plan --hop creates one update for the whole way, finds it again, and makes another one for
// another way. What makes no sense is refused before anything is created.
func TestPlanThroughHops(t *testing.T) {
	p := newPerson(t)
	digest := func(c string) string { return "sha256:" + strings.Repeat(c, 64) }
	updates := func() map[string]v1alpha1.ClusterUpdateSpec {
		var l v1alpha1.ClusterUpdateList
		if err := p.List(context.Background(), &l); err != nil {
			t.Fatal(err)
		}
		out := map[string]v1alpha1.ClusterUpdateSpec{}
		for _, u := range l.Items {
			out[u.Name] = u.Spec
		}
		return out
	}
	for want, args := range map[string][]string{
		"need --to":           {"plan", "--hop", digest("a")},
		"is no rollback":      {"plan", "--hop", digest("a"), "--to", digest("b"), "--allow-downgrade"},
		"EveryHop or LastHop": {"plan", "--workers", "never", "--to", digest("b")},
		"neither a file":      {"plan", "--hop", "v9.99.9", "--to", digest("b")},
	} {
		if said := p.types(console.ExitUsage, args...); !strings.Contains(said, want) {
			t.Errorf("%v: %q does not say %q", args, said, want)
		}
	}
	if all := updates(); len(all) != 0 {
		t.Fatalf("a refused command created %v", all)
	}
	way := []string{"plan", "--timeout", "1s", "--hop", digest("a"), "--hop", digest("b"), "--to", digest("c"), "--workers", "LastHop"}
	for range 2 { // no controller runs here
		p.types(console.ExitInProgress, way...)
	}
	all := updates()
	if len(all) != 1 {
		t.Fatalf("%d updates for one way", len(all))
	}
	for _, s := range all {
		if strings.Join(s.Hops, " ") != digest("a")+" "+digest("b") || s.Bundle != digest("c") || s.Workers != v1alpha1.WorkersLastHop || s.Start != v1alpha1.StartManual {
			t.Errorf("%+v", s)
		}
	}
	p.types(console.ExitInProgress, "plan", "--timeout", "1s", "--hop", digest("b"), "--to", digest("c"))
	if n := len(updates()); n != 2 {
		t.Errorf("%d updates for two ways", n)
	}
}
