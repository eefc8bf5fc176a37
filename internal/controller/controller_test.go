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

// One medium, one approval, one update. The nodes are updated one after the other, and each
// is done only after its agent reported the new version. A PodDisruptionBudget blocks a drain
// and is named in the status. The controller is killed in the middle and resumes.
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
	s.edit(found, func() { found.Spec.Digest = d })
	loaded := s.waitBundle(found.Name, "all nodes hold it", bundleSays(v1alpha1.ConditionReady, v1alpha1.ReasonAsExpected))
	if loaded.Status.Loaded != "3/3" || loaded.Status.KubernetesVersion != to || loaded.Status.Images != 2 {
		t.Errorf("what the header says is in the status: %+v", loaded.Status)
	}

	// A Manual update plans, checks and waits for its start; no node is changed.
	s.create(owned(pod("default", "web-1", "n2", "web"), map[string]string{"app": "web"}))
	s.budget(0)
	// Approved beforehand by the digest of another plan: it could not start (promise 3).
	s.update("to-136", d, func(u *v1alpha1.ClusterUpdateSpec) { u.Start, u.PlanDigest = v1alpha1.StartManual, "sha256:other" })
	s.waitUpdate("to-136", "the plan is not the approved one", blocked(v1alpha1.ReasonPlanChanged))
	s.change("to-136", func(c *v1alpha1.ClusterUpdateSpec) { c.PlanDigest = "" })
	u := s.waitUpdate("to-136", "the gate opens", phase(v1alpha1.PhaseReady))
	if !blocked(v1alpha1.ReasonAwaitingStart)(u) || u.Status.NodesTotal != 3 || u.Status.PlanDigest == "" {
		t.Errorf("the status misses that the update waits for its start: %+v", u.Status)
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
	s.waitBundle("old", "the older bundle is loaded nevertheless", bundleSays(v1alpha1.ConditionReady, v1alpha1.ReasonAsExpected))
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
	s.edit(n3, func() { n3.Spec.Unschedulable = true })
	s.create(&v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "all"}})
	s.update("u", d, nil)

	// An administrator cordoned n3: that uses the budget of the workers, not of the control plane.
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

	u = s.waitUpdate("u", "n3 uses the budget of the workers, and only an administrator can change that", func(u *v1alpha1.ClusterUpdate) bool {
		return u.Status.Phase == v1alpha1.PhaseBlocked && blocked(v1alpha1.ReasonBudgetSpent)(u)
	})
	if u.Status.NodesDone != 2 || s.node("n2").Spec.Unschedulable { // n3 was unavailable anyway, and moved
		t.Errorf("n2 starts within a budget that is spent: %+v", u.Status)
	}
	two := intstr.FromInt32(2)
	s.changePool("all", func(p *v1alpha1.UpdatePoolSpec) { p.MaxUnavailable = &two })
	s.waitUpdate("u", "done", phase(v1alpha1.PhaseDone))
	s.waitUpdate("second", "the second finds nothing to do", phase(v1alpha1.PhaseDone))
	if n3 = s.node("n3"); !n3.Spec.Unschedulable || len(markings(n3)) > 0 || n3.Status.NodeInfo.KubeletVersion != to {
		t.Errorf("n3 is not updated, or lost its administrator's cordon: %v %v", n3.Spec.Unschedulable, n3.Annotations)
	}
}

// An update that is deleted while a node is being drained gives the node back.
func TestDeletedUpdateGivesNodesBack(t *testing.T) {
	s := newSite(t, from)
	raw := release(t, to)
	d := digest(t, raw)
	s.plugIn("n1", raw)
	s.approve("expected", d)
	s.create(pod("default", "alone", "n1", "web")) // it has no controller that would recreate it
	s.update("u", d, nil)
	u := s.waitUpdate("u", "a pod without owner is not evicted", blocked(v1alpha1.ReasonDrainBlocked))
	if !strings.Contains(u.Status.WaitingFor, "pod default/alone has no owner") {
		t.Errorf("%q", u.Status.WaitingFor)
	}
	if !s.node("n1").Spec.Unschedulable {
		t.Error("n1 is cordoned by then")
	}
	s.edit(u, func() { u.Annotations = map[string]string{v1alpha1.AnnotationAllowDelete: "true"} })
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

// The status lists every check that keeps the gate closed, and no node is started.
func TestGateStaysClosed(t *testing.T) {
	s := newSite(t, from)
	expected, wrong := release(t, to), header(t, "refit-demo", "9.9.9", "", "example.test/evil:1")
	d := digest(t, expected)
	s.approve("expected", d)
	s.plugIn("n2", wrong)

	// The wrong bundle is plugged in: the message names both digests and the device.
	b := s.waitBundle("expected", "the condition reports the mismatch", bundleSays(v1alpha1.ConditionReady, v1alpha1.ReasonDigestMismatch))
	msg := b.Status.Conditions[0].Message + b.Status.Conditions[2].Message
	for _, want := range []string{d, digest(t, wrong), "n2 /dev/sdb"} {
		if !strings.Contains(msg, want) {
			t.Errorf("%q does not name %s", msg, want)
		}
	}
	s.update("u", d, nil)
	s.waitUpdate("u", "the update reports the same reason", blocked(v1alpha1.ReasonDigestMismatch))
	s.update("unapproved", digest(t, wrong), nil)
	s.waitUpdate("unapproved", "an unapproved bundle does not run", blocked(v1alpha1.ReasonBundleNotApproved))

	// The right bundle is plugged in, but n3's disk is too small.
	s.agents["n3"].set(func(a *simAgent) { a.full = true })
	s.plugIn("n2", expected)
	u := s.waitUpdate("u", "the blocker gives the missing space in bytes", blocked(v1alpha1.ReasonInsufficientSpace))
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
