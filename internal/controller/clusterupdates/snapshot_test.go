package clusterupdates

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/nodeindex"
)

// The lists of a snapshot belong to the index, which other reconcilers read: a node that is
// read again changes a copy.
func TestRereadLeavesTheIndexAlone(t *testing.T) {
	t.Parallel()
	name := metav1.ObjectMeta{Name: "n1"}
	inNodes := metav1.ObjectMeta{Name: "n1", Namespace: v1alpha1.NodesNamespace}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&corev1.Node{ObjectMeta: name}, &v1alpha1.NodeUpdate{ObjectMeta: inNodes}).Build()
	nodes, reports := []*corev1.Node{{ObjectMeta: name}}, []*v1alpha1.NodeUpdate{{ObjectMeta: inNodes}}
	n, nu := nodes[0], reports[0]
	w := &rolloutSnapshot{nodes: nodes, reports: reports}
	r := &Reconciler{Live: live, NodeIndex: nodeindex.New().Reader(nodeindex.Changes{})}
	for range 2 {
		if err := r.rereadNode(t.Context(), w, 0); err != nil {
			t.Fatal(err)
		}
	}
	if nodes[0] != n || reports[0] != nu {
		t.Error("the lists of the index changed")
	}
	if w.nodes[0] == n || w.reports[0] == nu {
		t.Error("the snapshot does not show what was read")
	}
}
