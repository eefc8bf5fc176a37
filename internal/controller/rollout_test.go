package controller_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// pools makes a pool "control" of n1 and a pool "edge" of n2 and n3.
func (s *site) pools(edge func(*v1alpha1.UpdatePoolSpec)) {
	s.t.Helper()
	in := func(nodes ...string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "kubernetes.io/hostname", Operator: metav1.LabelSelectorOpIn, Values: nodes}}}
	}
	s.create(&v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "control"}, Spec: v1alpha1.UpdatePoolSpec{NodeSelector: in("n1")}})
	p := &v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.UpdatePoolSpec{NodeSelector: in("n2", "n3")}}
	edge(&p.Spec)
	s.create(p)
}

func (s *site) changePool(name string, change func(*v1alpha1.UpdatePoolSpec)) {
	s.t.Helper()
	s.wait("the pool takes the change", func() string {
		var p v1alpha1.UpdatePool
		if err := s.admin.Get(context.Background(), client.ObjectKey{Name: name}, &p); err != nil {
			return err.Error()
		}
		change(&p.Spec)
		if err := s.admin.Update(context.Background(), &p); err != nil {
			return err.Error()
		}
		return ""
	})
}

func (s *site) annotate(node, key, value string) {
	s.t.Helper()
	n := s.node(node)
	patch := client.MergeFrom(n.DeepCopy())
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	n.Annotations[key] = value
	if value == "" {
		delete(n.Annotations, key)
	}
	if err := s.admin.Patch(context.Background(), n, patch); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) run(node string) *v1alpha1.NodeRun {
	s.t.Helper()
	var nu v1alpha1.NodeUpdate
	if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: node}, &nu); err != nil {
		s.t.Fatal(err)
	}
	return nu.Spec.Run
}

func (s *site) untouched(node, version string) {
	s.t.Helper()
	if n := s.node(node); n.Spec.Unschedulable || len(markings(n)) > 0 || n.Status.NodeInfo.KubeletVersion != version {
		s.t.Errorf("%s: %s cordoned=%v %v", node, n.Status.NodeInfo.KubeletVersion, n.Spec.Unschedulable, markings(n))
	}
}

// A canary fails: its started steps are undone, the node is schedulable again and no other
// node starts, even after a restart of the controller. A retry by name succeeds, and then
// the other nodes follow.
func TestAFailedCanaryIsUndone(t *testing.T) {
	s := newSite(t, from)
	raw := release(t, to)
	s.plugIn("n1", raw)
	s.approve("expected", digest(t, raw))
	s.pools(func(p *v1alpha1.UpdatePoolSpec) {
		two := intstr.FromInt32(2)
		p.MaxUnavailable, p.Canary, p.OnFailure, p.MaxFailures, p.StepDeadlineSeconds = &two, &v1alpha1.Canary{Nodes: intstr.FromInt32(1)}, v1alpha1.FailureUndo, 5, 900
	})
	s.agents["n2"].set(func(a *simAgent) { a.failStep[1] = "kubelet" })
	s.update("u", digest(t, raw), nil)

	u := s.waitUpdate("u", "the canary is undone and the update halts", func(u *v1alpha1.ClusterUpdate) bool {
		return u.Status.Phase == v1alpha1.PhaseHalted && blocked(v1alpha1.ReasonUndone)(u) && len(u.Status.Current) == 0
	})
	if !strings.Contains(u.Status.WaitingFor, "node n2 failed and its steps were undone, back to v1.35.4; step kubelet failed: kubeadm ended with 1") || u.Status.NodesFailed != 1 || u.Status.NodesDone != 1 {
		t.Errorf("%+v", u.Status)
	}
	s.untouched("n2", from)
	s.untouched("n3", from)
	run := s.run("n2")
	if !run.Undo || run.Attempt != 2 || !strings.Contains(run.Cause, "kubeadm ended with 1") {
		t.Errorf("the undo is an attempt of its own and says why: %+v", run)
	}
	for _, step := range run.Steps {
		if step.DeadlineSeconds != 900 {
			t.Errorf("step %s has no deadline of the pool: %+v", step.ID, step)
		}
	}

	// Another controller knows all that from the API; it starts nothing either.
	s.restartController()
	time.Sleep(2 * time.Second)
	s.untouched("n2", from)
	s.untouched("n3", from)

	// One node is tried again, by name. While the last one moves, when it will be
	// done is learned from the others.
	s.agents["n3"].set(func(a *simAgent) { a.slow = true })
	s.change("u", func(c *v1alpha1.ClusterUpdateSpec) { c.RetryNodes = []v1alpha1.NodeRetry{{Name: "n2", Retry: 1}} })
	u = s.waitUpdate("u", "the canary is done, and the other follows", func(u *v1alpha1.ClusterUpdate) bool {
		return u.Status.NodesDone == 2 && len(u.Status.Current) == 1 && u.Status.Estimate != nil
	})
	if u.Status.Phase != v1alpha1.PhaseUpdating || u.Status.Current[0] != "n3" || u.Status.Estimate.Samples != 1 {
		t.Errorf("%+v %+v", u.Status, u.Status.Estimate)
	}
	if run := s.run("n2"); run.Undo || run.Attempt != 3 || run.Retry != 1 || run.Try != 1 {
		t.Errorf("%+v", run)
	}
	s.agents["n3"].set(func(a *simAgent) { a.slow = false })
	u = s.waitUpdate("u", "done", phase(v1alpha1.PhaseDone))
	if u.Status.Estimate != nil {
		t.Error("what is done is not estimated any more")
	}
	for _, n := range []string{"n1", "n2", "n3"} {
		s.untouched(n, to)
	}
	s.agents["n2"].set(func(a *simAgent) {
		if a.undone != 1 || a.runs != 3 {
			t.Errorf("n2 ran %d times and undid %d runs", a.runs, a.undone)
		}
	})
}

