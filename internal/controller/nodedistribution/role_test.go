package nodedistribution

import (
	"slices"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// Nodes pin what their role starts. A node whose agent sees an API server is a control-plane
// node, with or without the label. A pool may want all images.
func TestPinsByRole(t *testing.T) {
	t.Parallel()
	d := dig("a")
	f := newFake("labelled", "observed", "spare", "worker")
	f.nodes[0].Labels["node-role.kubernetes.io/control-plane"] = ""
	f.updates["observed"].Status.Observed = &v1alpha1.Observed{ControlPlane: "v1.36.3"}
	f.bundle(d, "apiserver:1=1", "proxy:1=2")
	f.headers[d].Metadata.Images[0].Group = bundle.GroupControlPlane
	f.set(allOf(d))
	all := poolOf("spare", "")
	all.Spec.PinImages = v1alpha1.PinAll
	f.pools = []v1alpha1.UpdatePool{all, poolOf("worker", "")}
	for node, want := range map[string][]string{
		"labelled": {"apiserver:1=1", "proxy:1=2", "kubelet"}, "observed": {"apiserver:1=1", "proxy:1=2", "kubelet"}, "spare": {"apiserver:1=1", "proxy:1=2", "kubelet"}, "worker": {"proxy:1=2", "kubelet"},
	} {
		if got := f.decide(t, node, d); !slices.Equal(got, want) {
			t.Errorf("%s pins %v, want %v", node, got, want)
		}
	}
	for _, nu := range f.updates {
		l := f.readPinSet(nu.Spec.Pins)
		n := int32(len(l.Images))
		nu.Status.Pins = &v1alpha1.PinStatus{Content: nu.Spec.Pins, ImagesTotal: n, ImagesReady: n, ImagesPinned: n, PayloadsTotal: 1, PayloadsReady: 1}
	}
	if p := f.see().progress(d); p.loaded != 4 || p.want != 4 {
		t.Errorf("%d of %d nodes have what they need", p.loaded, p.want)
	}
	f.updates["observed"].Spec.Pins = f.updates["worker"].Spec.Pins
	f.updates["observed"].Status.Pins = f.updates["worker"].Status.Pins
	if p := f.see().progress(d); p.loaded != 3 {
		t.Errorf("a control-plane node with the images of a worker counts: %d of %d", p.loaded, p.want)
	}
}
