package controller_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
)

const (
	from = "v1.35.4"
	to   = "v1.36.3"
)

// One stick, one approval, one update: every node is moved, one after the
// other, and called done when it was observed there; a budget holds the drain
// up and is named; the controller dies in the middle and goes on.
func TestWholeUpdate(t *testing.T) {
	s := newSite(t, from)
	raw := release(t, to)
	d := digest(t, raw)
	s.plugIn("n2", raw)

	// Found, not approved: nothing of it is loaded (promise 8).
	found := s.waitBundle("refit-demo-1.36.3", "the found bundle has an object", bundleSays(v1alpha1.ConditionApproved, v1alpha1.ReasonAwaitingApproval))
	if found.Spec.Digest != "" || found.Status.Digest != d || len(found.Status.Locations) != 1 || found.Status.Locations[0].Node != "n2" {
		t.Errorf("a found bundle says what and where, and is not approved: %+v", found)
	}

	// A person approves the found object.
	found.Spec.Digest = d
	if err := s.admin.Update(context.Background(), found); err != nil {
		t.Fatal(err)
	}
	loaded := s.waitBundle(found.Name, "all nodes hold it", bundleSays(v1alpha1.ConditionReady, v1alpha1.ReasonAsExpected))
	if loaded.Status.Loaded != "3/3" || loaded.Status.KubernetesVersion != to || loaded.Status.Images != 2 {
		t.Errorf("what the header says is in the status: %+v", loaded.Status)
	}

	// A Manual update plans, checks and waits for a person; no node is touched.
	s.create(owned(pod("default", "web-1", "n2", "web"), map[string]string{"app": "web"}))
	s.budget(0)
	// Approved beforehand by the digest of another plan: it could not start (promise 3).
	s.update("to-136", d, func(u *v1alpha1.ClusterUpdateSpec) { u.Start, u.PlanDigest = v1alpha1.StartManual, "sha256:other" })
	s.waitUpdate("to-136", "the plan is not the approved one", blocked(v1alpha1.ReasonPlanChanged))
	s.change("to-136", func(c *v1alpha1.ClusterUpdateSpec) { c.PlanDigest = "" })
	u := s.waitUpdate("to-136", "the gate opens", phase(v1alpha1.PhaseReady))
	if !blocked(v1alpha1.ReasonAwaitingStart)(u) || u.Status.NodesTotal != 3 || u.Status.PlanDigest == "" {
		t.Errorf("an update that waits for a person says so: %+v", u.Status)
	}
	if s.node("n1").Spec.Unschedulable {
		t.Error("nothing is changed before the start (promise 2)")
	}

	// A person starts it by the digest of the plan that is there.
	s.change("to-136", func(c *v1alpha1.ClusterUpdateSpec) {
		c.Start, c.PlanDigest = v1alpha1.StartImmediate, u.Status.PlanDigest
	})

	// The control plane moves first; then the budget on n2 holds the drain up.
	u = s.waitUpdate("to-136", "the budget is named", blocked(v1alpha1.ReasonDisruptionBudget))
	if !strings.Contains(u.Status.WaitingFor, "default/web-1") || !strings.Contains(u.Status.WaitingFor, "default/web, which allows 0 disruptions") {
		t.Errorf("the sentence names pod and budget: %q", u.Status.WaitingFor)
	}
	if u.Status.Progress != "1/3" || len(u.Status.Current) != 1 || u.Status.Current[0] != "n2" {
		t.Errorf("one node is done, n2 is current: %+v", u.Status)
	}
	if n1 := s.node("n1"); n1.Spec.Unschedulable || len(markings(n1)) > 0 || n1.Status.NodeInfo.KubeletVersion != to {
		t.Errorf("n1 is done and has no mark left: %v %v", n1.Spec, n1.Annotations)
	}

	// The controller dies; another process goes on where it was.
	s.restartController()
	s.allow(1)
	u = s.waitUpdate("to-136", "every node is done", phase(v1alpha1.PhaseDone))
	if u.Status.Progress != "3/3" || u.Status.FinishedAt == nil || u.Status.WaitingFor != "" {
		t.Errorf("done says so: %+v", u.Status)
	}
	for name, a := range s.agents {
		n := s.node(name)
		if n.Status.NodeInfo.KubeletVersion != to || n.Spec.Unschedulable || len(markings(n)) > 0 {
			t.Errorf("%s: %s cordoned=%v %v", name, n.Status.NodeInfo.KubeletVersion, n.Spec.Unschedulable, n.Annotations)
		}
		a.set(func(a *simAgent) {
			if a.runs != 1 {
				t.Errorf("%s ran %d times", name, a.runs)
			}
		})
	}
	s.wait("the events tell the story", func() string {
		var l eventsv1.EventList
		if err := s.admin.List(context.Background(), &l); err != nil {
			return err.Error()
		}
		seen := map[string]bool{}
		for _, e := range l.Items {
			seen[e.Regarding.Kind+" "+e.Regarding.Name+" "+e.Action] = true
		}
		for _, want := range []string{"ClusterUpdate to-136 Updating", "ClusterUpdate to-136 Done", "ClusterUpdate to-136 Cordon", "ClusterUpdate to-136 Uncordon"} {
			if !seen[want] {
				return fmt.Sprintf("no %q in %v", want, seen)
			}
		}
		return ""
	})
	s.older(d)
}

