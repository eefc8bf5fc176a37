package nodedistribution

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// The desired state of a node has the peer port of its pool, and no port if two pools match.
func TestPeerPortOfAPool(t *testing.T) {
	pool := func(name, label string, port int32) v1alpha1.UpdatePool {
		p := v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
		p.Spec.NodeSelector.MatchLabels = map[string]string{label: "x"}
		p.Spec.PeerPort = port
		return p
	}
	w := &fleetSnapshot{pools: []v1alpha1.UpdatePool{pool("a", "a", 19000), pool("b", "b", 0)}}
	for name, c := range map[string]struct {
		labels map[string]string
		want   int32
	}{
		"of the pool":         {map[string]string{"a": "x"}, 19000},
		"of a pool with none": {map[string]string{"b": "x"}, 0},
		"of two":              {map[string]string{"a": "x", "b": "x"}, 0},
		"of none":             {nil, 0},
	} {
		if got := w.peerPort(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: c.labels}}); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
