package installcmd

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/refit-dev/refit/config"
)

// An installation has a standby where two nodes can take a controller. From a bundle it begins with
// the controllers whose nodes have the image, and never removes one that runs. It keeps the Pod
// Security level that an administrator gave the builds.
func TestAdapt(t *testing.T) {
	node := func(name string, taints ...string) client.Object {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, key := range taints {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
		return n
	}
	holder := func(name string, taints ...string) client.Object {
		n := node(name, taints...)
		n.SetLabels(map[string]string{"refit.dev/first-contact": ""})
		return n
	}
	running := func(image string, replicas int32) client.Object {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "refit-system", Name: "refit-controller"}, Spec: appsv1.DeploymentSpec{Replicas: &replicas,
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "controller", Image: image}}}}}}
	}
	builds := func(level string) client.Object {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "refit-builds", Labels: map[string]string{podSecurity: level}}}
	}
	for name, tc := range map[string]struct {
		there    []client.Object
		canPull  bool
		replicas int64
		level    string
	}{
		"one node has one":                      {[]client.Object{node("n1", "node-role.kubernetes.io/control-plane")}, true, 1, "baseline"},
		"two nodes have two":                    {[]client.Object{node("n1", "node-role.kubernetes.io/control-plane"), node("n2", corev1.TaintNodeUnschedulable)}, true, 2, "baseline"},
		"a node with a taint of others is none": {[]client.Object{node("n1"), node("n2", "storage")}, true, 1, "baseline"},
		"thirty have two":                       {[]client.Object{node("n1"), node("n2"), node("n3")}, true, 2, "baseline"},
		"a bundle on one of three nodes":        {[]client.Object{holder("n1"), node("n2"), node("n3")}, false, 1, "baseline"},
		"a bundle on two of three nodes":        {[]client.Object{holder("n1"), holder("n2"), node("n3")}, false, 2, "baseline"},
		"the second has a taint of others":      {[]client.Object{holder("n1"), holder("n2", "storage"), node("n3")}, false, 1, "baseline"},
		"the standby that runs stays":           {[]client.Object{holder("n1"), node("n2"), running("refit.example/refit:1", 2)}, false, 2, "baseline"},
		"one of another version does not count": {[]client.Object{holder("n1"), node("n2"), running("refit.example/refit:0", 2)}, false, 1, "baseline"},
		"the level of builds is kept":           {[]client.Object{node("n1"), builds("privileged")}, true, 1, "privileged"},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := config.Manifests("refit.example/refit:1")
			if err != nil {
				t.Fatal(err)
			}
			if err := adapt(context.Background(), fake.NewClientBuilder().WithObjects(tc.there...).Build(), objects, tc.canPull); err != nil {
				t.Fatal(err)
			}
			found := 0
			for _, o := range objects {
				switch {
				case o.GetKind() == "Deployment":
					found++
					if n, _, err := unstructured.NestedInt64(o.Object, "spec", "replicas"); n != tc.replicas || err != nil {
						t.Errorf("%d replicas, %v", n, err)
					}
					if mark, _, _ := unstructured.NestedString(o.Object, "spec", "template", "metadata", "annotations", "refit.dev/standby"); mark != "WhenImagePresent" {
						t.Errorf("the pods have the mark %q", mark)
					}
				case o.GetName() == "refit-builds" && o.GetKind() == "Namespace":
					found++
					if level := o.GetLabels()[podSecurity]; level != tc.level {
						t.Errorf("Pod Security %s", level)
					}
				}
			}
			if found != 2 {
				t.Errorf("%d of the 2 objects are there", found)
			}
		})
	}
}
