// Package staticpods observes whether a control-plane node is where it should
// be: the static pods that kubeadm versions run the wanted release and are Ready.
//
// Promise: it looks at the API server, past any cache, and believes only what it
// sees there. Caller: controller/updates, before a node is given back.
package staticpods

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/pipeline/update"
)

// components are the static pods that kubeadm makes and versions.
var components = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// NotYet says which static pod of a control-plane node is not at a version or
// not Ready, empty if all are.
func NotYet(ctx context.Context, live client.Reader, node, version string) (string, error) {
	var l corev1.PodList
	err := live.List(ctx, &l, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"tier": "control-plane"}, client.MatchingFields{"spec.nodeName": node})
	if err != nil {
		return "", fmt.Errorf("list the static pods of node %s: %w", node, err)
	}
	for _, component := range components {
		found := false
		for i := range l.Items {
			p := &l.Items[i]
			if p.Labels["component"] != component || len(p.Spec.Containers) == 0 {
				continue
			}
			found = true
			if image := p.Spec.Containers[0].Image; !update.Same(tag(image), version) {
				return component + " runs " + image + ", not " + version, nil
			}
			if !podReady(p) {
				return component + " is not Ready yet", nil
			}
		}
		if !found {
			return component + " has no pod on it", nil
		}
	}
	return "", nil
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// tag of an image reference.
func tag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
		return image[i+1:]
	}
	return ""
}
