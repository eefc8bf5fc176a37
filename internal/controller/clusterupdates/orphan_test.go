package clusterupdates

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// spec.run of a node is removed when its owner was deleted: an update, or an ImageTrack,
// which updates static pods.
func TestWhoseRunIsAnOrphan(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(&v1alpha1.ImageTrack{ObjectMeta: metav1.ObjectMeta{Name: "proxy"}}).Build()}
	alive := map[string]bool{"u-1": true}
	for name, c := range map[string]struct {
		run  *v1alpha1.NodeRun
		want bool
	}{
		"nothing is permitted":             {nil, false},
		"of an update that is there":       {&v1alpha1.NodeRun{Name: "to-1-36", UID: "u-1"}, false},
		"of an update that was deleted":    {&v1alpha1.NodeRun{Name: "to-1-35", UID: "u-0"}, true},
		"of a track that is there":         {&v1alpha1.NodeRun{Name: "ImageTrack/proxy", UID: "t-1-aa"}, false},
		"of a track that was deleted":      {&v1alpha1.NodeRun{Name: "ImageTrack/gone", UID: "t-2-aa"}, true},
		"of an update with a track's name": {&v1alpha1.NodeRun{Name: "proxy", UID: "u-9"}, true},
	} {
		got, err := r.isOrphaned(t.Context(), &v1alpha1.NodeUpdate{Spec: v1alpha1.NodeUpdateSpec{Run: c.run}}, alive)
		if err != nil || got != c.want {
			t.Errorf("%s: %v %v", name, got, err)
		}
	}
}

func TestForWhomANodeIsAtWork(t *testing.T) {
	t.Parallel()
	runs := func(name, permitted string, state v1alpha1.RunState) *v1alpha1.NodeUpdate {
		nu := &v1alpha1.NodeUpdate{Status: v1alpha1.NodeUpdateStatus{Run: &v1alpha1.NodeRunStatus{UID: "u-0", Attempt: 1, State: state}}}
		if permitted != "" {
			nu.Spec.Run = &v1alpha1.NodeRun{Name: name, UID: permitted, Attempt: 1}
		}
		return nu
	}
	const over = "an update that was deleted, or is done"
	for name, c := range map[string]struct {
		mark string
		nu   *v1alpha1.NodeUpdate
		want string
	}{
		"without a run, and it never had one":         {"", nil, ""},
		"for nobody: it has ended":                    {"", runs("to-1-35", "u-0", v1alpha1.RunSucceeded), ""},
		"it runs, and its permission is there":        {"", runs("to-1-35", "u-0", v1alpha1.RunRunning), over},
		"it runs, and its permission was taken away":  {"", runs("", "", v1alpha1.RunRunning), over},
		"it does not run yet, and is marked":          {"u-0 1 2026-11-20T11:00:00Z 0 1", &v1alpha1.NodeUpdate{}, over},
		"it has ended, and is not released yet":       {"u-0 1 2026-11-20T11:00:00Z 0 1", runs("", "", v1alpha1.RunFailed), over},
		"it writes a static pod":                      {"", runs("ImageTrack/proxy", "u-0", v1alpha1.RunRunning), "ImageTrack/proxy"},
		"it ends another run before the static pod's": {"", runs("ImageTrack/proxy", "t-1", v1alpha1.RunRunning), over},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		if c.mark != "" {
			n.Annotations = map[string]string{v1alpha1.AnnotationUpdating: c.mark}
		}
		if got := busyWith(n, c.nu); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
