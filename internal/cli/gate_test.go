package cli

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/drain"
	"github.com/refit-dev/refit/internal/render"
)

func TestGateViewListsEveryCheck(t *testing.T) {
	t.Parallel()
	u := &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "u"}}
	v := gateView(u)
	if v.Open || len(v.Checks) < 20 || v.Checks[0].Answer != "NotAsked" {
		t.Errorf("a gate that was not asked is not open: %+v", v)
	}
	u.Status.Checks = []v1alpha1.GateCheck{{Name: "clock", Result: v1alpha1.CheckWarned}, {Name: "of-a-later-version", Result: v1alpha1.CheckPassed}}
	if v = gateView(u); !v.Open || v.Checks[len(v.Checks)-1].Name != "of-a-later-version" {
		t.Errorf("what a newer controller asks is shown too: %+v", v)
	}
	u.Status.Checks = append(u.Status.Checks, v1alpha1.GateCheck{Name: "budgets", Result: v1alpha1.CheckClosed})
	u.Status.AcceptedRisks = []v1alpha1.RiskRecord{{Check: "pressure", Reason: "logs go tonight", State: v1alpha1.RiskInForce}}
	if v = gateView(u); v.Open {
		t.Error("a closed check leaves the gate open")
	}
	var b strings.Builder
	if err := render.Gate(&b, render.Table, v); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"The gate of u is closed", "budgets", "Closed", "pressure until", "logs go tonight"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not said:\n%s", want, b.String())
		}
	}
}

func TestDrainViewKeepsSinceWhen(t *testing.T) {
	t.Parallel()
	at := metav1.NewTime(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	p := drain.Pod{Namespace: "shop", Name: "app-1", OwnerKind: "ReplicaSet", OwnerName: "app", Ready: true,
		Budgets: []drain.Budget{{Namespace: "shop", Name: "app", Rule: "minAvailable 2", Healthy: 2, Wanted: 2, Expected: 3}}}
	d := drain.Decide([]drain.Pod{p})
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2", Annotations: map[string]string{v1alpha1.AnnotationUpdating: "x",
		v1alpha1.AnnotationInterlock: `{"karpenter.sh/do-not-disrupt":{"by":"x","set":"true"}}`}}}
	v := drainView(n, d, drain.PredictRows("n2", d, at.Add(time.Minute)), []v1alpha1.PodDrain{{Pod: "shop/app-1", Fate: v1alpha1.PodRefused, Since: &at}})
	var b strings.Builder
	if err := render.Drain(&b, render.Table, v); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Node n2 is being updated: 1 pod to evict (1 blocked), 0 pods stay.", "shop/app-1", "12:00:00Z", "PodDisruptionBudget shop/app, which allows 0 disruptions", "fix for shop/app-1: make more pods", "Set for the update: karpenter.sh/do-not-disrupt is true until the node is updated; it was not set before"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not said:\n%s", want, b.String())
		}
	}
}
