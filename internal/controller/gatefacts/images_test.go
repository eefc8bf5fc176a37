package gatefacts

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/imagetag/lint"
	"github.com/refit-dev/refit/internal/pipeline/gate"
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
		addImage(found, p)
	}
	var got []string
	for _, r := range restartRisks(found) {
		got = append(got, r.Rule+" "+r.Object+" "+r.Image)
	}
	if diff := cmp.Diff([]string{"T02 DaemonSet/kube-system/cni reg.example/cni:1.2.3", "T01 DaemonSet/kube-system/dns reg.example/dns:stable"}, got); diff != "" {
		t.Error(diff)
	}
}

// Pods that ask a registry are named by who makes them, and so are
// products that resolve tags.
func TestWhoAsksRegistries(t *testing.T) {
	t.Parallel()
	x := pullCounter{always: map[string]int{}, resolvers: map[string]gate.Resolver{}}
	for _, p := range []*corev1.Pod{
		needed("shop", "web", "reg.example/web:1", corev1.PullAlways), needed("shop", "web", "reg.example/web:1", corev1.PullAlways),
		needed("shop", "db", "reg.example/db:1", corev1.PullIfNotPresent), needed("keel", "keel", "ghcr.io/keel-hq/keel:1", corev1.PullIfNotPresent),
		needed("shop", "done", "reg.example/x:1", corev1.PullAlways, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
	} {
		x.addPod(p)
	}
	var got gate.Pulls
	x.writeTo(&got)
	if diff := cmp.Diff([]string{"DaemonSet shop/web (2)"}, got.Always); diff != "" {
		t.Error(diff)
	}
	if len(got.Resolvers) != 1 || got.Resolvers[0].Object != "DaemonSet/keel/keel" || !strings.Contains(got.Resolvers[0].Message, "Keel: it asks registries") || got.Resolvers[0].Fix == "" {
		t.Errorf("%+v", got.Resolvers)
	}
	hooks := resolvingHooks([]gate.Webhook{{Configuration: "MutatingWebhookConfiguration/kyverno-x", Name: "m", Pods: true}, {Configuration: "ValidatingWebhookConfiguration/other", Name: "v", Pods: true},
		{Configuration: "MutatingWebhookConfiguration/kyverno-y", Name: "services"}})
	if len(hooks) != 1 || !strings.Contains(hooks[0].Message, "Kyverno and fails closed") {
		t.Errorf("%+v", hooks)
	}
	res := gate.Decide(gate.Input{Pulls: gate.Pulls{Resolvers: append(got.Resolvers, hooks...)}})
	said := 0
	for _, w := range res.Warnings {
		if w.Reason == v1alpha1.ReasonTagResolver {
			said++
		}
	}
	if said != 2 {
		t.Errorf("the gate warns of %d: %+v", said, res.Warnings)
	}
}
