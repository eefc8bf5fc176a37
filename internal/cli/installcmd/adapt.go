package installcmd

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
)

// podSecurity is a label of the builds namespace that an administrator may have
// changed.
const podSecurity = "pod-security.kubernetes.io/enforce"

// adapt fits the objects of an installation to the cluster: the number of controllers that can
// start now, and the existing Pod Security level of builds. Where nodes cannot pull the image, the
// controller itself starts the second one later.
func adapt(ctx context.Context, c client.Client, objects []*unstructured.Unstructured, canPull bool) error {
	var builds corev1.Namespace
	if err := c.Get(ctx, client.ObjectKey{Name: v1alpha1.BuildsNamespace}, &builds); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read namespace %s: %w", v1alpha1.BuildsNamespace, err)
	}
	for _, o := range objects {
		switch {
		case o.GetKind() == "Deployment" && o.GetName() == v1alpha1.ControllerDeployment:
			if err := adaptController(ctx, c, o, canPull); err != nil {
				return err
			}
		case o.GetKind() == "Namespace" && o.GetName() == v1alpha1.BuildsNamespace && builds.Labels[podSecurity] != "":
			labels := o.GetLabels()
			labels[podSecurity] = builds.Labels[podSecurity]
			o.SetLabels(labels)
		}
	}
	return nil
}

// adaptController sets the number of controllers, and marks the pods, so that the controller starts
// the second one when its node has the image.
func adaptController(ctx context.Context, c client.Client, d *unstructured.Unstructured, canPull bool) error {
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return fmt.Errorf("list the nodes that can run the controller: %w", err)
	}
	// With and without canPull, so that the pods stay when a person adds --daemonset later.
	if err := unstructured.SetNestedField(d.Object, v1alpha1.StandbyWhenImagePresent, "spec", "template", "metadata", "annotations", v1alpha1.AnnotationStandby); err != nil {
		return fmt.Errorf("internal: manifests: %w", err)
	}
	replicas := replicasFor(nodes.Items)
	if !canPull {
		running, err := runningReplicas(ctx, c, d)
		if err != nil {
			return err
		}
		holders := slices.DeleteFunc(slices.Clone(nodes.Items), func(n corev1.Node) bool { _, has := n.Labels[v1alpha1.LabelFirstContact]; return !has })
		replicas = min(replicas, max(replicasFor(holders), running))
	}
	if err := unstructured.SetNestedField(d.Object, replicas, "spec", "replicas"); err != nil {
		return fmt.Errorf("internal: manifests: %w", err)
	}
	return nil
}

// runningReplicas returns the number of controllers that a Deployment with the same image has, 0 if
// there is none.
func runningReplicas(ctx context.Context, c client.Client, wanted *unstructured.Unstructured) (int64, error) {
	var live appsv1.Deployment
	if err := c.Get(ctx, client.ObjectKeyFromObject(wanted), &live); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	containers, _, err := unstructured.NestedSlice(wanted.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 || live.Spec.Replicas == nil || len(live.Spec.Template.Spec.Containers) != 1 {
		return 0, err
	}
	container, _ := containers[0].(map[string]any)
	if container["image"] != live.Spec.Template.Spec.Containers[0].Image {
		return 0, nil
	}
	return int64(*live.Spec.Replicas), nil
}

// replicasFor returns two if two nodes can run a controller, which tolerates the
// taints of control planes, cordons and missing images.
func replicasFor(nodes []corev1.Node) int64 {
	tolerated := []string{"node-role.kubernetes.io/control-plane", corev1.TaintNodeUnschedulable, v1alpha1.TaintImagesNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady}
	can := 0
	for i := range nodes {
		if !slices.ContainsFunc(nodes[i].Spec.Taints, func(t corev1.Taint) bool {
			return t.Effect != corev1.TaintEffectPreferNoSchedule && !slices.Contains(tolerated, t.Key)
		}) {
			can++
		}
	}
	if can >= 2 {
		return 2
	}
	return 1
}
