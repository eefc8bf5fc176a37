package nodedistribution

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/nodeindex"

	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// holder is a node whose agent has proven that it holds a bundle of one image.
func holder() *fakeSite {
	f := newFake("n1")
	f.bundle(dig("a"), "app:1=x")
	f.set(allOf(dig("a")))
	n := f.nodes[0]
	n.CreationTimestamp, n.Status.NodeInfo.BootID = at(10), "boot-2"
	s := &fakeSite{fake: f, node: n, nu: f.updates["n1"]}
	f.decide(fatal{}, "n1")
	beat := at(20)
	s.nu.Status = v1alpha1.NodeUpdateStatus{Agent: &v1alpha1.AgentInfo{PublicKey: "k", Heartbeat: &beat}, Observed: &v1alpha1.Observed{BootID: "boot-2"},
		Pins: &v1alpha1.PinStatus{Content: s.nu.Spec.Pins, ImagesTotal: 1, ImagesReady: 1, ImagesPinned: 1, PayloadsTotal: 1, PayloadsReady: 1}}
	return s
}

type fakeSite struct {
	*fake
	node *corev1.Node
	nu   *v1alpha1.NodeUpdate
	// order of the approved bundles.
	order []string
}

type fatal struct{}

func (fatal) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// Only a report counts that the node's own agent wrote after the node booted, about its
// current pin set.
func TestHoldsAll(t *testing.T) {
	t.Parallel()
	early, late := at(5), at(15)
	for name, c := range map[string]struct {
		change func(*fakeSite)
		want   bool
	}{
		"all is held and pinned":                           {func(*fakeSite) {}, true},
		"an image is not pinned":                           {func(s *fakeSite) { s.nu.Status.Pins.ImagesPinned = 0 }, false},
		"a file is missing":                                {func(s *fakeSite) { s.nu.Status.Pins.PayloadsReady = 0 }, false},
		"it has no NodeUpdate":                             {func(s *fakeSite) { s.updates["n1"] = nil }, false},
		"its agent has not spoken":                         {func(s *fakeSite) { s.nu.Status = v1alpha1.NodeUpdateStatus{} }, false},
		"what the agent said is of the boot before":        {func(s *fakeSite) { s.nu.Status.Observed.BootID = "boot-1" }, false},
		"without boot IDs: said before the node was there": {func(s *fakeSite) { s.nu.Status.Observed, s.nu.Status.Agent.Heartbeat = nil, &early }, false},
		"without boot IDs: said since":                     {func(s *fakeSite) { s.node.Status.NodeInfo.BootID, s.nu.Status.Agent.Heartbeat = "", &late }, true},
		"the counts are about another list":                {func(s *fakeSite) { s.nu.Status.Pins.Content = "hold-old" }, false},
		"its desired state names another pin set":          {func(s *fakeSite) { s.nu.Spec.Pins = "hold-old" }, false},
		"its desired state does not include a new set yet": {func(s *fakeSite) {
			s.set(v1alpha1.PinnedImageSet{ObjectMeta: metav1.ObjectMeta{Name: "more"}, Spec: v1alpha1.PinnedImageSetSpec{Groups: []v1alpha1.ImageGroup{{Name: "g", Images: []v1alpha1.PinnedImage{{Name: "b:1", Digest: "y"}}}}}})
		}, false},
		"a bundle that an agent has is not read yet": {func(s *fakeSite) {
			s.set(allOf(dig("b")))
			s.nu.Status.Bundles = []string{dig("b")}
		}, false},
		"a bundle that is not plugged in keeps no taint": {func(s *fakeSite) { s.set(allOf(dig("b"))) }, true},
		"an approved bundle that an agent has, and no set yet": {func(s *fakeSite) {
			s.order, s.nu.Status.Bundles = []string{dig("c")}, []string{dig("c")}
		}, false},
		"another node's set is not read": {func(s *fakeSite) {
			b := allOf(dig("b"))
			b.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"name": "n2"}}
			s.set(b)
			s.nu.Status.Bundles = []string{dig("b")}
		}, true},
		"nothing is asked, and no agent is there": {func(s *fakeSite) { s.sets, s.updates["n1"] = nil, nil }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := holder()
			c.change(s)
			w := s.see()
			want := &desiredState{w: w, order: s.order, holds: w.newPinSetBuilder(s.order)}
			if got, says := want.hasPinnedAll(0); got != c.want || says == "" {
				t.Errorf("held %v (%s), want %v", got, says, c.want)
			}
		})
	}
}

