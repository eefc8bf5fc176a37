//go:build linux

package imagetracks

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// jobs that have nodes fetch, in a namespace.
func (w *testCluster) jobs(namespace string) []batchv1.Job {
	w.t.Helper()
	var l batchv1.JobList
	w.must(w.admin.List(context.Background(), &l, client.InNamespace(namespace)))
	return l.Items
}

// setFreeBytes sets the free space for images that a node reports.
func (w *testCluster) setFreeBytes(node string, free int64) {
	w.t.Helper()
	nu := w.node(node)
	nu.Status.FileSystems = []v1alpha1.FileSystem{{Name: "images", ID: "1", FreeBytes: free, TotalBytes: 1 << 40}}
	w.must(w.admin.Status().Update(context.Background(), nu))
}

// What needs credentials is fetched by the kubelets of the nodes, with the pods'
// own secrets: refit names them and reads none, has nothing run, and asks for room
// before.
func TestKubeletsFetchWithThePodsSecrets(t *testing.T) {
	w := newTestCluster(t)
	const secret = "shop-registry"
	a := w.reg.Push("shop/app", build("one"), "2.6.2-rev1-b5.1", "2.6.2-rev1")
	tagged := w.reg.Ref("shop/app:2.6.2-rev1")
	w.create(deployment("app", tagged, 2))
	for i, node := range []string{"n1", "n2"} {
		w.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: []string{"app-0", "app-1"}[i], Labels: map[string]string{"app": "app"}},
			Spec:   corev1.PodSpec{NodeName: node, ImagePullSecrets: []corev1.LocalObjectReference{{Name: secret}}, Containers: []corev1.Container{{Name: "app", Image: tagged}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Ready: true, ImageID: w.reg.Ref("shop/app@" + a)}}}})
	}
	w.setRollout("app", 2, true)
	w.newTrack()
	w.reconcile("app")
	var set v1alpha1.PinnedImageSet
	w.must(w.admin.Get(t.Context(), client.ObjectKey{Name: "track-app"}, &set))
	size := set.Spec.Groups[0].Images[0].SizeBytes
	if !set.Spec.FromRegistry || !set.Spec.ByKubelet || size <= 0 {
		t.Fatalf("%+v", set.Spec)
	}
	w.simulateAgents("app", false)
	o := w.reconcile("app")
	checkCondition(t, o, v1alpha1.ConditionReady, v1alpha1.ReasonImagePreloading, "needs credentials", "kubectl -n shop create rolebinding")
	w.grant("shop")

	t.Log("a node without free space gets no job")
	w.setFreeBytes("n1", 4*size-1)
	w.setFreeBytes("n2", 4*size)
	checkCondition(t, w.reconcile("app"), v1alpha1.ConditionReady, v1alpha1.ReasonImagePreloading, "node n1 needs", "bytes are free")
	jobs := w.jobs("shop")
	if len(jobs) != 1 {
		t.Fatalf("%d jobs", len(jobs))
	}
	p := jobs[0].Spec.Template.Spec
	c := p.Containers[0]
	if p.NodeName != "n2" || len(p.ImagePullSecrets) != 1 || p.ImagePullSecrets[0].Name != secret || c.Image != w.reg.Ref("shop/app:2.6.2-rev1-b5.1@"+a) ||
		len(c.Command) != 1 || !*p.SecurityContext.RunAsNonRoot || *p.AutomountServiceAccountToken || *jobs[0].Spec.TTLSecondsAfterFinished == 0 || *jobs[0].Spec.ActiveDeadlineSeconds == 0 {
		t.Fatalf("%+v", jobs[0].Spec)
	}

	t.Log("a reconcile during a pull creates no second job and reports the message of the kubelet")
	w.setFreeBytes("n1", 1<<40)
	w.reconcile("app")
	if n := len(w.jobs("shop")); n != 2 {
		t.Fatalf("%d jobs", n)
	}
	w.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "fetches", Labels: map[string]string{batchv1.JobNameLabel: jobs[0].Name}},
		Spec: corev1.PodSpec{NodeName: "n2", Containers: []corev1.Container{{Name: "fetch", Image: c.Image}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{Name: "fetch", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "401 with a token in it"}}}}}})
	o = w.reconcile("app")
	checkCondition(t, o, v1alpha1.ConditionReady, v1alpha1.ReasonImagePreloading, "node n2: its kubelet cannot fetch the image (ErrImagePull)", "describe pod fetches")
	text, err := json.Marshal(o.Status)
	w.must(err)
	if strings.Contains(string(text), "401 with") {
		t.Fatal("what a registry says to a kubelet is in the status")
	}
	if n := len(w.jobs("shop")); n != 2 {
		t.Fatalf("%d jobs", n)
	}
	w.simulateAgents("app", true)
	w.reconcile("app")
	if got := w.image("app"); got != w.reg.Ref("shop/app:2.6.2-rev1@"+a) {
		t.Fatalf("it runs %s", got)
	}
}

// A track's own secret is used where the pods have none, in refit's own namespace,
// where that right is part of the installation.
func TestKubeletsFetchWithTheTracksSecret(t *testing.T) {
	w := newTestCluster(t)
	a := w.reg.Push("shop/app", registrytest.Image{Version: "2.6.2", Layers: []string{"one"}}, "2.6.2-rev1-b5.1", "2.6.2-rev1")
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.BuildsNamespace, Name: "site-registry"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"` + w.reg.Addr + `":{"username":"u","password":"p"}}}`)}})
	w.create(deployment("app", w.reg.Ref("shop/app:2.6.2-rev1"), 1))
	w.runDigests("app", a)
	w.newTrack(func(s *v1alpha1.ImageTrackSpec) { s.PullSecret = &v1alpha1.PullSecret{Name: "site-registry"} })
	w.reconcile("app")
	w.simulateAgents("app", false)
	w.reconcile("app")
	if jobs := w.jobs(v1alpha1.BuildsNamespace); len(jobs) != 1 || jobs[0].Spec.Template.Spec.ImagePullSecrets[0].Name != "site-registry" {
		t.Fatalf("%+v", jobs)
	}
	if jobs := w.jobs("shop"); len(jobs) != 0 {
		t.Fatalf("%+v", jobs)
	}
}
