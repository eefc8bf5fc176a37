package installcmd

import (
	"context"
	"io"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/areas"
	"github.com/refit-dev/refit/internal/cli/inputs"
)

func controllerPod(name, image string, ready corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: name, Labels: map[string]string{"refit.dev/component": "controller"}},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "controller", Image: image}}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}}
}

// In an upgrade the controller of before is ready until its pod goes.
func TestTheControllerRunsOnceAPodOfTheNewImageIsReady(t *testing.T) {
	old := controllerPod("old", "refit:1", corev1.ConditionTrue)
	for name, x := range map[string]struct {
		pods []*corev1.Pod
		runs bool
	}{
		"nothing yet":                   {},
		"only the older one is ready":   {pods: []*corev1.Pod{old, controllerPod("new", "refit:2", corev1.ConditionFalse)}},
		"the new one is ready":          {pods: []*corev1.Pod{controllerPod("new", "refit:2", corev1.ConditionTrue)}, runs: true},
		"one of two of the new version": {pods: []*corev1.Pod{controllerPod("a", "refit:2", corev1.ConditionFalse), controllerPod("b", "refit:2", corev1.ConditionTrue)}, runs: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := fake.NewClientBuilder()
			for _, p := range x.pods {
				b = b.WithObjects(p.DeepCopy())
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if !x.runs {
				cancel() // it looks once
			}
			defer cancel()
			err := installer{&inputs.Access{Err: io.Discard}}.waitController(ctx, b.Build(), "refit:2", areas.Set{})
			if (err == nil) != x.runs {
				t.Errorf("got %v", err)
			}
		})
	}
}

// The scheduler prefers the nodes with the label: after an upgrade those that have the new
// image, not those that had the older one first.
func TestOnlyNodesWithTheImageAreLabelled(t *testing.T) {
	node := func(name string, label bool, images ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Images: []corev1.ContainerImage{{Names: images}}}}
		if label {
			n.Labels = map[string]string{v1alpha1.LabelFirstContact: ""}
		}
		return n
	}
	c := fake.NewClientBuilder().WithObjects(node("n1", true, "refit:1"), node("n2", false, "refit:2"), node("n3", true, "refit:1", "refit:2"), node("n4", false)).Build()
	var nodes corev1.NodeList
	if err := c.List(t.Context(), &nodes); err != nil {
		t.Fatal(err)
	}
	if _, err := labelNodes(t.Context(), c, nodes.Items, "refit:2", []host{{name: "n4", device: "/dev/sdb"}}); err != nil {
		t.Fatal(err)
	}
	if err := c.List(t.Context(), &nodes); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes.Items {
		if _, has := n.Labels[v1alpha1.LabelFirstContact]; has != (n.Name != "n1") {
			t.Errorf("node %s has the label: %t", n.Name, has)
		}
	}
}
