package gatefacts

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/gate"
)

// A12 (the gate): the target's minor decides; a patch is warned about only.
func TestBootImagesOfATarget(t *testing.T) {
	t.Parallel()
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	p := &v1alpha1.BootImagePolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Status: v1alpha1.BootImagePolicyStatus{Blocked: []v1alpha1.BlockedTarget{
		{Major: 1, Minor: 36, Source: "a", Message: "m36"}, {Major: 1, Minor: 37, Source: "a", Message: "m37"}, {Major: 4, Minor: 37, Source: "b", Message: "other"}}}}
	c := fake.NewClientBuilder().WithScheme(s).WithObjects(p).Build()
	snapshotOf := func(versions ...string) Snapshot {
		w := Snapshot{}
		for _, v := range versions {
			w.Nodes = append(w.Nodes, &corev1.Node{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: v}}})
		}
		return w
	}
	for name, tc := range map[string]struct {
		target string
		nodes  Snapshot
		want   []gate.BootImage
		fails  bool
	}{
		"the next minor":                     {"v1.37.0", snapshotOf("v1.36.3"), []gate.BootImage{{Source: "a", Message: "m37", Blocks: true}}, false},
		"a patch of what runs":               {"v1.36.9", snapshotOf("v1.36.3"), []gate.BootImage{{Source: "a", Message: "m36"}}, false},
		"the last nodes of a move":           {"v1.36.3", snapshotOf("v1.36.3", "v1.35.4"), []gate.BootImage{{Source: "a", Message: "m36", Blocks: true}}, false},
		"a minor without a rule":             {"v1.38.0", snapshotOf("v1.37.3"), nil, false},
		"no version moves":                   {"", snapshotOf("v1.36.3"), nil, false},
		"a target that cannot be read":       {"next", snapshotOf("v1.36.3"), nil, true},
		"nodes whose version cannot be read": {"v1.36.3", snapshotOf("x"), []gate.BootImage{{Source: "a", Message: "m36", Blocks: true}}, false},
	} {
		got, err := readBootImages(context.Background(), c, tc.target, tc.nodes.lowestKubelet())
		if (err != nil) != tc.fails || cmp.Diff(tc.want, got) != "" {
			t.Errorf("%s: %v %s", name, err, cmp.Diff(tc.want, got))
		}
	}
}
