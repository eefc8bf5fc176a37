package clusterfacts

import (
	"context"
	"fmt"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// components are the static pods that kubeadm creates and versions.
var components = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// StaticPodsNotYet returns which static pod of a control-plane node is not at a version or not
// Ready, empty if all are.
func StaticPodsNotYet(ctx context.Context, live client.Reader, node, version string) (string, error) {
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
			if !podReady(p) {
				return component + " is not Ready yet", nil
			}
		}
		if !found {
			return component + " has no pod on the node", nil
		}
	}
	return "", nil
}

// StaticPodsUnsettled returns which static pod of a node is changing its version, empty if none is.
// kubeadm returns from a failed upgrade before the kubelet has rolled the pods back. An upgrade
// that starts then would take the version that still runs as the one to upgrade from.
func StaticPodsUnsettled(ctx context.Context, live client.Reader, node string) (string, error) {
	var l corev1.PodList
	err := live.List(ctx, &l, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"tier": "control-plane"}, client.MatchingFields{"spec.nodeName": node})
	if err != nil {
		return "", fmt.Errorf("list the static pods of node %s: %w", node, err)
	}
	sort.Slice(l.Items, func(i, j int) bool { return l.Items[i].Name < l.Items[j].Name })
	for i := range l.Items {
		p := &l.Items[i]
		if !podReady(p) {
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

// ControlPlanePods lists the static pods of the control plane.
func ControlPlanePods(ctx context.Context, live client.Reader) ([]corev1.Pod, error) {
	var l corev1.PodList
	if err := live.List(ctx, &l, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"tier": "control-plane"}); err != nil {
		return nil, fmt.Errorf("list the static pods of the control plane: %w", err)
	}
	return l.Items, nil
}

// versionOf returns the version of an image tag: kubeadm writes the plus sign of a version as
// an underscore, since a tag may have none (kubeadm's util.KubernetesVersionToImageTag).
func versionOf(tag string) string { return strings.Replace(tag, "_", "+", 1) }

// tag returns the tag of an image reference.
func tag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
		return image[i+1:]
	}
	return ""
}
