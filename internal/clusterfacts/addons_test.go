package clusterfacts_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/refit-dev/refit/internal/clusterfacts"
)

func TestAddonsUnsettled(t *testing.T) {
	t.Parallel()
	two := int32(2)
	system := metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns", Generation: 2}
	deployment := func(s appsv1.DeploymentStatus) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: system, Spec: appsv1.DeploymentSpec{Replicas: &two}, Status: s}
	}
	daemons := func(s appsv1.DaemonSetStatus) *appsv1.DaemonSet {
		return &appsv1.DaemonSet{ObjectMeta: system, Status: s}
	}
	elsewhere := deployment(appsv1.DeploymentStatus{})
	elsewhere.Namespace = "shop"
	paused := deployment(appsv1.DeploymentStatus{ObservedGeneration: 1})
	paused.Spec.Paused = true
	onDelete := daemons(appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 3, UpdatedNumberScheduled: 1})
	onDelete.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	for name, tc := range map[string]struct {
		object client.Object
		want   string
	}{
		"all pods are new":                    {deployment(appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}), ""},
		"its controller has not seen it":      {deployment(appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}), "Deployment coredns"},
		"one pod is old":                      {deployment(appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 1, AvailableReplicas: 2}), "1 of 2 pods"},
		"an old pod still ends":               {deployment(appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 2, AvailableReplicas: 2}), "2 of 2 pods"},
		"a new pod does not start":            {deployment(appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 1}), "1 are available"},
		"a paused one waits for a person":     {paused, ""},
		"another namespace is no add-on":      {elsewhere, ""},
		"a DaemonSet has all":                 {daemons(appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 3, UpdatedNumberScheduled: 3}), ""},
		"a DaemonSet replaces pods":           {daemons(appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 3, UpdatedNumberScheduled: 1}), "DaemonSet coredns: 1 of 3 pods"},
		"a pod of a node that is off":         {daemons(appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 3, UpdatedNumberScheduled: 3, NumberUnavailable: 1}), ""},
		"OnDelete replaces nothing by itself": {onDelete, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := clusterfacts.AddonsUnsettled(t.Context(), fake.NewClientBuilder().WithObjects(tc.object).Build())
			if err != nil || (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("%q, %v; want %q", got, err, tc.want)
			}
		})
	}
}