// A pool tolerates one failure; the second one halts the update. An update that is deleted
// while nodes run their steps lets them finish and removes every mark of refit. The cordon of
// an administrator stays.
func TestHaltsAfterTheSecondFailureAndIsDeleted(t *testing.T) {
	s := newSite(t, from)
	raw := release(t, to)
	s.plugIn("n1", raw)
	s.approve("expected", digest(t, raw))
	s.pools(func(p *v1alpha1.UpdatePoolSpec) {
		two := intstr.FromInt32(2)
		p.MaxUnavailable, p.MaxFailures = &two, 2
	})
	n3 := s.node("n3")
	s.edit(n3, func() { n3.Spec.Unschedulable = true })
	s.agents["n2"].set(func(a *simAgent) { a.failStep[1] = "kubelet" })
	s.agents["n3"].set(func(a *simAgent) { a.failStep[1], a.slow = "kubelet", true })
	s.update("u", digest(t, raw), nil)
	s.waitUpdate("u", "one failure is borne", func(u *v1alpha1.ClusterUpdate) bool {
		return u.Status.NodesFailed == 1 && u.Status.Phase == v1alpha1.PhaseUpdating && blocked(v1alpha1.ReasonStepFailed)(u)
	})
	s.agents["n3"].set(func(a *simAgent) { a.slow = false })
	s.waitUpdate("u", "the second halts", func(u *v1alpha1.ClusterUpdate) bool {
		return u.Status.NodesFailed == 2 && u.Status.Phase == v1alpha1.PhaseHalted
	})

	for _, n := range []string{"n2", "n3"} {
		s.agents[n].set(func(a *simAgent) { a.slow = true })
	}
	s.change("u", func(c *v1alpha1.ClusterUpdateSpec) { c.Retry = 1 })
	s.wait("both run again", func() string {
		for _, n := range []string{"n2", "n3"} {
			var nu v1alpha1.NodeUpdate
			if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: n}, &nu); err != nil {
				return err.Error()
			}
			if r := nu.Status.Run; r == nil || r.Attempt != 2 || r.State != v1alpha1.RunRunning {
				return fmt.Sprintf("%s: %+v", n, r)
			}
		}
		return ""
	})
	u := s.waitUpdate("u", "the update started nodes", phase(v1alpha1.PhaseUpdating))
	patch := client.MergeFrom(u.DeepCopy())
	u.Annotations = map[string]string{v1alpha1.AnnotationAllowDelete: "true"}
	if err := s.admin.Patch(context.Background(), u, patch); err != nil {
		t.Fatal(err)
	}
	if err := s.admin.Delete(context.Background(), u); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	for _, n := range []string{"n2", "n3"} {
		if x := s.node(n); !x.Spec.Unschedulable || len(markings(x)) == 0 {
			t.Errorf("%s was returned while it runs its steps: %v", n, x.Annotations)
		}
	}
	for _, n := range []string{"n2", "n3"} {
		s.agents[n].set(func(a *simAgent) { a.slow = false })
	}
	s.wait("the nodes finish and are returned", func() string {
		for _, name := range []string{"n2", "n3"} {
			if n := s.node(name); n.Spec.Unschedulable != (name == "n3") || len(markings(n)) > 0 || n.Status.NodeInfo.KubeletVersion != to {
				return fmt.Sprintf("%s: %s cordoned=%v %v", name, n.Status.NodeInfo.KubeletVersion, n.Spec.Unschedulable, markings(n))
			}
			if r := s.run(name); r != nil {
				return fmt.Sprintf("%s may still run: %+v", name, r)
			}
		}
		return ""
	})
}

