package controller_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

func (s *site) pressure(name string, on corev1.ConditionStatus) {
	s.t.Helper()
	for range 20 {
		n := s.node(name)
		n.Status.Conditions = append(n.Status.Conditions[:1:1], corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: on})
		if s.admin.Status().Update(context.Background(), n) == nil {
			return
		}
	}
	s.t.Fatal("the node's status cannot be written")
}

func answerOf(u *v1alpha1.ClusterUpdate, check string) v1alpha1.CheckResult {
	for _, c := range u.Status.Checks {
		if c.Name == check {
			return c.Result
		}
	}
	return ""
}

func risk(u *v1alpha1.ClusterUpdate) v1alpha1.RiskRecord {
	if len(u.Status.AcceptedRisks) != 1 {
		return v1alpha1.RiskRecord{}
	}
	return u.Status.AcceptedRisks[0]
}

func (s *site) runtime(name, version string) {
	s.t.Helper()
	for range 20 {
		n := s.node(name)
		n.Status.NodeInfo.ContainerRuntimeVersion = version
		if s.admin.Status().Update(context.Background(), n) == nil {
			return
		}
	}
	s.t.Fatal("the node's status cannot be written")
}

// A Bundle that refit approve did not compare, since kubectl created it, is compared with the nodes before
// the update starts. Each node that it is not made for closes the gate until it changes, or a person accepts it.
func TestConstraintsCloseTheGate(t *testing.T) {
	s := newSite(t, from)
	raw := constrained(t, []bundle.Constraint{{Name: "containerd", Min: "2.0.0"}, {Name: "kubernetes", Min: "1.35.4", Max: "1.35.9"}}, "refit-demo", "1.36.3", to, "registry.k8s.io/pause:3.10.2")
	d := digest(t, raw)
	s.runtime("n2", "containerd://1.7.24~ds1")
	s.runtime("n3", "cri-o://1.32.1")
	s.plugIn("n2", raw)
	s.approve("expected", d)
	s.update("u", d, func(u *v1alpha1.ClusterUpdateSpec) { u.Start = v1alpha1.StartManual })
	u := s.waitUpdate("u", "two nodes do not fit", func(u *v1alpha1.ClusterUpdate) bool { return len(unmet(u)) == 2 })
	for i, want := range []string{"node n2 runs containerd 1.7.24~ds1; the bundle needs containerd 2.0.0 or later", "node n3 has the runtime cri-o 1.32.1; the bundle needs containerd 2.0.0 or later"} {
		if b := unmet(u)[i]; b.Message != want || b.Fix == "" {
			t.Errorf("%+v, want %s and a fix", b, want)
		}
	}
	if answerOf(u, "constraints") != v1alpha1.CheckClosed || u.Status.Phase != v1alpha1.PhaseBlocked || u.Status.PlanDigest == "" {
		t.Errorf("%s: %+v", u.Status.Phase, u.Status.Checks)
	}
	s.runtime("n2", "containerd://2.1.4")
	u = s.waitUpdate("u", "only n3 does not fit", func(u *v1alpha1.ClusterUpdate) bool { return len(unmet(u)) == 1 })
	if !strings.HasPrefix(unmet(u)[0].Message, "node n3") {
		t.Errorf("%+v", unmet(u))
	}
	s.change("u", func(c *v1alpha1.ClusterUpdateSpec) {
		c.AcceptedRisks = []v1alpha1.AcceptedRisk{{Check: "constraints", Reason: "tried with this CRI-O", Until: metav1.NewTime(time.Now().Add(time.Hour))}}
	})
	u = s.waitUpdate("u", "a person accepts it", phase(v1alpha1.PhaseReady))
	if answerOf(u, "constraints") != v1alpha1.CheckAccepted || risk(u).Covers != 1 {
		t.Errorf("%+v, %+v", u.Status.Checks, u.Status.AcceptedRisks)
	}
	s.change("u", func(c *v1alpha1.ClusterUpdateSpec) { c.AcceptedRisks, c.Start = nil, v1alpha1.StartImmediate })
	s.waitUpdate("u", "nothing starts without it", blocked(v1alpha1.ReasonConstraintNotMet))
	s.runtime("n3", "containerd://2.1.4")
	s.waitUpdate("u", "nodes that are updated already are not compared with what they ran before", phase(v1alpha1.PhaseDone))
}

// unmet are the blockers of nodes that a bundle is not made for.
func unmet(u *v1alpha1.ClusterUpdate) (out []v1alpha1.Blocker) {
	for _, b := range u.Status.Blockers {
		if b.Reason == v1alpha1.ReasonConstraintNotMet {
			out = append(out, b)
		}
	}
	return out
}

