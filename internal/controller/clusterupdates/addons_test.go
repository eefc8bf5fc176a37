package clusterupdates

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// Add-ons are read after a server of a distribution that applies them has moved, and not for ever.
func TestAddonsAreReadAfterAServerMoved(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	rolling := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "net"}, Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, UpdatedNumberScheduled: 1}}
	r := &Reconciler{Live: fake.NewClientBuilder().WithObjects(rolling).Build()}
	for name, tc := range map[string]struct {
		to       string
		finished time.Time
		read     bool
	}{
		"a server of k3s a minute ago":       {"v1.36.3+k3s1", now.Add(-time.Minute), true},
		"a server of k3s six minutes ago":    {"v1.36.3+k3s1", now.Add(-6 * time.Minute), false},
		"a server that was not moved yet":    {"v1.36.3+k3s1", time.Time{}, false},
		"kubeadm has its own order of these": {"v1.36.3", now.Add(-time.Minute), false},
	} {
		in := rollout.Input{Now: now, Nodes: map[string]rollout.Node{"n1": {Name: "n1", FinishedAt: tc.finished}},
			Plan: model.Plan{Nodes: []model.NodePlan{{Node: "n1", Role: model.RoleControlPlane, From: "v1.35.4+k3s1", To: tc.to, Steps: []model.Step{{ID: "supervisor", Changes: []model.Change{{Path: updateplan.PrefixKubernetes + "kubelet"}}}}}}}}
		if err := r.observeAddons(t.Context(), &in, []int{0}); err != nil || (in.ControlPlane.Addons != "") != tc.read {
			t.Errorf("%s: %q, %v", name, in.ControlPlane.Addons, err)
		}
	}
}
