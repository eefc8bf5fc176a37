package installcmd

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
)

// podSecurity is a label of the builds namespace that an administrator may have
// changed.
const podSecurity = "pod-security.kubernetes.io/enforce"

// adapt fits the objects of an installation to the cluster: the number of controllers
// that its nodes can run, and the existing Pod Security level of builds.
func adapt(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return fmt.Errorf("list the nodes that can run the controller: %w", err)
	}
	var builds corev1.Namespace
	if err := c.Get(ctx, client.ObjectKey{Name: v1alpha1.BuildsNamespace}, &builds); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read namespace %s: %w", v1alpha1.BuildsNamespace, err)
	}
	for _, o := range objects {
		switch {
		case o.GetKind() == "Deployment" && o.GetName() == "refit-controller":
			if err := unstructured.SetNestedField(o.Object, replicasFor(nodes.Items), "spec", "replicas"); err != nil {
				return fmt.Errorf("internal: manifests: %w", err)
			}
		case o.GetKind() == "Namespace" && o.GetName() == v1alpha1.BuildsNamespace && builds.Labels[podSecurity] != "":
			labels := o.GetLabels()
			labels[podSecurity] = builds.Labels[podSecurity]
			o.SetLabels(labels)
		}
	}
	return nil
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
