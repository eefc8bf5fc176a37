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
func (w *world) newTrack(change ...func(*v1alpha1.ImageTrackSpec)) {
	w.t.Helper()
	o := &v1alpha1.ImageTrack{ObjectMeta: metav1.ObjectMeta{Name: "app"}, Spec: v1alpha1.ImageTrackSpec{
		Repository: w.reg.Ref("shop/app"), Follow: v1alpha1.TrackFollow{Tag: "2.6.2-rev1"}, Mode: v1alpha1.ModeWrite,
		Targets: []v1alpha1.TrackTarget{{Kind: "Deployment", Namespace: "shop", Name: "app"}}}}
	for _, c := range change {
		c(&o.Spec)
	}
	w.create(o)
}

// A tag moved under running pods. It is said who runs
// what; what a person approves is on the nodes first, then the workload is rolled
// when its budget has room; a roll-back stays.
func TestATagMovedUnderRunningPods(t *testing.T) {
	w := newWorld(t)
	a := w.reg.Push("shop/app", build("one"), "2.6.2-rev1-b5.1", "2.6.2-rev1", "2.6.2")
	b := w.reg.Push("shop/app", build("two"), "2.6.2-rev1-b5.2", "2.6.2-rev1", "2.6.2")
	d := deployment("app", w.reg.Ref("shop/app:2.6.2-rev1"), 3)
	one, zero := intstr.FromInt32(1), intstr.FromInt32(0)
	d.Spec.Strategy.Type = "RollingUpdate"
	d.Spec.Strategy.RollingUpdate = rollingUpdate(&one, &zero)
	w.create(d)
	w.runs("app", a, a, b)
	two := intstr.FromInt32(2)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "app"},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &two, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "app"}}}}
	w.create(budget)
	w.allow(budget, 0)
	w.newTrack()

	o := w.look("app")
	says(t, o, v1alpha1.ConditionSkewed, v1alpha1.ReasonImageSkewed, a, b, "2.6.2-rev1-b5.1", "2.6.2-rev1-b5.2", "2 pods on n1, n2", "1 pods on n3")
	says(t, o, v1alpha1.ConditionReady, v1alpha1.ReasonImageNeedsApproval, "2.6.2-rev1-b5.2")
	if c := o.Status.Candidates; len(c) != 1 || c[0].Class != v1alpha1.ClassRebuild || c[0].Decision != v1alpha1.DecisionApproval || c[0].Digest != b {
		t.Fatalf("%+v", c)
	}
	if w.image("app") != w.reg.Ref("shop/app:2.6.2-rev1") {
		t.Fatal("it was written before anybody approved")
	}

	w.say("app", func(s *v1alpha1.ImageTrackSpec) {
		s.Approvals = []v1alpha1.TrackApproval{{Digest: b, Serial: o.Status.Candidates[0].Serial}}
	})
	o = w.look("app")
	says(t, o, v1alpha1.ConditionReady, v1alpha1.ReasonImagePreloading, "0 of 3 nodes", "no agent")
	var set v1alpha1.PinnedImageSet
	w.must(w.admin.Get(t.Context(), client.ObjectKey{Name: "track-app"}, &set))
	if i := set.Spec.Groups[0].Images; len(i) != 2 || i[0].Name != w.reg.Ref("shop/app:2.6.2-rev1-b5.2") || i[0].Digest != b || i[1].Digest != a || !set.Spec.FromRegistry {
		t.Fatalf("the nodes are to hold %+v: the build by its long tag, and the one to go back to", set.Spec)
	}
	w.agents("app", false)
	o = w.look("app")
	says(t, o, v1alpha1.ConditionReady, v1alpha1.ReasonImagePreloading, "0 of 3 nodes")
	w.agents("app", true)
	o = w.look("app")
	says(t, o, v1alpha1.ConditionReady, v1alpha1.ReasonWorkloadBlocked, "kubectl -n shop create rolebinding")
	w.grant("shop")
	o = w.look("app")
	if w.image("app") != w.reg.Ref("shop/app:2.6.2-rev1") || o.Status.Preloaded != "3/3" || !strings.Contains(o.Status.Workloads[0].Message, "budget shop/app allows 0") {
		t.Fatalf("the budget has no room: %+v", o.Status)
	}
	w.allow(budget, 1)
	w.look("app")
	pinned := w.reg.Ref("shop/app:2.6.2-rev1@" + b)
	if w.image("app") != pinned {
		t.Fatalf("it runs %s", w.image("app"))
	}
	w.well("app", 3, false)
	says(t, w.look("app"), v1alpha1.ConditionReady, v1alpha1.ReasonImageRolling, "1 of 3 pods")
	w.runs("app", b, b, b)
	o = w.look("app")
	says(t, o, v1alpha1.ConditionReady, v1alpha1.ReasonAsExpected, "2.6.2-rev1-b5.2")
	says(t, o, v1alpha1.ConditionSkewed, v1alpha1.ReasonAsExpected)
	w.steady("app")

	t.Log("the workload is taken back by hand, and stays there")
	w.setImage("app", w.reg.Ref("shop/app:2.6.2-rev1@"+a))
	w.runs("app", a, a, a)
	o = w.look("app")
	if o.Status.Approved.Digest != a || len(o.Status.RolledBack) != 1 || o.Status.RolledBack[0].Actor != "Deployment/shop/app" {
		t.Fatalf("%+v", o.Status)
	}
	w.agents("app", true)
	for range 3 {
		w.later()
		w.restart() // what matters is not in memory
		o = w.look("app")
		if w.image("app") != w.reg.Ref("shop/app:2.6.2-rev1@"+a) || o.Status.Approved.Digest != a {
			t.Fatalf("a look undid the roll-back: %s", w.image("app"))
		}
	}
	says(t, o, v1alpha1.ConditionReady, v1alpha1.ReasonImageBlocked, "rolled back")
	w.steady("app")

	t.Log("a newer build comes, and with it the end of it")
	c := w.reg.Push("shop/app", build("three"), "2.6.2-rev1-b10.1", "2.6.2-rev1")
	w.say("app", func(s *v1alpha1.ImageTrackSpec) { s.Automatic = []string{v1alpha1.ClassRebuild} })
	w.later()
	if o = w.look("app"); o.Status.Approved.Digest != c {
		t.Fatalf("%+v", o.Status)
	}
	w.agents("app", true)
	w.look("app")
	if w.image("app") != w.reg.Ref("shop/app:2.6.2-rev1@"+c) {
		t.Fatalf("it runs %s", w.image("app"))
	}
	w.runs("app", c, c, c)
	says(t, w.look("app"), v1alpha1.ConditionReady, v1alpha1.ReasonAsExpected, "b10.1")

	t.Log("a roll-back by refusing goes back, and holds too")
	w.say("app", func(s *v1alpha1.ImageTrackSpec) {
		s.Refused = []v1alpha1.TrackRefusal{{Digest: c, Reason: "loses mail"}}
	})
	if o = w.look("app"); o.Status.Approved.Digest != a {
		t.Fatalf("%+v", o.Status)
	}
	w.agents("app", true)
	w.look("app")
	if w.image("app") != w.reg.Ref("shop/app:2.6.2-rev1@"+a) {
		t.Fatalf("it runs %s", w.image("app"))
	}
}

