package clusterfacts

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AddonsUnsettled returns which Deployment or DaemonSet of kube-system is being rolled out, empty if
// none is. A server of k3s, RKE2 or k0s applies the add-ons of its version when it has started.
func AddonsUnsettled(ctx context.Context, live client.Reader) (string, error) {
	var ds appsv1.DeploymentList
	if err := live.List(ctx, &ds, client.InNamespace(metav1.NamespaceSystem)); err != nil {
		return "", fmt.Errorf("list the Deployments of kube-system: %w", err)
	}
	for i := range ds.Items {
		if d := &ds.Items[i]; deploymentUnsettled(d) {
			return fmt.Sprintf("Deployment %s: %d of %d pods are of its new template, %d are available", d.Name, d.Status.UpdatedReplicas, replicas(d), d.Status.AvailableReplicas), nil
		}
	}
	var ss appsv1.DaemonSetList
	if err := live.List(ctx, &ss, client.InNamespace(metav1.NamespaceSystem)); err != nil {
		return "", fmt.Errorf("list the DaemonSets of kube-system: %w", err)
	}
	for i := range ss.Items {
		if s := &ss.Items[i]; daemonSetUnsettled(s) {
			return fmt.Sprintf("DaemonSet %s: %d of %d pods are of its new template", s.Name, s.Status.UpdatedNumberScheduled, s.Status.DesiredNumberScheduled), nil
		}
	}
	return "", nil
}

func deploymentUnsettled(d *appsv1.Deployment) bool {
	s, want := &d.Status, replicas(d)
	return !d.Spec.Paused && (s.ObservedGeneration < d.Generation || s.UpdatedReplicas < want || s.Replicas > want || s.AvailableReplicas < want)
}

// daemonSetUnsettled does not ask for pods that are available: one on a node that is off never is.
func daemonSetUnsettled(d *appsv1.DaemonSet) bool {
	s := &d.Status
	return s.ObservedGeneration < d.Generation || d.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType && s.UpdatedNumberScheduled < s.DesiredNumberScheduled
}

func replicas(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}
