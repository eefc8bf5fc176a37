//go:build linux

package imagetracks

import (
	"context"
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

func build(words string) registrytest.Image {
	return registrytest.Image{Version: "2.6.2", Layers: []string{words}}
}

// newTrack of Deployment shop/app that writes.
func (w *testCluster) newTrack(change ...func(*v1alpha1.ImageTrackSpec)) {
	w.t.Helper()
	o := &v1alpha1.ImageTrack{ObjectMeta: metav1.ObjectMeta{Name: "app"}, Spec: v1alpha1.ImageTrackSpec{
		Repository: w.reg.Ref("shop/app"), Follow: v1alpha1.TrackFollow{Tag: "2.6.2-rev1"}, Mode: v1alpha1.ModeWrite,
		Targets: []v1alpha1.TrackTarget{{Kind: "Deployment", Namespace: "shop", Name: "app"}}}}
	for _, c := range change {
		c(&o.Spec)
	}
	w.create(o)
}

// A tag moved under running pods. The status lists which pods run which digest. An approved
// digest is first prepulled, then rolled out when the disruption budget allows it. A rollback
// by hand is kept.
func TestATagMovedUnderRunningPods(t *testing.T) {
	w := newTestCluster(t)
	a := w.reg.Push("shop/app", build("one"), "2.6.2-rev1-b5.1", "2.6.2-rev1", "2.6.2")
	b := w.reg.Push("shop/app", build("two"), "2.6.2-rev1-b5.2", "2.6.2-rev1", "2.6.2")
	d := deployment("app", w.reg.Ref("shop/app:2.6.2-rev1"), 3)
	one, zero := intstr.FromInt32(1), intstr.FromInt32(0)
	d.Spec.Strategy.Type = "RollingUpdate"
	d.Spec.Strategy.RollingUpdate = rollingUpdate(&one, &zero)
	w.create(d)
	w.runDigests("app", a, a, b)
	two := intstr.FromInt32(2)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "app"},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &two, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "app"}}}}
	w.create(budget)
	w.allow(budget, 0)
	w.newTrack()

	o := w.reconcile("app")
	checkCondition(t, o, v1alpha1.ConditionSkewed, v1alpha1.ReasonImageSkewed, a, b, "2.6.2-rev1-b5.1", "2.6.2-rev1-b5.2", "2 pods on n1, n2", "1 pods on n3")
	checkCondition(t, o, v1alpha1.ConditionReady, v1alpha1.ReasonImageNeedsApproval, "2.6.2-rev1-b5.2")
	if c := o.Status.Candidates; len(c) != 1 || c[0].Class != v1alpha1.ClassRebuild || c[0].Decision != v1alpha1.DecisionApproval || c[0].Digest != b {
		t.Fatalf("%+v", c)
	}
	if w.image("app") != w.reg.Ref("shop/app:2.6.2-rev1") {
		t.Fatal("the workload was written before an approval")
	}

	w.editSpec("app", func(s *v1alpha1.ImageTrackSpec) {
		s.Approvals = []v1alpha1.TrackApproval{{Digest: b, Serial: o.Status.Candidates[0].Serial}}
	})
	o = w.reconcile("app")
	checkCondition(t, o, v1alpha1.ConditionReady, v1alpha1.ReasonImagePreloading, "0 of 3 nodes", "no agent")
	var set v1alpha1.PinnedImageSet
	w.must(w.admin.Get(t.Context(), client.ObjectKey{Name: "track-app"}, &set))
	if i := set.Spec.Groups[0].Images; len(i) != 2 || i[0].Name != w.reg.Ref("shop/app:2.6.2-rev1-b5.2") || i[0].Digest != b || i[1].Digest != a || !set.Spec.FromRegistry {
		t.Fatalf("the set is %+v; want the build by its long tag, and the one to roll back to", set.Spec)
	}
	w.simulateAgents("app", false)
	o = w.reconcile("app")
	checkCondition(t, o, v1alpha1.ConditionReady, v1alpha1.ReasonImagePreloading, "0 of 3 nodes")
	w.simulateAgents("app", true)
	o = w.reconcile("app")
	checkCondition(t, o, v1alpha1.ConditionReady, v1alpha1.ReasonWorkloadBlocked, "kubectl -n shop create rolebinding")
	w.grant("shop")
	o = w.reconcile("app")
	if w.image("app") != w.reg.Ref("shop/app:2.6.2-rev1") || o.Status.Preloaded != "3/3" || !strings.Contains(o.Status.Workloads[0].Message, "budget shop/app allows 0") {
		t.Fatalf("the budget has no room: %+v", o.Status)
	}
	w.allow(budget, 1)
	w.reconcile("app")
	pinned := w.reg.Ref("shop/app:2.6.2-rev1@" + b)
	if w.image("app") != pinned {
		t.Fatalf("it runs %s", w.image("app"))
	}
	w.setRollout("app", 3, false)
	checkCondition(t, w.reconcile("app"), v1alpha1.ConditionReady, v1alpha1.ReasonImageRolling, "1 of 3 pods")
	w.runDigests("app", b, b, b)
	o = w.reconcile("app")
	checkCondition(t, o, v1alpha1.ConditionReady, v1alpha1.ReasonAsExpected, "2.6.2-rev1-b5.2")
	checkCondition(t, o, v1alpha1.ConditionSkewed, v1alpha1.ReasonAsExpected)
	w.checkNothingWritten("app")

	t.Log("the workload is rolled back by hand, and stays there")
	w.setImage("app", w.reg.Ref("shop/app:2.6.2-rev1@"+a))
	w.runDigests("app", a, a, a)
	o = w.reconcile("app")
	if o.Status.Approved.Digest != a || len(o.Status.RolledBack) != 1 || o.Status.RolledBack[0].Actor != "Deployment/shop/app" {
		t.Fatalf("%+v", o.Status)
	}
	w.simulateAgents("app", true)
	for range 3 {
		w.nextPoll()
		w.restart() // the state is in the objects, not in memory
		o = w.reconcile("app")
		if w.image("app") != w.reg.Ref("shop/app:2.6.2-rev1@"+a) || o.Status.Approved.Digest != a {
			t.Fatalf("a reconcile undid the rollback: %s", w.image("app"))
		}
	}
	checkCondition(t, o, v1alpha1.ConditionReady, v1alpha1.ReasonImageBlocked, "rolled back")
	w.checkNothingWritten("app")

	t.Log("a newer build ends the rollback")
	c := w.reg.Push("shop/app", build("three"), "2.6.2-rev1-b10.1", "2.6.2-rev1")
	w.editSpec("app", func(s *v1alpha1.ImageTrackSpec) { s.Automatic = []string{v1alpha1.ClassRebuild} })
	w.nextPoll()
	if o = w.reconcile("app"); o.Status.Approved.Digest != c {
		t.Fatalf("%+v", o.Status)
	}
	w.simulateAgents("app", true)
	w.reconcile("app")
	if w.image("app") != w.reg.Ref("shop/app:2.6.2-rev1@"+c) {
		t.Fatalf("it runs %s", w.image("app"))
	}
	w.runDigests("app", c, c, c)
	checkCondition(t, w.reconcile("app"), v1alpha1.ConditionReady, v1alpha1.ReasonAsExpected, "b10.1")

	t.Log("refusing a digest rolls back, and the rollback is kept too")
	w.editSpec("app", func(s *v1alpha1.ImageTrackSpec) {
		s.Refused = []v1alpha1.TrackRefusal{{Digest: c, Reason: "loses mail"}}
	})
	if o = w.reconcile("app"); o.Status.Approved.Digest != a {
		t.Fatalf("%+v", o.Status)
	}
	w.simulateAgents("app", true)
	w.reconcile("app")
	if w.image("app") != w.reg.Ref("shop/app:2.6.2-rev1@"+a) {
		t.Fatalf("it runs %s", w.image("app"))
	}
}

