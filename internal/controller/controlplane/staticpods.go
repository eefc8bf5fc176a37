package controlplane

import (
	"context"
	"fmt"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
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
			if image := p.Spec.Containers[0].Image; !updateplan.Same(versionOf(tag(image)), version) {
				return component + " runs " + image + ", not " + version, nil
			}
			if !rolloutfacts.PodReady(p) {
				return component + " is not Ready yet", nil
			}
		}
		if !found {
			return component + " has no pod on it", nil
		}
	}
	return "", nil
}

// Unsettled says which static pod of a node is on its way from one version to
// another, empty if none is: kubeadm returns from a failed upgrade before the
// kubelet has rolled the pods back, and one that is begun then takes what still
// runs for the beginning.
func Unsettled(ctx context.Context, live client.Reader, node string) (string, error) {
	var l corev1.PodList
	err := live.List(ctx, &l, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"tier": "control-plane"}, client.MatchingFields{"spec.nodeName": node})
	if err != nil {
		return "", fmt.Errorf("list the static pods of node %s: %w", node, err)
	}
	sort.Slice(l.Items, func(i, j int) bool { return l.Items[i].Name < l.Items[j].Name })
	for i := range l.Items {
		p := &l.Items[i]
		if !rolloutfacts.PodReady(p) {
			return p.Name + " is not Ready", nil
		}
		for j := range p.Status.ContainerStatuses {
			c := &p.Status.ContainerStatuses[j]
			if j < len(p.Spec.Containers) && tag(c.Image) != "" && tag(c.Image) != tag(p.Spec.Containers[j].Image) {
				return p.Name + " still runs " + c.Image, nil
			}
		}
	}
	return "", nil
}

// Health is what the static pods of all control-plane nodes say: who is not well
// and why, and which nodes run an etcd member, true if it is Ready; none if etcd
// runs elsewhere.
func Health(ctx context.Context, live client.Reader, nodes []*corev1.Node) (rollout.ControlPlane, error) {
	var l corev1.PodList
	if err := live.List(ctx, &l, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"tier": "control-plane"}); err != nil {
		return rollout.ControlPlane{}, fmt.Errorf("list the static pods of the control plane: %w", err)
	}
	return rolloutfacts.Health(l.Items, nodes), nil
}

// tag of an image reference.
// versionOf a tag: kubeadm writes the plus sign of a version as an underscore, since a
// tag may have none (kubeadm's util.KubernetesVersionToImageTag).
func versionOf(tag string) string { return strings.Replace(tag, "_", "+", 1) }

func tag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
		return image[i+1:]
	}
	return ""
}
