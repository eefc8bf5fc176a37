package gatefacts

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	p := &v1alpha1.BootImagePolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 1}, Status: v1alpha1.BootImagePolicyStatus{ObservedGeneration: 1, Blocked: []v1alpha1.BlockedTarget{
		{Major: 1, Minor: 36, Source: "a", Message: "m36"}, {Major: 1, Minor: 37, Source: "a", Message: "m37"}, {Major: 4, Minor: 37, Source: "b", Message: "other"}}}}
	c := fake.NewClientBuilder().WithScheme(s).WithObjects(p).Build()
	snapshotOf := func(versions ...string) Snapshot {
		w := Snapshot{Now: time.Now()}
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
		in := gate.Input{TargetKubernetes: tc.target}
		err := (&Gatherer{Live: c}).fillBootImages(context.Background(), tc.nodes, &in, time.Minute)
		if (err != nil) != tc.fails || cmp.Diff(tc.want, in.BootImages) != "" || len(in.BootImageGaps) != 0 {
			t.Errorf("%s: %v %s %+v", name, err, cmp.Diff(tc.want, in.BootImages), in.BootImageGaps)
		}
	}
}

// Before the first evaluation of a policy, and after its deletion until a person has decided, a
// minor version waits.
func TestBootImageGaps(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	policy := func(name string, generation, observed int64) client.Object {
		return &v1alpha1.BootImagePolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: generation}, Status: v1alpha1.BootImagePolicyStatus{ObservedGeneration: observed}}
	}
	source := func(name, policy, deleted, skew string) client.Object {
		s := &v1alpha1.MachineSource{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MachineSourceSpec{Skew: skew}, Status: v1alpha1.MachineSourceStatus{Policy: policy}}
		if deleted != "" {
			s.Status.PolicyDeleted = &v1alpha1.DeletedPolicy{Name: deleted}
		}
		return s
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(policy("new", 1, 0), policy("changed", 3, 2), policy("known", 3, 3),
		source("selected", "known", "", ""), source("recorded", "", "gone", ""), source("not-seen-yet", "gone", "", ""), source("decided", "", "gone", "None"),
		source("decided-early", "gone", "", "Manual"), source("never-selected", "", "", "")).Build()
	for target, blocks := range map[string]bool{"v1.37.0": true, "v1.36.9": false} {
		in := gate.Input{TargetKubernetes: target}
		nodes := Snapshot{Nodes: []*corev1.Node{{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.36.3"}}}}, Now: time.Now()}
		if err := (&Gatherer{Live: c}).fillBootImages(context.Background(), nodes, &in, time.Minute); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, g := range in.BootImageGaps {
			got[g.Object] = g.Reason
			if g.Blocks != blocks || g.Message == "" || g.Fix == "" {
				t.Errorf("%s: %+v", target, g)
			}
		}
		want := map[string]string{"BootImagePolicy/new": "BootImageNotChecked", "BootImagePolicy/changed": "BootImageNotChecked",
			"MachineSource/recorded": "BootImagePolicyDeleted", "MachineSource/not-seen-yet": "BootImagePolicyDeleted"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", target, diff)
		}
	}
}