// allow says how many disruptions a budget allows now, as the disruption
// controller would.
func (w *testCluster) allow(b *policyv1.PodDisruptionBudget, n int32) {
	w.t.Helper()
	w.must(w.admin.Get(context.Background(), client.ObjectKeyFromObject(b), b))
	b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, DisruptionsAllowed: n, CurrentHealthy: 2 + n, DesiredHealthy: 2, ExpectedPods: 3}
	w.must(w.admin.Status().Update(context.Background(), b))
}

// checkNothingWritten reconciles a track without a change. It must write nothing and send at
// most one request per tag to the registry.
func (w *testCluster) checkNothingWritten(name string) {
	w.t.Helper()
	w.nextPoll()
	w.reconcile(name)
	all := 0 // one request per reconcile, and one per discoverSeconds for the digest of a rollback
	for range 3 {
		w.asked.takeCounts()
		w.api.takeCounts()
		w.nextPoll()
		w.reconcile(name)
		asked, odd := w.asked.takeCounts()
		if all += asked; asked < 1 || all > 3+1 || len(odd) > 0 {
			w.t.Fatalf("%d questions to the registry for one tag (%v)", asked, odd)
		}
		if _, writes := w.api.takeCounts(); len(writes) > 0 {
			w.t.Fatalf("nothing was new, and it wrote: %v", writes)
		}
	}
	w.asked.takeCounts()
	w.reconcile(name)
	if asked, _ := w.asked.takeCounts(); asked != 0 {
		w.t.Fatalf("before its time it asked the registry %d times", asked)
	}
}