// Outside its maintenance windows a pool starts no node and reports the next window. A node
// on hold is skipped. A node that returns at its old version has failed, and waits for a
// retry.
func TestWindowHoldAndComingBack(t *testing.T) {
	s := newSite(t, from)
	raw := release(t, to)
	s.plugIn("n1", raw)
	s.approve("expected", digest(t, raw))
	opens := time.Now().UTC().Add(12 * time.Hour)
	s.pools(func(p *v1alpha1.UpdatePoolSpec) {
		two := intstr.FromInt32(2)
		p.MaxUnavailable, p.SoakSeconds = &two, 600
		p.Windows = []v1alpha1.Window{{Start: opens.Format("15:04"), DurationMinutes: 60}}
	})
	s.update("u", digest(t, raw), nil)
	u := s.waitUpdate("u", "the control plane is done, the pool waits for its window", func(u *v1alpha1.ClusterUpdate) bool {
		return u.Status.NodesDone == 1 && blocked(v1alpha1.ReasonOutsideWindow)(u)
	})
	if !strings.Contains(u.Status.WaitingFor, "opens "+opens.Format("Mon 2006-01-02 15:04")) {
		t.Errorf("%q does not say when it opens", u.Status.WaitingFor)
	}
	s.untouched("n2", from)
	s.untouched("n3", from)
	s.wait("the pool says so too", func() string {
		var p v1alpha1.UpdatePool
		if err := s.admin.Get(context.Background(), client.ObjectKey{Name: "edge"}, &p); err != nil {
			return err.Error()
		}
		if !strings.HasPrefix(p.Status.Window, "opens "+opens.Format("Mon 2006-01-02 15:04")) {
			return p.Status.Window
		}
		return ""
	})

	s.annotate("n2", v1alpha1.AnnotationHold, "a tape robot hangs on it")
	s.changePool("edge", func(p *v1alpha1.UpdatePoolSpec) {
		p.Windows = []v1alpha1.Window{{Start: "00:00", DurationMinutes: 1440}}
	})
	u = s.waitUpdate("u", "n3 is updated, n2 is skipped", func(u *v1alpha1.ClusterUpdate) bool {
		return u.Status.NodesDone == 2 && blocked(v1alpha1.ReasonNodeOnHold)(u)
	})
	if !strings.Contains(u.Status.WaitingFor, "node n2 is on hold and does not start: a tape robot hangs on it") {
		t.Errorf("%q", u.Status.WaitingFor)
	}
	if n := s.node("n2"); n.Spec.Unschedulable || n.Status.NodeInfo.KubeletVersion != from {
		t.Errorf("n2 was touched: %v", n.Annotations)
	}
	s.annotate("n2", v1alpha1.AnnotationHold, "")
	s.waitUpdate("u", "all are done and watched", func(u *v1alpha1.ClusterUpdate) bool {
		return u.Status.NodesDone == 3 && u.Status.Phase == v1alpha1.PhaseUpdating && blocked(v1alpha1.ReasonSoaking)(u)
	})

	// n2 boots its old deployment.
	n2 := s.node("n2")
	n2.Status.NodeInfo.KubeletVersion = from
	if err := s.admin.Status().Update(context.Background(), n2); err != nil {
		t.Fatal(err)
	}
	u = s.waitUpdate("u", "n2 returned at its old version", func(u *v1alpha1.ClusterUpdate) bool {
		return u.Status.Phase == v1alpha1.PhaseHalted && blocked(v1alpha1.ReasonVersionReverted)(u)
	})
	if u.Status.NodesDone != 2 || u.Status.NodesFailed != 1 {
		t.Errorf("%+v", u.Status)
	}
	time.Sleep(2 * time.Second)
	s.untouched("n2", from) // the controller does not retry by itself
	s.agents["n2"].set(func(a *simAgent) {
		if a.runs != 1 {
			t.Errorf("n2 ran %d times", a.runs)
		}
	})
	s.change("u", func(c *v1alpha1.ClusterUpdateSpec) { c.Retry = 1 })
	s.waitUpdate("u", "spec.retry starts n2 again", func(u *v1alpha1.ClusterUpdate) bool { return u.Status.NodesDone == 3 })
	s.changePool("edge", func(p *v1alpha1.UpdatePoolSpec) { p.SoakSeconds = 0 })
	s.waitUpdate("u", "done", phase(v1alpha1.PhaseDone))
	s.untouched("n2", to)
	var n1 corev1.Node
	if err := s.admin.Get(context.Background(), client.ObjectKey{Name: "n1"}, &n1); err != nil || n1.Annotations[v1alpha1.AnnotationUpdated] == "" {
		t.Errorf("a node that was updated keeps its record: %v %v", n1.Annotations, err)
	}
}