// older: a bundle of an older release is loaded, and refused as an update; one
// that changes nothing is done at once.
func (s *site) older(current string) {
	t := s.t
	raw := release(t, from)
	s.plugIn("n3", raw)
	s.approve("old", digest(t, raw))
	s.update("back", digest(t, raw), nil)
	u := s.waitUpdate("back", "an older bundle is refused", blocked(v1alpha1.ReasonOlderThanRunning))
	if u.Status.Phase != v1alpha1.PhaseBlocked {
		t.Errorf("phase %s", u.Status.Phase)
	}
	s.waitBundle("old", "it is loaded all the same", bundleSays(v1alpha1.ConditionReady, v1alpha1.ReasonAsExpected))
	s.update("again", current, nil)
	u = s.waitUpdate("again", "nothing to do is done", phase(v1alpha1.PhaseDone))
	if u.Status.NodesTotal != 0 {
		t.Errorf("%+v", u.Status)
	}
}

func markings(n *corev1.Node) []string {
	var out []string
	for k := range n.Annotations {
		if strings.HasPrefix(k, "refit.dev/") && k != v1alpha1.AnnotationUpdated { // the record stays
			out = append(out, k)
		}
	}
	return out
}

// A node fails: nothing new starts, it stays cordoned, the reason is there; a
// retry goes on. Pausing keeps the next node from starting. A person's cordon
// is left alone.
func TestHaltRetryPause(t *testing.T) {
	s := newSite(t, from)
	raw := release(t, to)
	d := digest(t, raw)
	s.plugIn("n1", raw)
	s.approve("expected", d)
	s.agents["n1"].set(func(a *simAgent) { a.failStep[1] = "kubeadm" })
	n3 := s.node("n3")
	n3.Spec.Unschedulable = true
	if err := s.admin.Update(context.Background(), n3); err != nil {
		t.Fatal(err)
	}
	s.create(&v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "all"}})
	s.update("u", d, nil)

	// n3 is cordoned by a person: that spends the workers' budget, not the control plane's.
	u := s.waitUpdate("u", "n1 fails and the update halts", phase(v1alpha1.PhaseHalted))
	if !blocked(v1alpha1.ReasonStepFailed)(u) || !strings.Contains(u.Status.WaitingFor, "node n1: step kubeadm failed: kubeadm ended with 1") {
		t.Errorf("the reason travels to the update: %+v", u.Status.Blockers)
	}
	if !s.node("n1").Spec.Unschedulable || s.node("n2").Spec.Unschedulable || u.Status.NodesFailed != 1 {
		t.Error("the failed node stays cordoned, no other starts")
	}

	// Another update waits its turn.
	s.update("second", d, nil)
	s.waitUpdate("second", "one update at a time", blocked(v1alpha1.ReasonAnotherUpdateRunning))

	s.change("u", func(u *v1alpha1.ClusterUpdateSpec) { u.Retry, u.Paused = 1, true })
	u = s.waitUpdate("u", "the second attempt goes through, and the pause holds", func(u *v1alpha1.ClusterUpdate) bool {
		return u.Status.NodesDone == 1 && blocked(v1alpha1.ReasonPaused)(u)
	})
	if len(u.Status.Current) != 0 || s.node("n2").Spec.Unschedulable {
		t.Errorf("paused: %+v", u.Status)
	}
	s.change("u", func(u *v1alpha1.ClusterUpdateSpec) { u.Paused = false })

	u = s.waitUpdate("u", "the workers' budget is spent on n3, and only a person can change that", func(u *v1alpha1.ClusterUpdate) bool {
		return u.Status.Phase == v1alpha1.PhaseBlocked && blocked(v1alpha1.ReasonBudgetSpent)(u)
	})
	if u.Status.NodesDone != 2 || s.node("n2").Spec.Unschedulable { // n3 was unavailable anyway, and moved
		t.Errorf("n2 starts within a budget that is spent: %+v", u.Status)
	}
	var pool v1alpha1.UpdatePool
	if err := s.admin.Get(context.Background(), client.ObjectKey{Name: "all"}, &pool); err != nil {
		t.Fatal(err)
	}
	two := intstr.FromInt32(2)
	pool.Spec.MaxUnavailable = &two
	if err := s.admin.Update(context.Background(), &pool); err != nil {
		t.Fatal(err)
	}
	s.waitUpdate("u", "done", phase(v1alpha1.PhaseDone))
	s.waitUpdate("second", "the second finds nothing to do", phase(v1alpha1.PhaseDone))
	if n3 = s.node("n3"); !n3.Spec.Unschedulable || len(markings(n3)) > 0 || n3.Status.NodeInfo.KubeletVersion != to {
		t.Errorf("n3 is updated and keeps a person's cordon: %v %v", n3.Spec.Unschedulable, n3.Annotations)
	}
}