// A closed gate lists every failing check. An acknowledged risk opens it until the deadline
// and stays on record. A drain reports what happens to each pod, and follows the drain
// settings of this update.
func TestTheGateAndTheDrainExplainThemselves(t *testing.T) {
	s := newSite(t, from)
	raw := release(t, to)
	d := digest(t, raw)
	s.plugIn("n2", raw)
	s.approve("expected", d)
	s.create(owned(pod("default", "web-1", "n2", "web"), map[string]string{"app": "web"}))
	s.create(owned(pod("default", "local", "n2", "web"), map[string]string{"keep": "here"}))
	tool := pod("default", "tool", "n2", "web")
	tool.Labels = map[string]string{"may": "go"}
	s.create(tool)
	s.budget(0)
	s.pressure("n3", corev1.ConditionTrue)
	keep, lose, grace := map[string]string{"keep": "here"}, map[string]string{"may": "go"}, int64(1)
	s.update("u", d, func(u *v1alpha1.ClusterUpdateSpec) {
		u.Drain = &v1alpha1.DrainOptions{SkipSelector: &metav1.LabelSelector{MatchLabels: keep}, EvictUnownedSelector: &metav1.LabelSelector{MatchLabels: lose}, GracePeriodSeconds: &grace}
		u.AcceptedRisks = []v1alpha1.AcceptedRisk{{Check: "pressure", Reason: "it was yesterday's", Until: metav1.NewTime(time.Now().Add(-time.Minute))}}
	})
	u := s.waitUpdate("u", "the pressure closes the gate", blocked(v1alpha1.ReasonNodePressure))
	if answerOf(u, "pressure") != v1alpha1.CheckClosed || answerOf(u, "bundle-approved") != v1alpha1.CheckPassed || len(u.Status.Checks) < 20 {
		t.Errorf("every check has an answer: %+v", u.Status.Checks)
	}
	if risk(u).State != v1alpha1.RiskExpired {
		t.Errorf("a risk that has ended accepts nothing: %+v", u.Status.AcceptedRisks)
	}
	if s.node("n1").Annotations[v1alpha1.AnnotationUpdating] != "" {
		t.Error("a node was started before the gate was open")
	}

	s.change("u", func(c *v1alpha1.ClusterUpdateSpec) {
		c.AcceptedRisks[0].Until = metav1.NewTime(time.Now().Add(time.Hour))
	})
	u = s.waitUpdate("u", "n2 is emptied but for what its budget holds", func(u *v1alpha1.ClusterUpdate) bool {
		return len(u.Status.Drains) == 1 && u.Status.Drains[0].Left == 1 && len(u.Status.Drains[0].Pods) == 1
	})
	if r := risk(u); r.State != v1alpha1.RiskInForce || r.Covers != 1 || r.Reason != "it was yesterday's" || answerOf(u, "pressure") != v1alpha1.CheckAccepted {
		t.Errorf("the risk is on record: %+v", u.Status.AcceptedRisks)
	}
	nd := u.Status.Drains[0]
	if nd.Node != "n2" || nd.Skipped < 1 || nd.Since == nil {
		t.Errorf("%+v", nd)
	}
	if p := nd.Pods[0]; p.Pod != "default/web-1" || p.Fate != v1alpha1.PodRefused || p.Since == nil || !strings.Contains(p.Message, "PodDisruptionBudget default/web, which allows 0 disruptions") {
		t.Errorf("the pod says who holds it: %+v", p)
	}
	since := nd.Pods[0].Since
	if n := s.node("n2"); n.Annotations["cluster-autoscaler.kubernetes.io/scale-down-disabled"] != "true" {
		t.Errorf("the autoscaler is held back: %v", n.Annotations)
	}
	s.restartController()
	s.wait("another process looks", func() string {
		if err := s.admin.Get(context.Background(), client.ObjectKey{Name: "u"}, u); err != nil {
			return err.Error()
		}
		if len(u.Status.Drains) == 1 && u.Status.Drains[0].Pods[0].Since.Equal(since) {
			return ""
		}
		return fmt.Sprintf("since %v: %+v", since, u.Status.Drains)
	})
	for name, there := range map[string]bool{"local": true, "tool": false} {
		var p corev1.Pod
		err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, &p)
		if gone := client.IgnoreNotFound(err) == nil && err != nil || p.DeletionTimestamp != nil; gone == there {
			t.Errorf("pod %s: %v %v", name, err, p.DeletionTimestamp)
		}
	}
	s.allow(1)
	u = s.waitUpdate("u", "the end", phase(v1alpha1.PhaseDone))
	if risk(u).Check != "pressure" || len(u.Status.Drains) > 0 {
		t.Errorf("risks stay on record, drains end: %+v %+v", u.Status.AcceptedRisks, u.Status.Drains)
	}
	for name := range s.agents {
		for key := range s.node(name).Annotations {
			if strings.Contains(key, "autoscaler") || key == v1alpha1.AnnotationInterlock {
				t.Errorf("%s is left on %s", key, name)
			}
		}
	}
}
