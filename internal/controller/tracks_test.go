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
	"github.com/refit-dev/refit/internal/controller/imagetracks"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// The whole way with the RBAC of an installation. A track with automatic approval of rebuilds
// has the nodes pin the digest, waits for their agents to report it, and then writes it to
// the workloads that it may update.
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
	s.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: imagetracks.WriterRole},
		RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: imagetracks.WriterRole},
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
		t.Fatalf("the workload was written before all nodes have the image: %s", got)
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

// Without a registry applying a bundle is the only thing that moves a tag: a
// track of bundles sees it, and the nodes have the image already.
func TestATrackOfBundles(t *testing.T) {
	s := newSite(t, "v1.35.4")
	release := func(version, words string) []byte {
		return bundletest.Make(t, bundletest.Spec{Name: "apps", Version: version, Images: []bundletest.Image{
			{Name: "registry.example/app:1.2.3-rev1", Group: bundle.GroupWorkload, Layers: [][]byte{[]byte(words)}},
			{Name: "registry.example/app:1.2.3-rev1-b" + version[:1] + ".1", Group: bundle.GroupWorkload, Layers: [][]byte{[]byte(words)}}}}).Header(t)
	}
	digestOf := func(raw []byte) (image, top string) {
		h, err := bundle.ParseHeader(raw)
		if err != nil {
			t.Fatal(err)
		}
		return h.ImageByName("registry.example/app:1.2.3-rev1").Digest, h.Digest
	}
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	labels := map[string]string{"app": "app"}
	one := int32(1)
	s.create(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "app"}, Spec: appsv1.DeploymentSpec{Replicas: &one,
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example/app:1.2.3-rev1"}}}}}})
	p := pod("shop", "app-1", "n2", "registry.example/app:1.2.3-rev1")
	p.Labels = labels
	s.create(p)
	s.create(&v1alpha1.ImageTrack{ObjectMeta: metav1.ObjectMeta{Name: "app"}, Spec: v1alpha1.ImageTrackSpec{Repository: "registry.example/app",
		Source: v1alpha1.SourceBundles, Follow: v1alpha1.TrackFollow{Tag: "1.2.3-rev1"}, IntervalSeconds: 10, Automatic: []string{v1alpha1.ClassRebuild},
		Targets: []v1alpha1.TrackTarget{{Kind: "Deployment", Namespace: "shop", Name: "app"}}}})
	for _, version := range []string{"1.0.0", "2.0.0"} {
		raw := release(version, "build "+version)
		image, top := digestOf(raw)
		s.plugIn("n2", raw)
		s.approve("b"+version[:1], top)
		s.wait("the track takes what bundle "+version+" brings", func() string {
			var o v1alpha1.ImageTrack
			if err := s.admin.Get(context.Background(), client.ObjectKey{Name: "app"}, &o); err != nil {
				return err.Error()
			}
			st := o.Status
			if st.Approved == nil || st.Approved.Digest != image || st.Endpoint != "bundle "+top || st.Preloaded != "1/1" || st.Approved.LongTag != "1.2.3-rev1-b"+version[:1]+".1" {
				return fmt.Sprintf("%+v", st)
			}
			return ""
		})
		var set v1alpha1.PinnedImageSet
		if err := s.admin.Get(context.Background(), client.ObjectKey{Name: "track-app"}, &set); err != nil || set.Spec.Bundle != top || set.Spec.FromRegistry {
			t.Fatalf("%v %+v", err, set.Spec)
		}
	}
}
