package nodedistribution

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// A removable set is kept while a pod (also one of refit) runs an image that no other set
// pins, and its status names the pod. The controller lists the pods from the API server
// before it deletes a set, and seldom while the set is kept.
func TestSetsInUseAreKept(t *testing.T) {
	t.Parallel()
	pod := func(image string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "refit-system", Name: "refit-controller-1"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}}, Status: corev1.PodStatus{Phase: phase}}
	}
	x := dig("1")
	for name, c := range map[string]struct {
		pod    *corev1.Pod
		change func(*fake)
		kept   string
	}{
		"nothing runs":                             {nil, nil, ""},
		"a pod runs an image of it":                {pod("refit.example/refit:1", corev1.PodRunning), nil, "pod refit-system/refit-controller-1 runs refit.example/refit:1"},
		"a pod is to run it by digest":             {pod("mirror.example/refit@"+x, corev1.PodPending), nil, "runs refit.example/refit:1"},
		"a pod that has ended":                     {pod("refit.example/refit:1", corev1.PodSucceeded), nil, ""},
		"the next release brings the same image":   {pod("refit.example/refit:1", corev1.PodRunning), func(f *fake) { f.bundle(dig("b"), "refit.example/refit:1="+x) }, ""},
		"the next release has another of the name": {pod("refit.example/refit:1", corev1.PodRunning), func(f *fake) { f.bundle(dig("b"), "refit.example/refit:1="+dig("2")) }, "runs refit.example/refit:1"},
		"a user's set has it": {pod("refit.example/refit:1", corev1.PodRunning), func(f *fake) {
			f.set(v1alpha1.PinnedImageSet{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: v1alpha1.PinnedImageSetSpec{Groups: []v1alpha1.ImageGroup{{Name: "g", Images: []v1alpha1.PinnedImage{{Name: "refit.example/refit:1", Digest: x}}}}}})
		}, ""},
		"the header of its bundle cannot be read": {nil, func(f *fake) { delete(f.headers, dig("a")) }, "not known"},
		"it is revoked, although a pod runs its image": {pod("refit.example/refit:1", corev1.PodRunning), func(f *fake) {
			f.policies = []v1alpha1.TrustPolicy{{Spec: v1alpha1.TrustPolicySpec{RevokedDigests: []string{dig("a")}}}}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake("n1")
			f.bundle(dig("a"), "refit.example/refit:1="+x)
			f.bundle(dig("b"), "refit.example/refit:2="+dig("2"))
			f.set(allOf(dig("a")))
			f.set(allOf(dig("b")))
			if c.change != nil {
				c.change(f)
			}
			asked := 0
			b := fakeclient.NewClientBuilder().WithScheme(holdScheme(t)).WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, cl client.WithWatch, l client.ObjectList, o ...client.ListOption) error {
				asked++
				return cl.List(ctx, l, o...)
			}})
			if c.pod != nil {
				b = b.WithObjects(c.pod)
			}
			r := &Reconciler{Live: b.Build()}
			list := func() []*v1alpha1.PinnedImageSet {
				w := f.see()
				gone, err := r.unusedSets(t.Context(), w, []*v1alpha1.PinnedImageSet{&w.sets[0]})
				if err != nil {
					t.Fatal(err)
				}
				return gone
			}
			gone := list()
			why := f.keptReasons[setName(dig("a"))]
			if (len(gone) == 0) != (c.kept != "") || !strings.Contains(why, c.kept) {
				t.Fatalf("let go %d, kept because %q, want %q", len(gone), why, c.kept)
			}
			if c.kept == "" {
				return
			}
			if st := f.setStatus(0); !strings.Contains(st.Conditions[0].Message, "is kept: "+why) {
				t.Errorf("the set does not say why: %+v", st.Conditions)
			}
			if list(); asked > 1 {
				t.Error("pods are listed in every reconcile while the set is kept")
			}
			f.now = start.Add(time.Hour)
			if list(); asked != 2 {
				t.Errorf("after an hour pods were listed %d times", asked)
			}
		})
	}
}

// Without a list of the pods no set is deleted.
func TestNoSetIsDeletedWithoutPods(t *testing.T) {
	t.Parallel()
	f := newFake("n1")
	f.bundle(dig("a"), "app:1="+dig("1"))
	f.set(allOf(dig("a")))
	c := fakeclient.NewClientBuilder().WithScheme(holdScheme(t)).WithInterceptorFuncs(interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return errors.New("unavailable")
	}}).Build()
	w := f.see()
	if gone, err := (&Reconciler{Live: c}).unusedSets(t.Context(), w, []*v1alpha1.PinnedImageSet{&w.sets[0]}); err == nil || len(gone) > 0 {
		t.Errorf("%v %v", gone, err)
	}
}

// A set that nodes still load is only Reconciling, with counters. It is Stalled, with the
// reason of the node, when a node needs a person, for example because its runtime ignores pins.
func TestLoadingIsNotStalled(t *testing.T) {
	t.Parallel()
	f := newFake("n1", "n2")
	f.bundle(dig("a"), "app:1="+dig("1"))
	f.set(allOf(dig("a")))
	for _, n := range []string{"n1", "n2"} {
		f.decide(t, n)
	}
	f.updates["n1"].Status.Pins = &v1alpha1.PinStatus{Content: f.updates["n1"].Spec.Pins, ImagesTotal: 1, ImagesReady: 1, ImagesPinned: 1, PayloadsTotal: 1, PayloadsReady: 1}
	says := func() map[string]string {
		out := map[string]string{}
		for _, c := range f.see().setStatus(0).Conditions {
			out[c.Type] = string(c.Status) + " " + c.Reason + " " + c.Message
		}
		return out
	}
	got := says()
	if got["Reconciling"] != "True Loading 1 of 2 nodes hold and pin the set" || !strings.HasPrefix(got["Ready"], "False Loading") || !strings.HasPrefix(got["Stalled"], "False Loading") {
		t.Errorf("slow: %v", got)
	}
	f.updates["n2"].Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPinsIgnored, Message: "its runtime (containerd 1.6.20) does not report them so"}}
	if got = says(); !strings.HasPrefix(got["Stalled"], "True PinsIgnored") || !strings.Contains(got["Stalled"], "node n2: its runtime (containerd 1.6.20)") {
		t.Errorf("stopped: %v", got)
	}
}