// An update that is deleted while a node is being drained gives the node back.
func TestDeletedUpdateGivesNodesBack(t *testing.T) {
	s := newSite(t, from)
	raw := release(t, to)
	d := digest(t, raw)
	s.plugIn("n1", raw)
	s.approve("expected", d)
	s.create(pod("default", "alone", "n1", "web")) // nobody would make it again
	s.update("u", d, nil)
	u := s.waitUpdate("u", "a pod without owner is not evicted", blocked(v1alpha1.ReasonDrainBlocked))
	if !strings.Contains(u.Status.WaitingFor, "pod default/alone has no owner") {
		t.Errorf("%q", u.Status.WaitingFor)
	}
	if !s.node("n1").Spec.Unschedulable {
		t.Error("n1 is cordoned by then")
	}
	u.Annotations = map[string]string{v1alpha1.AnnotationAllowDelete: "true"}
	if err := s.admin.Update(context.Background(), u); err != nil {
		t.Fatal(err)
	}
	if err := s.admin.Delete(context.Background(), u); err != nil {
		t.Fatal(err)
	}
	s.wait("n1 takes pods again", func() string {
		if n := s.node("n1"); n.Spec.Unschedulable || len(markings(n)) > 0 {
			return "still cordoned"
		}
		return ""
	})
	var p corev1.Pod
	if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: "alone"}, &p); err != nil || p.DeletionTimestamp != nil {
		t.Errorf("the pod is untouched: %v", err)
	}
}

// What keeps the gate closed is said, all of it, and nothing was started.
func TestGateStaysClosed(t *testing.T) {
	s := newSite(t, from)
	expected, wrong := release(t, to), header(t, "refit-demo", "9.9.9", "", "example.test/evil:1")
	d := digest(t, expected)
	s.approve("expected", d)
	s.plugIn("n2", wrong)

	// A wrong stick: which was found where, and which was expected.
	b := s.waitBundle("expected", "the mismatch is said", bundleSays(v1alpha1.ConditionReady, v1alpha1.ReasonDigestMismatch))
	msg := b.Status.Conditions[0].Message + b.Status.Conditions[2].Message
	for _, want := range []string{d, digest(t, wrong), "n2 /dev/sdb"} {
		if !strings.Contains(msg, want) {
			t.Errorf("%q does not name %s", msg, want)
		}
	}
	s.update("u", d, nil)
	s.waitUpdate("u", "the update says the same", blocked(v1alpha1.ReasonDigestMismatch))
	s.update("nobody", digest(t, wrong), nil)
	s.waitUpdate("nobody", "a bundle that nobody approved does not run", blocked(v1alpha1.ReasonBundleNotApproved))

	// The right stick, but n3's disk is too small.
	s.agents["n3"].set(func(a *simAgent) { a.full = true })
	s.plugIn("n2", expected)
	u := s.waitUpdate("u", "the space is said in bytes", blocked(v1alpha1.ReasonInsufficientSpace))
	if !strings.Contains(u.Status.WaitingFor, "node n3 needs 1234 bytes, 1000 are free") || u.Status.Phase != v1alpha1.PhaseBlocked {
		t.Errorf("%s %q", u.Status.Phase, u.Status.WaitingFor)
	}
	for _, n := range []string{"n1", "n2", "n3"} {
		if s.node(n).Spec.Unschedulable {
			t.Errorf("%s was touched", n)
		}
	}

	// A node in two pools.
	for _, p := range []string{"a", "b"} {
		s.create(&v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: p}})
	}
	s.waitUpdate("u", "a node in two pools is a verdict", blocked(v1alpha1.ReasonNodeInTwoPools))
}