// If the taint of a new node cannot be written, its desired state is not written in this
// reconcile either. The other nodes and the remaining work continue.
func TestANodeThatCannotBeTaintedWaits(t *testing.T) {
	t.Parallel()
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "n1", errors.New("changed"))
	for name, c := range map[string]struct {
		fails error
		said  bool
	}{"it changed meanwhile": {conflict, false}, "a webhook refuses it": {errors.New("denied"), true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake("n1", "n2")
			scheme := holdScheme(t)
			api := apiWith(t, scheme, f.nodes, map[string]error{"n1": c.fails})
			for _, n := range f.nodes {
				if err := api.Get(context.Background(), client.ObjectKeyFromObject(n), n); err != nil {
					t.Fatal(err)
				}
				n.Status.NodeInfo = corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64"}
				n.CreationTimestamp = at(1)
				delete(f.updates, n.Name)
			}
			f.bundle(dig("a"), "app:1=x")
			f.set(allOf(dig("a")))
			w := f.see()
			w.taintingPools = []taintingPool{{"p", labels.Everything(), start}}
			r := &Reconciler{Client: api, nodes: nodeindex.New().Reader(nodeindex.Changes{})}
			waiting, err := r.applyTaints(context.Background(), w, &desiredState{w: w, holds: w.newPinSetBuilder(nil)})
			if !waiting["n1"] || waiting["n2"] || (err != nil) != c.said || r.more == c.said {
				t.Errorf("waiting %v, error %v, again %v", waiting, err, r.more)
			}
			if left := withoutWaiting([]staleNode{{name: "n1"}, {name: "n2"}}, waiting); len(left) != 1 || left[0].name != "n2" {
				t.Errorf("nodes to write: %v", left)
			}
			var n2 corev1.Node
			if err := api.Get(context.Background(), client.ObjectKey{Name: "n2"}, &n2); err != nil || StartupTaint(&n2) == nil {
				t.Errorf("n2 has no startup taint: %v %v", err, n2.Spec.Taints)
			}
		})
	}
}

// The taints and annotations of others survive every change, in their order.
func TestOnlyOurTaintIsTouched(t *testing.T) {
	t.Parallel()
	others := []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoExecute}, {Key: "refit.dev/other", Effect: corev1.TaintEffectNoSchedule}}
	for _, action := range []pin.TaintAction{pin.AddTaint, pin.AddTaintAgain, pin.DropTaint, pin.AdmitNode, pin.RecordKey} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{"x": "y"}}, Spec: corev1.NodeSpec{Taints: append([]corev1.Taint(nil), others...)}}
		if action == pin.DropTaint || action == pin.AdmitNode {
			n.Spec.Taints = append([]corev1.Taint{{Key: v1alpha1.TaintImagesNotReady, Effect: corev1.TaintEffectNoSchedule}}, n.Spec.Taints...)
		}
		c := apiWith(t, holdScheme(t), []*corev1.Node{n}, nil)
		if err := c.Get(context.Background(), client.ObjectKey{Name: "n1"}, n); err != nil {
			t.Fatal(err)
		}
		got, err := TaintWriter{Client: c}.Write(context.Background(), TaintChange{Node: n, Action: action, Noted: "k"})
		if err != nil {
			t.Fatal(err)
		}
		kept := action == pin.AddTaint || action == pin.AddTaintAgain
		if (StartupTaint(got) != nil) != kept || got.Annotations["x"] != "y" {
			t.Errorf("%s: %v %v", action, got.Spec.Taints, got.Annotations)
		}
		if len(got.Spec.Taints) < 2 || got.Spec.Taints[0] != others[0] || got.Spec.Taints[1] != others[1] {
			t.Errorf("%s: taints of others: %v", action, got.Spec.Taints)
		}
	}
}

// apiWith is an API server with some nodes, of which some writes fail.
func apiWith(t *testing.T, scheme *runtime.Scheme, nodes []*corev1.Node, fails map[string]error) client.Client {
	t.Helper()
	b := fakeclient.NewClientBuilder().WithScheme(scheme)
	for _, n := range nodes {
		b = b.WithObjects(n.DeepCopy())
	}
	return b.WithInterceptorFuncs(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if err := fails[o.GetName()]; err != nil {
			return err
		}
		return c.Patch(ctx, o, p, opts...)
	}}).Build()
}

func holdScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := corev1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return s
}
