package controller_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
)

func blockedBy(reason, message string) func(*v1alpha1.ClusterUpdate) bool {
	return func(u *v1alpha1.ClusterUpdate) bool {
		for _, b := range u.Status.Blockers {
			if b.Reason == reason && strings.Contains(b.Message, message) {
				return true
			}
		}
		return false
	}
}

// A health check closes the gate, says why it cannot be evaluated, and holds the next node of its
// pool after one that made it fail, also for a new controller.
func TestHealthChecksOfAPool(t *testing.T) {
	s := newSite(t, from)
	raw := release(t, to)
	d := digest(t, raw)
	s.plugIn("n2", raw)
	s.approve("expected", d)
	check := v1alpha1.HealthCheck{Name: "shop", Message: "the shop is not open", Expression: "object.data.open == 'yes'",
		Objects: v1alpha1.CheckedObjects{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "shop"}}
	s.pools(func(p *v1alpha1.UpdatePoolSpec) { p.HealthChecks = []v1alpha1.HealthCheck{check} })
	s.update("u", d, nil)
	u := s.waitUpdate("u", "the controller may not read the kind", blocked(v1alpha1.ReasonHealthCheckForbidden))
	if answerOf(u, "health-checks") != v1alpha1.CheckClosed {
		t.Errorf("%+v", u.Status.Checks)
	}

	// Kubernetes would copy the rules of the labelled ClusterRoles into this one.
	var role rbacv1.ClusterRole
	if err := s.admin.Get(context.Background(), client.ObjectKey{Name: "refit-health-checks"}, &role); err != nil {
		t.Fatal(err)
	}
	if role.AggregationRule == nil || role.AggregationRule.ClusterRoleSelectors[0].MatchLabels[v1alpha1.LabelHealthChecks] != "true" {
		t.Errorf("%+v", role.AggregationRule)
	}
	role.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list"}}}
	if err := s.admin.Update(context.Background(), &role); err != nil {
		t.Fatal(err)
	}
	checks := func(c ...v1alpha1.HealthCheck) {
		t.Helper()
		s.changePool("edge", func(p *v1alpha1.UpdatePoolSpec) { p.HealthChecks = c })
	}
	check.Message = "the shop must be open"
	checks(check)
	s.waitUpdate("u", "the object is missing", blockedBy(v1alpha1.ReasonHealthCheckFailed, "pool edge: health check shop: there is no ConfigMap default/shop"))
	check.Expression = "object.data.open ="
	checks(check)
	s.waitUpdate("u", "the expression is invalid", blocked(v1alpha1.ReasonHealthCheckInvalid))
	s.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop"}, Data: map[string]string{"open": "no"}})
	check.Expression = "object.data.open == 'yes'"
	checks(check)
	s.waitUpdate("u", "the check fails", blockedBy(v1alpha1.ReasonHealthCheckFailed, "ConfigMap default/shop: the shop must be open"))
	for _, n := range []string{"n1", "n2", "n3"} {
		s.untouched(n, from)
	}

	after := v1alpha1.HealthCheck{Name: "after-n2", Expression: "object.status.nodeInfo.kubeletVersion == '" + from + "'",
		Objects: v1alpha1.CheckedObjects{APIVersion: "v1", Kind: "Node", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/hostname": "n2"}}}}
	checks(after)
	failing := blockedBy(v1alpha1.ReasonHealthCheckFailed, "pool edge: health check after-n2: Node n2: the expression is not true")
	s.waitUpdate("u", "n2 made the check fail", failing)
	if v := s.node("n2").Status.NodeInfo.KubeletVersion; v != to || s.node("n2").Spec.Unschedulable {
		t.Errorf("n2 finishes: %s", v)
	}
	s.untouched("n3", from)
	s.restartController()
	u = s.waitUpdate("u", "a new controller waits too", failing)
	s.untouched("n3", from)
	if u.Status.Phase != v1alpha1.PhaseUpdating {
		t.Errorf("phase %s", u.Status.Phase)
	}
	checks()
	s.waitUpdate("u", "the end", phase(v1alpha1.PhaseDone))
}

// The API refuses checks that would tell an author of pools about what only refit may read.
func TestHealthChecksThatTheAPIRefuses(t *testing.T) {
	s := newSite(t, from)
	for want, o := range map[string]v1alpha1.CheckedObjects{
		"reads no Secret":       {APIVersion: "v1", Kind: "Secret", Namespace: "refit-system", Name: "refit-controller-key"},
		"reads no ConfigMap of": {APIVersion: "v1", Kind: "ConfigMap", Namespace: "refit-nodes"},
		"not both":              {APIVersion: "v1", Kind: "Node", Name: "n1", Selector: &metav1.LabelSelector{}},
	} {
		p := &v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.UpdatePoolSpec{HealthChecks: []v1alpha1.HealthCheck{{Name: "a", Objects: o, Expression: "true"}}}}
		if err := s.admin.Create(context.Background(), p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// A node leaves the load balancers before it is cordoned, also if the controller restarts in
// between, and is in them again afterwards. A label that an administrator set stays.
func TestNodesLeaveLoadBalancersFirst(t *testing.T) {
	s := newSite(t, from)
	raw := release(t, to)
	d := digest(t, raw)
	s.plugIn("n2", raw)
	s.approve("expected", d)
	n3 := s.node("n3")
	patch := client.MergeFrom(n3.DeepCopy())
	n3.Labels[corev1.LabelNodeExcludeBalancers] = "theirs"
	if err := s.admin.Patch(context.Background(), n3, patch); err != nil {
		t.Fatal(err)
	}
	s.pools(func(p *v1alpha1.UpdatePoolSpec) { p.LoadBalancerSeconds = 3600 })
	s.update("u", d, nil)
	waits := blockedBy(v1alpha1.ReasonLeavingLoadBalancers, "node n2 leaves the external load balancers until")
	s.waitUpdate("u", "n2 leaves the load balancers", waits)
	before := s.node("n2")
	if _, out := before.Labels[corev1.LabelNodeExcludeBalancers]; !out || before.Spec.Unschedulable || before.Annotations[v1alpha1.AnnotationExcluded] == "" || before.Annotations[v1alpha1.AnnotationUpdating] == "" {
		t.Errorf("%v %v, cordoned %t", before.Labels, before.Annotations, before.Spec.Unschedulable)
	}
	s.restartController()
	s.waitUpdate("u", "a new controller waits too", waits)
	if n := s.node("n2"); n.Annotations[v1alpha1.AnnotationExcluded] != before.Annotations[v1alpha1.AnnotationExcluded] || n.Spec.Unschedulable {
		t.Errorf("%v, cordoned %t", n.Annotations, n.Spec.Unschedulable)
	}
	s.changePool("edge", func(p *v1alpha1.UpdatePoolSpec) { p.LoadBalancerSeconds = 1 })
	s.waitUpdate("u", "the end", phase(v1alpha1.PhaseDone))
	for name, want := range map[string]string{"n1": "", "n2": "", "n3": "theirs"} {
		n := s.node(name)
		if label, has := n.Labels[corev1.LabelNodeExcludeBalancers]; label != want || has != (want != "") || n.Annotations[v1alpha1.AnnotationExcluded] != "" || n.Spec.Unschedulable {
			t.Errorf("%s: %v %v", name, n.Labels, n.Annotations)
		}
	}
}
