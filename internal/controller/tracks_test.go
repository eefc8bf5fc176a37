//go:build linux

package controller_test

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/tracks"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// The whole way, with the rights of an installation: a track that may move
// rebuilds by itself has the nodes hold the digest, as their agents say, and then
// writes it where it was given the right to.
func TestATrackFromTheRegistryToTheWorkload(t *testing.T) {
	s := newSite(t, "v1.35.4")
	reg := registrytest.Start(t)
	digest := reg.Push("shop/app", registrytest.Image{Version: "1.2.3"}, "1.2.3-rev1-b1.1", "1.2.3-rev1")
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	labels := map[string]string{"app": "app"}
	two := int32(2)
	s.create(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "app"}, Spec: appsv1.DeploymentSpec{Replicas: &two,
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: reg.Ref("shop/app:1.2.3-rev1")}}}}}})
	for _, n := range []string{"n2", "n3"} {
		p := pod("shop", "app-"+n, n, reg.Ref("shop/app:1.2.3-rev1"))
		p.Labels = labels
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Image: p.Spec.Containers[0].Image, ImageID: reg.Ref("shop/app@" + digest)}}
		s.create(p)
	}
	s.agents["n3"].set(func(a *simAgent) { a.full = true })
	s.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: tracks.WriterRole},
		RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: tracks.WriterRole},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: v1alpha1.SystemNamespace, Name: "refit-controller"}}})
	s.create(&v1alpha1.ImageTrack{ObjectMeta: metav1.ObjectMeta{Name: "app"}, Spec: v1alpha1.ImageTrackSpec{Repository: reg.Ref("shop/app"),
		Follow: v1alpha1.TrackFollow{Tag: "1.2.3-rev1"}, Mode: v1alpha1.ModeWrite, IntervalSeconds: 3600,
		Targets: []v1alpha1.TrackTarget{{Kind: "Deployment", Namespace: "shop", Name: "app"}}}})

	image := func() string {
		var d appsv1.Deployment
		if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: "shop", Name: "app"}, &d); err != nil {
			t.Fatal(err)
		}
		return d.Spec.Template.Spec.Containers[0].Image
	}
	status := func() v1alpha1.ImageTrackStatus {
		var o v1alpha1.ImageTrack
		if err := s.admin.Get(context.Background(), client.ObjectKey{Name: "app"}, &o); err != nil {
			t.Fatal(err)
		}
		return o.Status
	}
	s.wait("n2 holds it and n3 has no room", func() string {
		if st := status(); st.Preloaded != "1/2" {
			return fmt.Sprintf("%+v", st)
		}
		return ""
	})
	if got := image(); got != reg.Ref("shop/app:1.2.3-rev1") {
		t.Fatalf("it was written before all nodes hold it: %s", got)
	}
	s.agents["n3"].set(func(a *simAgent) { a.full = false })
	s.wait("the digest is in the workload", func() string {
		if got := image(); got != reg.Ref("shop/app:1.2.3-rev1@"+digest) {
			return got
		}
		return ""
	})
	if st := status(); st.Preloaded != "2/2" {
		t.Fatalf("%+v", st)
	}
}
