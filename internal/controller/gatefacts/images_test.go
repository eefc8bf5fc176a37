package gatefacts

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/internal/source/lint"
)

func needed(namespace, owner, image string, policy corev1.PullPolicy, change ...func(*corev1.Pod)) *corev1.Pod {
	yes := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: owner + "-x",
		OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: owner, Controller: &yes}}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image, ImagePullPolicy: policy}}}}
	for _, f := range change {
		f(p)
	}
	return p
}

// Of what a node needs the gate hears: who asks a registry, and whose tag moves;
// once for all pods of one owner, and not where a person has said why not.
func TestRisksOfWhatANodeNeeds(t *testing.T) {
	t.Parallel()
	found := map[string]lint.Object{}
	for _, p := range []*corev1.Pod{
		needed("kube-system", "cni", "reg.example/cni:1.2.3", corev1.PullAlways),
		needed("kube-system", "cni", "reg.example/cni:1.2.3", corev1.PullAlways),
		needed("kube-system", "proxy", "registry.k8s.io/kube-proxy:v1.36.3", corev1.PullIfNotPresent),
		needed("kube-system", "dns", "reg.example/dns:stable", corev1.PullIfNotPresent),
		needed("kube-system", "quiet", "reg.example/dns:stable", corev1.PullAlways, func(p *corev1.Pod) {
			p.Annotations = map[string]string{lint.OffAnnotation: "T01: watched; T02: there is a registry"}
		}),
		needed("shop", "web", "reg.example/web:latest", corev1.PullAlways),
		needed("kube-system", "done", "reg.example/x:latest", corev1.PullAlways, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
	} {
		note(found, p)
	}
	var got []string
	for _, r := range risks(found) {
		got = append(got, r.Rule+" "+r.Object+" "+r.Image)
	}
	if diff := cmp.Diff([]string{"T02 DaemonSet/kube-system/cni reg.example/cni:1.2.3", "T01 DaemonSet/kube-system/dns reg.example/dns:stable"}, got); diff != "" {
		t.Error(diff)
	}
}
