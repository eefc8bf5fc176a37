package scenario

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The workload that runs while the cluster is updated.
const (
	workloadNamespace = "shop"
	workloadName      = "app"
	// WorkloadReplicas are its pods.
	WorkloadReplicas = 3
	// WorkloadBudget is the budget's minAvailable.
	WorkloadBudget = 2
)

func workloadLabels() map[string]string { return map[string]string{"app": workloadName} }

// workloadObjects are a Deployment, its budget and a Service.
func workloadObjects(image string) []client.Object {
	meta := metav1.ObjectMeta{Name: workloadName, Namespace: workloadNamespace}
	replicas, grace := int32(WorkloadReplicas), int64(2)
	budget := intstr.FromInt32(WorkloadBudget)
	sel := &metav1.LabelSelector{MatchLabels: workloadLabels()}
	return []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: workloadNamespace}},
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: sel,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: workloadLabels()},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: &grace,
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
						MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: sel,
					}},
					Containers: []corev1.Container{{
						Name: "app", Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
						Env:            []corev1.EnvVar{{Name: "LISTEN", Value: ":8080"}},
						Ports:          []corev1.ContainerPort{{ContainerPort: 8080}},
						ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(8080)}}},
					}},
				},
			},
		}},
		&policyv1.PodDisruptionBudget{ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &budget, Selector: sel}},
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Selector: workloadLabels(), Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}}},
	}
}

// deployWorkload makes the workload and waits until every replica is ready.
func deployWorkload(ctx context.Context, c client.Client, image string) error {
	for _, o := range workloadObjects(image) {
		if err := c.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("workload: %w", err)
		}
	}
	return until(ctx, 2*time.Minute, "the workload to be ready", func() (bool, string) {
		var d appsv1.Deployment
		if err := c.Get(ctx, client.ObjectKey{Namespace: workloadNamespace, Name: workloadName}, &d); err != nil {
			return false, err.Error()
		}
		return d.Status.ReadyReplicas == WorkloadReplicas, fmt.Sprintf("%d of %d replicas ready", d.Status.ReadyReplicas, WorkloadReplicas)
	})
}

// until polls ask every half second; the error says what it last answered.
func until(ctx context.Context, limit time.Duration, what string, ask func() (bool, string)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		ok, said := ask()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %s for %s: %s", limit, what, said)
		case <-time.After(500 * time.Millisecond):
		}
	}
}
