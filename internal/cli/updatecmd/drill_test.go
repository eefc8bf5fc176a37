package updatecmd

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/render"
)

func site(t *testing.T, change func(n2 *v1alpha1.NodeUpdate)) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	data, err := json.Marshal(model.PinSet{Images: []model.PinSetImage{{Name: "r/a:1", Digest: "sha256:a", Bundle: "sha256:x"}, {Name: "r/b:1", Digest: "sha256:b", Bundle: "sha256:x"}}})
	if err != nil {
		t.Fatal(err)
	}
	objects := []client.Object{
		&v1alpha1.Content{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: "pins-1"}, Type: v1alpha1.ContentPins, Data: string(data)},
		pod("kube-system", "proxy", "r/a:1", "system-node-critical"), pod("shop", "toy", "r/toy:1", ""),
	}
	for _, name := range []string{"n1", "n2"} {
		nu := &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: name}, Spec: v1alpha1.NodeUpdateSpec{Pins: "pins-1"},
			Status: v1alpha1.NodeUpdateStatus{Pins: &v1alpha1.PinStatus{Content: "pins-1", ImagesTotal: 2, ImagesReady: 2, ImagesPinned: 2},
				ColdStart: &v1alpha1.ColdStart{Copies: 2, CheckedBoot: "boot " + name}}}
		if name == "n2" {
			change(nu)
		}
		objects = append(objects, nu, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "boot " + name}}})
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).Build()
}

func pod(namespace, name, image, class string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{NodeName: "n2", PriorityClassName: class, Containers: []corev1.Container{{Name: "c", Image: image}}}}
}

// What the cluster knows becomes the answer: who has a copy, what is not held, and
// whether the check ran in this boot.
func TestWhatIsSaidBeforehand(t *testing.T) {
	for name, c := range map[string]struct {
		change func(n2 *v1alpha1.NodeUpdate)
		comes  bool
		says   []string
	}{
		"a node with all copies": {func(*v1alpha1.NodeUpdate) {}, true, []string{"would recover by itself", "2 with a local copy", "Not pinned, so lost with the store: r/toy:1 (shop/toy)"}},
		"a node without one": {func(n *v1alpha1.NodeUpdate) {
			n.Status.ColdStart.Copies, n.Status.ColdStart.Without = 1, []string{"r/b:1"}
		}, false,
			[]string{"would NOT recover", "NoLocalCopy", "r/b:1 (n1 has one)", "localCopy: Keep"}},
		"a check of another boot":      {func(n *v1alpha1.NodeUpdate) { n.Status.ColdStart.CheckedBoot = "older" }, false, []string{"ColdStartCheckMissing"}},
		"an agent of before the check": {func(n *v1alpha1.NodeUpdate) { n.Status.ColdStart = nil }, false, []string{"ImagesMissing"}},
		"a word about another list":    {func(n *v1alpha1.NodeUpdate) { n.Status.Pins.Content = "pins-0" }, false, []string{"ImagesMissing"}},
		"not everything is pinned":     {func(n *v1alpha1.NodeUpdate) { n.Status.Pins.ImagesPinned = 1 }, false, []string{"ImagesMissing"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, nu, err := gatherStartFacts(t.Context(), site(t, c.change), "n2")
			if err != nil {
				t.Fatal(err)
			}
			v := newDrillView(f, nu)
			var out bytes.Buffer
			if err := render.Drill(&out, render.Table, v); err != nil {
				t.Fatal(err)
			}
			for _, want := range c.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("it does not say %q:\n%s", want, out.String())
				}
			}
			if v.ComesBack != c.comes {
				t.Errorf("comes back: %t\n%s", v.ComesBack, out.String())
			}
		})
	}
	if _, _, err := gatherStartFacts(t.Context(), site(t, func(*v1alpha1.NodeUpdate) {}), "n9"); err == nil {
		t.Error("a node that is not there")
	}
}
