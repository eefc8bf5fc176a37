package cli

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/exit"
	"github.com/refit-dev/refit/internal/drain"
	"github.com/refit-dev/refit/internal/render"
)

func TestARiskHasANameAReasonAndAnEnd(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		check string
		flags acceptFlags
		code  int
		says  string
	}{
		"all said":                {"clock", acceptFlags{reason: "no NTP here", until: time.Hour}, exit.OK, ""},
		"no such check":           {"clocks", acceptFlags{reason: "no NTP here", until: time.Hour}, exit.UsageCode, "refit gate lists them"},
		"nobody can accept it":    {"quorum", acceptFlags{reason: "be quick", until: time.Hour}, exit.Blocked, "can be accepted by nobody"},
		"no reason":               {"clock", acceptFlags{until: time.Hour}, exit.UsageCode, "--reason"},
		"no end":                  {"clock", acceptFlags{reason: "no NTP here"}, exit.UsageCode, "--until"},
		"an end that has gone by": {"clock", acceptFlags{reason: "no NTP here", until: -time.Hour}, exit.UsageCode, "--until"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := riskFor(tc.check, tc.flags, now)
			if exit.Code(err) != tc.code || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("%v, exit code %d", err, exit.Code(err))
			}
			if err == nil && (r.Check != tc.check || !r.Until.Time.Equal(now.Add(time.Hour))) {
				t.Errorf("%+v", r)
			}
		})
	}
}

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
		v1alpha1.AnnotationHeld: `{"karpenter.sh/do-not-disrupt":{"by":"x","set":"true"}}`}}}
	v := drainView(n, d, drain.Foresee("n2", d, at.Add(time.Minute)), []v1alpha1.PodDrain{{Pod: "shop/app-1", Fate: v1alpha1.PodRefused, Since: &at}})
	var b strings.Builder
	if err := render.Drain(&b, render.Table, v); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Node n2 is being updated: 1 pods must go, 1 of them are refused now", "shop/app-1", "12:00:00Z", "PodDisruptionBudget shop/app, which allows 0 disruptions", "cure for shop/app-1: make more pods", "Held back: karpenter.sh/do-not-disrupt is true until the node is done; it was not set before"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not said:\n%s", want, b.String())
		}
	}
}

func TestDrainOptionsAreLaidOverEachOther(t *testing.T) {
	t.Parallel()
	first := drainFlags{skip: "tier=local", grace: 30 * time.Second}.apply(nil, map[string]bool{"skip": true, "grace": true})
	if got := drainWords(first); got != "empties nodes so: pods with tier=local stay; every pod has 30 s to end" {
		t.Error(got)
	}
	second := drainFlags{timeout: time.Minute, keepData: true, unowned: "may in (go)"}.apply(first, map[string]bool{"timeout": true, "keep-emptydir-data": true, "evict-unowned": true})
	if got := drainWords(second); got != "empties nodes so: pods with tier=local stay; pods with may in (go) may be lost; pods with emptyDir data are refused; every pod has 30 s to end; a drain halts the update after 60 s" {
		t.Error(got)
	}
	if got := (drainFlags{reset: true}).apply(second, nil); got != nil {
		t.Errorf("%+v", got)
	}
	if got := (drainFlags{}).apply(&v1alpha1.DrainOptions{SkipSelector: first.SkipSelector}, map[string]bool{"skip": true}); got != nil {
		t.Errorf("an empty selector takes it back: %+v", got)
	}
	for name, f := range map[string]drainFlags{"no selector": {skip: "a in"}, "force": {grace: time.Millisecond}, "before the start": {timeout: -time.Second}} {
		if exit.Code(f.check()) != exit.UsageCode {
			t.Errorf("%s is accepted", name)
		}
	}
}
