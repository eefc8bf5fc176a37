package updatecmd

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
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
	if _, err := retry(u, ""); console.ExitCode(err) != console.ExitUsage {
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

// The controller writes a status every few seconds: a person who speaks at that
// moment is heard all the same, and what another person said meanwhile stays.
func TestConcurrentChangesAreAllKept(t *testing.T) {
	t.Parallel()
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	meanwhile := 2
	c := fake.NewClientBuilder().WithScheme(s).WithObjects(&v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "to-1"}}).
		WithInterceptorFuncs(interceptor.Funcs{Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if meanwhile > 0 {
				meanwhile--
				var u v1alpha1.ClusterUpdate
				if err := w.Get(ctx, client.ObjectKeyFromObject(o), &u); err != nil {
					return err
				}
				u.Spec.Retry++ // by another user
				if err := w.Update(ctx, &u); err != nil {
					return err
				}
				return apierrors.NewConflict(schema.GroupResource{Resource: "clusterupdates"}, o.GetName(), nil)
			}
			return w.Patch(ctx, o, p, opts...)
		}}).Build()
	name, said, err := changeUpdate(t.Context(), c, nil, func(u *v1alpha1.ClusterUpdate) (string, error) { return retry(u, "") })
	if err != nil || name != "to-1" || said == "" {
		t.Fatalf("%s %q %v", name, said, err)
	}
	var u v1alpha1.ClusterUpdate
	if err := c.Get(t.Context(), client.ObjectKey{Name: "to-1"}, &u); err != nil || u.Spec.Retry != 3 {
		t.Errorf("asked for %d times, want 3: two by another person (%v)", u.Spec.Retry, err)
	}
	meanwhile = 100
	if _, _, err := changeUpdate(t.Context(), c, nil, func(u *v1alpha1.ClusterUpdate) (string, error) { return retry(u, "") }); !apierrors.IsConflict(err) {
		t.Errorf("an update that never rests: %v", err)
	}
}