// allow says how many disruptions a budget allows now, as the disruption
// controller would.
func (w *world) allow(b *policyv1.PodDisruptionBudget, n int32) {
	w.t.Helper()
	w.must(w.admin.Get(context.Background(), client.ObjectKeyFromObject(b), b))
	b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, DisruptionsAllowed: n, CurrentHealthy: 2 + n, DesiredHealthy: 2, ExpectedPods: 3}
	w.must(w.admin.Status().Update(context.Background(), b))
}

// steady: looks that find nothing new write nothing, and ask the registry at
// most once a tag.
func (w *world) steady(name string) {
	w.t.Helper()
	w.later()
	w.look(name)
	all := 0 // one question a look, and within discoverSeconds one for the digest of a roll-back
	for range 3 {
		w.asked.take()
		w.api.take()
		w.later()
		w.look(name)
		asked, odd := w.asked.take()
		if all += asked; asked < 1 || all > 3+1 || len(odd) > 0 {
			w.t.Fatalf("%d questions to the registry for one tag (%v)", asked, odd)
		}
		if _, writes := w.api.take(); len(writes) > 0 {
			w.t.Fatalf("nothing was new, and it wrote: %v", writes)
		}
	}
	w.asked.take()
	w.look(name)
	if asked, _ := w.asked.take(); asked != 0 {
		w.t.Fatalf("before its time it asked the registry %d times", asked)
	}
}
