package workloads

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/imagetag/track"
)

func ptr[T any](v T) *T { return &v }

// How many pods a strategy stops at once, as its controller counts, and when a
// roll-out is at its end.
func TestDeployment(t *testing.T) {
	t.Parallel()
	done := appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 4, UpdatedReplicas: 4, AvailableReplicas: 4}
	rolling := func(unavailable, surge *intstr.IntOrString) appsv1.DeploymentStrategy {
		return appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: unavailable, MaxSurge: surge}}
	}
	for name, c := range map[string]struct {
		replicas int32
		strategy appsv1.DeploymentStrategy
		status   appsv1.DeploymentStatus
		down     int
		settled  bool
	}{
		"the default, a quarter, rounded down":   {4, appsv1.DeploymentStrategy{}, done, 1, true},
		"of three a quarter is none":             {3, appsv1.DeploymentStrategy{}, done, 0, false},
		"Recreate stops all":                     {4, appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}, done, 4, true},
		"half":                                   {4, rolling(ptr(intstr.FromString("50%")), nil), done, 2, true},
		"neither may be missing nor extra: one":  {4, rolling(ptr(intstr.FromInt32(0)), ptr(intstr.FromInt32(0))), done, 1, true},
		"one not updated":                        {4, rolling(nil, nil), appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 4, UpdatedReplicas: 3, AvailableReplicas: 4}, 1, false},
		"one not available":                      {4, rolling(nil, nil), appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 4, UpdatedReplicas: 4, AvailableReplicas: 3}, 1, false},
		"an old one is left":                     {4, rolling(nil, nil), appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 5, UpdatedReplicas: 4, AvailableReplicas: 4}, 1, false},
		"its controller has not seen the change": {4, rolling(nil, nil), appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 4, UpdatedReplicas: 4, AvailableReplicas: 4}, 1, false},
	} {
		w := &Workload{}
		deployment(w, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Spec: appsv1.DeploymentSpec{Replicas: &c.replicas, Strategy: c.strategy}, Status: c.status})
		if w.TakesDown != c.down || w.Settled != c.settled {
			t.Errorf("%s: stops %d, settled %v (%s)", name, w.TakesDown, w.Settled, w.Progress)
		}
	}
}

func TestStatefulSetAndDaemonSet(t *testing.T) {
	t.Parallel()
	w := &Workload{}
	statefulSet(w, &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: ptr(int32(3)), UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: "RollingUpdate",
		RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr(int32(2))}}},
		Status: appsv1.StatefulSetStatus{Replicas: 3, ReadyReplicas: 3, UpdatedReplicas: 1}})
	if w.TakesDown != 1 || !w.Settled || w.OnDelete {
		t.Errorf("a partition: %+v", w)
	}
	for name, c := range map[string]struct {
		spec         appsv1.DaemonSetUpdateStrategy
		down         int
		del, settled bool
	}{
		"the default":  {appsv1.DaemonSetUpdateStrategy{Type: "RollingUpdate", RollingUpdate: &appsv1.RollingUpdateDaemonSet{}}, 1, false, false},
		"a tenth":      {appsv1.DaemonSetUpdateStrategy{Type: "RollingUpdate", RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr(intstr.FromString("10%"))}}, 2, false, false},
		"a surge":      {appsv1.DaemonSetUpdateStrategy{Type: "RollingUpdate", RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxSurge: ptr(intstr.FromInt32(1))}}, 0, false, false},
		"when deleted": {appsv1.DaemonSetUpdateStrategy{Type: "OnDelete"}, 1, true, true},
	} {
		w := &Workload{}
		daemonSet(w, &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{UpdateStrategy: c.spec},
			Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 12, NumberAvailable: 12, UpdatedNumberScheduled: 11}})
		if w.TakesDown != c.down || w.OnDelete != c.del || w.Settled != c.settled {
			t.Errorf("%s: %+v", name, w.Target)
		}
	}
}

// What another tool keeps as it is, is not ours to change.
func TestOwnerOf(t *testing.T) {
	t.Parallel()
	field := func(manager, raw string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(raw)}
	}
	const image = `{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:image":{}}}}}}}`
	for name, c := range map[string]struct {
		meta metav1.ObjectMeta
		want string
	}{
		"nobody":                       {metav1.ObjectMeta{}, ""},
		"a person's kubectl":           {metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{field("kubectl-client-side-apply", image)}}, ""},
		"Argo CD by label":             {metav1.ObjectMeta{Labels: map[string]string{"argocd.argoproj.io/instance": "shop"}}, "Argo CD"},
		"Flux":                         {metav1.ObjectMeta{Labels: map[string]string{"kustomize.toolkit.fluxcd.io/name": "shop"}}, "Flux"},
		"Helm":                         {metav1.ObjectMeta{Annotations: map[string]string{"meta.helm.sh/release-name": "shop"}}, "Helm"},
		"Argo CD by what it wrote":     {metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{field("argocd-controller", image)}}, "Argo CD"},
		"Argo CD wrote something else": {metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{field("argocd-controller", `{"f:metadata":{"f:annotations":{}}}`)}}, ""},
		"an operator":                  {metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "Database", Name: "orders", Controller: ptr(true)}}}, "Database orders"},
	} {
		if got := ownerOf(&appsv1.Deployment{ObjectMeta: c.meta}); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Runtimes write an image's ID in several ways.
func TestDigestIn(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"r.example/app@sha256:aa":                   "sha256:aa",
		"docker-pullable://r.example/app@sha256:aa": "sha256:aa",
		"docker://sha256:aa":                        "sha256:aa",
		"sha256:aa":                                 "sha256:aa",
	} {
		if got := digestIn(id); got != want {
			t.Errorf("%s: %s", id, got)
		}
	}
}

// Static pods of one manifest are one workload on many nodes; other pods are none.
func TestStaticPods(t *testing.T) {
	t.Parallel()
	pod := func(name, node string, mirror bool) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, Annotations: map[string]string{}},
			Spec:   corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "proxy", Image: "r.example/app:1-rev1"}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "proxy", ImageID: "r.example/app@sha256:aa"}}}}
		if mirror {
			p.Annotations[corev1.MirrorPodAnnotationKey] = "x"
		}
		return p
	}
	ws := staticPods([]corev1.Pod{pod("proxy-n1", "n1", true), pod("proxy-n2", "n2", true), pod("other-n1", "n1", false)})
	if len(ws) != 1 || ws[0].Key() != "StaticPod/kube-system/proxy" || len(ws[0].Pods) != 2 {
		t.Fatalf("%+v", ws)
	}
	s, err := imagetag.ByName("rev")
	if err != nil {
		t.Fatal(err)
	}
	nodes := ""
	ws[0].Running(track.Track{Repository: "r.example/app", Scheme: s}, func(digest, node string) { nodes += digest + " " + node + ";" })
	if nodes != "sha256:aa n1;sha256:aa n2;" {
		t.Errorf("%s", nodes)
	}
}
