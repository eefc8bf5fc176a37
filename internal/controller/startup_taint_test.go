package controller_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
)

var foreignTaint = corev1.Taint{Key: "example.test/storage-missing", Value: "x", Effect: corev1.TaintEffectNoSchedule}

// join adds a node without an agent: a machine that has just registered.
func (s *site) join(name string, in string, taints ...corev1.Taint) {
	s.t.Helper()
	s.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name, "class": in}},
		Spec: corev1.NodeSpec{Taints: append([]corev1.Taint{foreignTaint}, taints...)},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: from, OperatingSystem: "linux", Architecture: "amd64"},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
}

// starts the node's agent, with a store of its own.
func (s *site) agentOn(name string, change func(*simAgent)) {
	s.t.Helper()
	if old := s.agents[name]; old != nil {
		old.set(func(a *simAgent) { a.mute = true })
	}
	s.agents[name] = newSimAgent(s.t, s.cfg, s.admin, name, change)
}

// taintsOf a node that refit sets, and those of others.
func (s *site) taintsOf(name string) (ours *corev1.Taint, others []corev1.Taint) {
	s.t.Helper()
	for _, t := range s.node(name).Spec.Taints {
		if t.Key == v1alpha1.TaintImagesNotReady {
			ours = &t
			continue
		}
		t.TimeAdded = nil
		others = append(others, t)
	}
	return ours, others
}

func (s *site) waitOut(name, what string) {
	s.t.Helper()
	s.wait(what, func() string {
		if ours, _ := s.taintsOf(name); ours == nil || ours.Effect != corev1.TaintEffectNoSchedule {
			return fmt.Sprintf("node %s has taints %v", name, s.node(name).Spec.Taints)
		}
		return ""
	})
}

func (s *site) waitIn(name, what string) {
	s.t.Helper()
	s.wait(what, func() string {
		ours, others := s.taintsOf(name)
		if !slices.Contains(others, foreignTaint) {
			s.t.Fatalf("node %s: a taint of others is gone: %v", name, others)
		}
		if ours != nil {
			return fmt.Sprintf("node %s has taints %v", name, s.node(name).Spec.Taints)
		}
		return ""
	})
}

func (s *site) waitEvent(node, reason, says string) {
	s.t.Helper()
	s.wait("an event says "+reason, func() string {
		var l eventsv1.EventList
		if err := s.admin.List(context.Background(), &l); err != nil {
			return err.Error()
		}
		var seen []string
		for _, e := range l.Items {
			if e.Regarding.Kind == "Node" && e.Regarding.Name == node {
				seen = append(seen, e.Reason+": "+e.Note)
				if e.Reason == reason && strings.Contains(e.Note, says) {
					return ""
				}
			}
		}
		return fmt.Sprint(seen)
	})
}

func (s *site) pool(change func(*v1alpha1.UpdatePool)) {
	s.t.Helper()
	for range 20 {
		var p v1alpha1.UpdatePool
		if err := s.admin.Get(context.Background(), client.ObjectKey{Name: "edge"}, &p); err != nil {
			s.t.Fatal(err)
		}
		change(&p)
		if s.admin.Update(context.Background(), &p) == nil {
			return
		}
	}
	s.t.Fatal("the pool cannot be changed")
}

// A new node, one that registers with the taint, and one with a replaced disk take no pods
// until their agents report every image. Existing nodes, foreign taints and the nodes of
// other pools are unchanged.
func TestNewNodesHoldFirst(t *testing.T) {
	s := newSite(t, from)
	raw := release(t, to)
	s.plugIn("n2", raw)
	s.approve("expected", digest(t, raw))
	s.waitBundle("expected", "the first nodes hold it", bundleSays(v1alpha1.ConditionReady, v1alpha1.ReasonAsExpected))
	s.create(&v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.UpdatePoolSpec{StartupTaint: true,
		NodeSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "class", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"other"}}}}}})

	// A node joins: it gets the taint at once, then its pin set, and loses the taint.
	s.join("n4", "edge")
	s.waitOut("n4", "the new node is kept out")
	s.waitEvent("n4", v1alpha1.ReasonNodeJoining, "takes no pods until")
	s.wait("the pool counts it", func() string {
		var p v1alpha1.UpdatePool
		if err := s.admin.Get(context.Background(), client.ObjectKey{Name: "edge"}, &p); err != nil || p.Status.Joining != 1 {
			return fmt.Sprintf("%v %+v", err, p.Status)
		}
		return ""
	})
	s.restartController() // the new process knows neither the node nor the payload of the bundle
	s.wait("its desired state names a pin set", func() string {
		var nu v1alpha1.NodeUpdate
		if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: "n4"}, &nu); err != nil || nu.Spec.Pins == "" {
			return fmt.Sprintf("%v %+v", err, nu.Spec)
		}
		return ""
	})
	s.agentOn("n4", func(a *simAgent) { a.full = true })
	s.wait("its agent speaks", func() string {
		var nu v1alpha1.NodeUpdate
		if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: "n4"}, &nu); err != nil || nu.Status.Pins == nil {
			return fmt.Sprintf("%v %+v", err, nu.Status)
		}
		return ""
	})
	if ours, _ := s.taintsOf("n4"); ours == nil {
		t.Fatal("n4 lost the taint although its agent has no image")
	}
	s.agents["n4"].set(func(a *simAgent) { a.full = false })
	s.waitIn("n4", "n4 has every image and loses the taint")
	s.waitEvent("n4", v1alpha1.ReasonNodeJoining, "takes pods: 2 of 2 images")

	// It misses an image for a while: it stays schedulable.
	s.agents["n4"].set(func(a *simAgent) { a.full = true })
	s.waitBundle("expected", "a node misses an image", func(b *v1alpha1.Bundle) bool { return b.Status.Loaded == "3/4" })
	if ours, _ := s.taintsOf("n4"); ours != nil {
		t.Fatal("a node at work got the taint because it misses an image")
	}

	// Its disk is replaced: another store, and nothing in it.
	s.agentOn("n4", func(a *simAgent) { a.full = true })
	s.waitOut("n4", "the node with another store is kept out")
	s.waitEvent("n4", v1alpha1.ReasonStoreReplaced, "another store")
	s.agents["n4"].set(func(a *simAgent) { a.full = false })
	s.waitIn("n4", "n4 has every image again and loses the taint")
	if key := s.node("n4").Annotations[v1alpha1.AnnotationAdmitted]; key != s.agents["n4"].key {
		t.Errorf("the key of the new store is noted, not %q", key)
	}

	// A node that registered with the taint, in no pool that asks.
	s.join("n5", "other", corev1.Taint{Key: v1alpha1.TaintImagesNotReady, Effect: corev1.TaintEffectNoSchedule})
	s.join("n6", "other")
	s.agentOn("n5", nil)
	s.waitIn("n5", "n5 registered with the taint and loses it")
	// The pool no longer asks for the taint: no node keeps one of ours.
	s.join("n7", "edge")
	s.waitOut("n7", "another new node is kept out")
	s.pool(func(p *v1alpha1.UpdatePool) { p.Spec.StartupTaint = false })
	s.waitIn("n7", "no pool asks for the taint any more")
	for _, n := range []string{"n1", "n2", "n3", "n6"} {
		if ours, _ := s.taintsOf(n); ours != nil {
			t.Errorf("node %s is in no pool with the startup taint, and has it", n)
		}
	}
	if _, noted := s.node("n6").Annotations[v1alpha1.AnnotationAdmitted]; noted {
		t.Error("a node in no pool with the startup taint is written")
	}
}
