package controller

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// reported is the NodeUpdate of a node in an update, as the API server answers it.
func reported(t testing.TB, name string) *v1alpha1.NodeUpdate {
	nu := &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: v1alpha1.NodesNamespace, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "x"}}},
		Spec: v1alpha1.NodeUpdateSpec{Trust: "trust-1", Pins: "pins-1", Bundles: []v1alpha1.ApprovedBundle{{Digest: "sha256:1"}},
			Peers: []v1alpha1.Peer{{Node: "other", Address: "10.0.0.1:1", PublicKey: "key"}},
			Run: &v1alpha1.NodeRun{Name: "update", UID: "u", Bundle: "sha256:1", PlanDigest: "sha256:2", Steps: []v1alpha1.UpdateStep{
				{ID: "kubeadm", Updater: "kubeadm", Verb: "upgrade", From: "v1.35.4", To: "v1.36.3", Params: map[string]string{"payload": "sha256:3"}, DeadlineSeconds: 600}}}},
		Status: v1alpha1.NodeUpdateStatus{Phase: "Updating", Message: "step kubeadm", Bundles: []string{"sha256:1"},
			Agent:       &v1alpha1.AgentInfo{Version: "0.1.0", Address: name + ":1", PublicKey: "key", Updaters: []string{"kubeadm", "kubelet"}, Formats: []string{"a"}},
			Observed:    &v1alpha1.Observed{KubeletVersion: "v1.35.4", BootID: name, Fields: map[string]string{"a": "b"}},
			FileSystems: []v1alpha1.FileSystem{{Name: "state", ID: "1"}},
			Pins:        &v1alpha1.PinStatus{Content: "pins-1"},
			Run:         &v1alpha1.NodeRunStatus{UID: "u", PlanDigest: "sha256:2", State: v1alpha1.RunRunning, Step: "kubeadm"},
			Conditions:  []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "AsExpected", Message: "step kubeadm"}}}}
	data, err := json.Marshal(nu)
	if err != nil {
		t.Fatal(err)
	}
	out := &v1alpha1.NodeUpdate{}
	if err := json.Unmarshal(data, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// What is slim is what it was, without the managed fields.
func TestSlimKeepsWhatNodesReport(t *testing.T) {
	t.Parallel()
	want, got := reported(t, "node-1"), reported(t, "node-1")
	want.ManagedFields = nil
	if _, err := slimUpdate(got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestSlimNodesShareWhatIsEqual(t *testing.T) {
	t.Parallel()
	a, b := reported(t, "node-1"), reported(t, "node-2")
	slim(a)
	slim(b)
	if &a.Spec.Run.Steps[0] != &b.Spec.Run.Steps[0] {
		t.Error("the steps are two lists")
	}
	if &a.Status.Agent.Updaters[0] != &b.Status.Agent.Updaters[0] || &a.Status.Bundles[0] != &b.Status.Bundles[0] {
		t.Error("updaters or bundles are two lists")
	}
	for name, texts := range map[string][2]string{
		"condition":   {a.Status.Conditions[0].Message, b.Status.Conditions[0].Message},
		"observed":    {a.Status.Observed.KubeletVersion, b.Status.Observed.KubeletVersion},
		"file system": {a.Status.FileSystems[0].Name, b.Status.FileSystems[0].Name},
		"run":         {a.Status.Run.PlanDigest, b.Spec.Run.PlanDigest},
	} {
		if texts[0] != texts[1] || unsafe.StringData(texts[0]) != unsafe.StringData(texts[1]) {
			t.Errorf("%s: %q is there twice", name, texts[0])
		}
	}
}

// Lists that differ anywhere never share.
func TestSharedStepsAreTheSteps(t *testing.T) {
	t.Parallel()
	text := rapid.SampledFrom([]string{"", "a", "1:a", "a1:", "0:"})
	step := rapid.Custom(func(t *rapid.T) v1alpha1.UpdateStep {
		return v1alpha1.UpdateStep{ID: text.Draw(t, "id"), Updater: text.Draw(t, "updater"), Verb: text.Draw(t, "verb"), From: text.Draw(t, "from"), To: text.Draw(t, "to"),
			Params: rapid.MapOf(text, text).Draw(t, "params"), DeadlineSeconds: rapid.Int32Range(0, 2).Draw(t, "deadline")}
	})
	rapid.Check(t, func(t *rapid.T) {
		steps := rapid.SliceOfN(step, 0, 3).Draw(t, "steps")
		want := make([]v1alpha1.UpdateStep, len(steps))
		for i, s := range steps {
			want[i] = s
			want[i].Params = maps.Clone(s.Params)
		}
		shareSteps(&steps)
		if d := cmp.Diff(want, steps); d != "" {
			t.Fatal(d)
		}
	})
}

func TestSharedListsStayFew(t *testing.T) {
	t.Parallel()
	var s sharedLists[string]
	for i := range 3 * maxSharedLists {
		key := fmt.Sprint(i)
		if got := s.share(key, []string{key}); got[0] != key {
			t.Fatalf("%s is %v", key, got)
		}
		if len(s.lists) > maxSharedLists {
			t.Fatalf("%d lists are remembered", len(s.lists))
		}
	}
}
