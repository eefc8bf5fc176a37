package clusterfacts

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNowhereToGo(t *testing.T) {
	cp := corev1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}
	node := func(name string, change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"disk": "ssd"}}}
		if change != nil {
			change(n)
		}
		return n
	}
	tainted := func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{cp} }
	for name, c := range map[string]struct {
		nodes   []*corev1.Node
		pod     corev1.PodSpec
		nowhere bool
	}{
		"a sole worker next to a control plane": {[]*corev1.Node{node("n1", tainted), node("n2", nil)}, corev1.PodSpec{}, true},
		"a pod that tolerates it":               {[]*corev1.Node{node("n1", tainted), node("n2", nil)}, corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: cp.Key, Operator: corev1.TolerationOpExists}}}, false},
		"a pod that tolerates everything":       {[]*corev1.Node{node("n1", tainted), node("n2", nil)}, corev1.PodSpec{Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}, false},
		"a toleration of another value":         {[]*corev1.Node{node("n1", tainted), node("n2", nil)}, corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: cp.Key, Value: "x"}}}, true},
		"a taint that only says please": {[]*corev1.Node{node("n1", func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectPreferNoSchedule}}
		}), node("n2", nil)}, corev1.PodSpec{}, false},
		"another worker":                      {[]*corev1.Node{node("n2", nil), node("n3", nil)}, corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}}, false},
		"another worker of another kind":      {[]*corev1.Node{node("n2", nil), node("n3", nil)}, corev1.PodSpec{NodeSelector: map[string]string{"disk": "tape"}}, true},
		"another worker that a user cordoned": {[]*corev1.Node{node("n2", nil), node("n3", func(n *corev1.Node) { n.Spec.Unschedulable = true })}, corev1.PodSpec{}, true},
		"nothing is known of the nodes":       {nil, corev1.PodSpec{}, false},
	} {
		c.pod.NodeName = "n2"
		if got := (Rules{}).Among(c.nodes).fitsNowhere(&corev1.Pod{Spec: c.pod}); got != c.nowhere {
			t.Errorf("%s: %t", name, got)
		}
	}
}
