package nodedrain

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
)

// Each write alone leaves a node whose marks say what is refit's, and Release takes away that and
// nothing else, after whichever write the controller ended.
func TestWhatIsTakenAwayAgain(t *testing.T) {
	t.Parallel()
	const label = corev1.LabelNodeExcludeBalancers
	m := rolloutfacts.Mark{UID: "u1", Attempt: rollout.Attempt{Number: 1, Try: 1}, At: noon}
	for name, tc := range map[string]struct {
		node   corev1.Node
		writes int // before the controller ended
	}{
		"after the first write":              {writes: 1},
		"after the first, done again":        {writes: 2},
		"after the cordon":                   {writes: 3},
		"another writer's label":             {node: corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{label: "theirs"}}}, writes: 3},
		"an administrator's cordon":          {node: corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}, writes: 3},
		"other labels and other annotations": {node: corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}}}, writes: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scheme := runtime.NewScheme()
			if err := corev1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			n := tc.node.DeepCopy()
			n.Name = "n1"
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(n).Build()
			cordoner := &Cordoner{Client: c, Live: c}
			read := func() *corev1.Node {
				t.Helper()
				var now corev1.Node
				if err := c.Get(t.Context(), client.ObjectKey{Name: "n1"}, &now); err != nil {
					t.Fatal(err)
				}
				return &now
			}
			before := read()
			for i := range tc.writes {
				now := m
				now.At = now.At.Add(time.Duration(i) * time.Minute)
				var err error
				if i < 2 {
					_, err = cordoner.Exclude(t.Context(), before, now) // the cache may lag: a conflict reads again
				} else {
					_, err = cordoner.Mark(t.Context(), read(), now, "u", true)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			facts := rolloutfacts.Node(read(), "u1")
			theirs := tc.node.Labels[label] != ""
			if !facts.Started || !facts.Excluded || theirs != facts.ExcludedAt.IsZero() || !theirs && !facts.ExcludedAt.Equal(noon) {
				t.Errorf("%+v", facts)
			}
			if err := cordoner.Release(t.Context(), read(), nil); err != nil {
				t.Fatal(err)
			}
			after := read()
			if diff := cmp.Diff(contents(before), contents(after)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func contents(n *corev1.Node) map[string]any {
	out := map[string]any{"cordoned": n.Spec.Unschedulable}
	for k, v := range n.Labels {
		out["label "+k] = v
	}
	for k, v := range n.Annotations {
		if k != v1alpha1.AnnotationUpdated {
			out["annotation "+k] = v
		}
	}
	return out
}
