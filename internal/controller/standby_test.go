package controller_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller"
	"github.com/refit-dev/refit/internal/controller/apitest"
)

// An installation from a bundle has one controller until a node that can take the second one has
// pinned refit's image. The controller may change the number of replicas and nothing else.
func TestStandbyStartsWhereTheImageIs(t *testing.T) {
	t.Parallel()
	const image = "refit.dev/refit:1.2.3"
	cfg := apitest.Start(t)
	s := &site{t: t, cfg: cfg, admin: newClient(t, cfg), agents: map[string]*simAgent{}}
	s.populate(from)
	// n3 can hold the image, but not take the pod.
	n3 := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n3"}}
	s.edit(n3, func() { n3.Spec.Taints = []corev1.Taint{{Key: "storage", Effect: corev1.TaintEffectNoSchedule}} })
	n2 := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}
	s.edit(n2, func() { n2.Spec.Taints = nil }) // new nodes are not-ready until Kubernetes' own controller sees them
	s.agents["n2"].set(func(a *simAgent) { a.full = true })

	one := int32(1)
	labels := map[string]string{"app": "refit-controller"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"refit.dev/standby": "WhenImagePresent"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "controller", Image: image}}}}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "refit-controller"},
		Spec: appsv1.DeploymentSpec{Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template}}
	s.create(d)
	own := pod(v1alpha1.SystemNamespace, "pod-1", "n1", image) // the controller of this test
	own.Annotations = template.Annotations
	s.create(own)
	s.startController()

	raw := header(t, "release", "1.36.3", "v1.36.3", image, "registry.example/other:1")
	s.approve("release", digest(t, raw))
	s.plugIn("n1", raw)
	s.wait("n1 and n3 have pinned the image", func() string {
		for _, n := range []string{"n1", "n3"} {
			var nu v1alpha1.NodeUpdate
			if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: n}, &nu); err != nil || nu.Status.Pins == nil || nu.Status.Pins.ImagesPinned != 2 {
				return fmt.Sprintf("%s: %v %+v", n, err, nu.Status.Pins)
			}
		}
		return ""
	})
	time.Sleep(time.Second + controller.StandbyInterval) // it looks once at least
	if err := s.admin.Get(context.Background(), client.ObjectKeyFromObject(d), d); err != nil || *d.Spec.Replicas != 1 {
		t.Fatalf("%d replicas, and no node can take the second one: %v", *d.Spec.Replicas, err)
	}
	s.agents["n2"].set(func(a *simAgent) { a.full = false })
	s.wait("two controllers are wanted", func() string {
		if err := s.admin.Get(context.Background(), client.ObjectKeyFromObject(d), d); err != nil {
			return err.Error()
		}
		if *d.Spec.Replicas != 2 {
			return fmt.Sprint(*d.Spec.Replicas, " replicas")
		}
		return ""
	})
	for name, want := range map[string]bool{"n2": true, "n3": false} {
		if _, has := s.node(name).Labels["refit.dev/first-contact"]; has != want {
			t.Errorf("node %s has the label: %t", name, has)
		}
	}

	c := newClient(t, apitest.As(cfg, apitest.ControllerUser))
	for what, write := range map[string]func(o client.Object) error{
		"its own pod template": func(o client.Object) error {
			return c.Patch(context.Background(), o, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"template":{"spec":{"hostPID":true}}}}`)))
		},
		"its own Deployment": func(o client.Object) error { return c.Delete(context.Background(), o) },
	} {
		if err := write(d.DeepCopy()); !apierrors.IsForbidden(err) {
			t.Errorf("the controller may change %s: %v", what, err)
		}
	}
}
