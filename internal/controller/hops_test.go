package controller_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
)

// hopsSite is a site at v1.34.2 with approved bundles of the next two minor versions.
func hopsSite(t *testing.T) (s *site, first, last string) {
	t.Helper()
	s = newSite(t, "v1.34.2")
	a, b := release(t, "v1.35.4"), release(t, "v1.36.3")
	s.plugIn("n2", a)
	s.agents["n3"].set(func(x *simAgent) { x.medium, x.device = b, "/dev/sdc" })
	first, last = digest(t, a), digest(t, b)
	s.approve("first", first)
	s.approve("last", last)
	return s, first, last
}

func hopDone(i int) func(*v1alpha1.ClusterUpdate) bool {
	return func(u *v1alpha1.ClusterUpdate) bool {
		return len(u.Status.Hops) > i && u.Status.Hops[i].FinishedAt != nil
	}
}

// kubelets of all nodes.
func (s *site) kubelets() []string {
	s.t.Helper()
	var list corev1.NodeList
	if err := s.admin.List(context.Background(), &list); err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for i := range list.Items {
		out = append(out, list.Items[i].Status.NodeInfo.KubeletVersion)
	}
	return out
}

// Two minor versions are one plan with one approval. The nodes hold the bundles of both hops
// before the first one starts, and as long as the update is not done. The controller is killed
// between the hops, an administrator pauses there, and a check of the gate that fails keeps the
// second hop from starting. Nothing is lost: the plan that was approved is the one that ends.
func TestTwoHopsAreOneUpdate(t *testing.T) {
	s, first, last := hopsSite(t)
	s.update("up", last, func(u *v1alpha1.ClusterUpdateSpec) {
		u.Hops, u.PauseAfter, u.Start = []string{first}, first, v1alpha1.StartManual
	})
	ready := s.waitUpdate("up", "both hops are planned and prepared", phase(v1alpha1.PhaseReady))
	h := ready.Status.Hops
	if len(h) != 2 || h[0].Bundle != first || h[0].Version != "1.35.4" || h[1].Bundle != last || h[1].Version != "1.36.3" || h[0].Nodes != 3 || h[1].Nodes != 3 || h[0].StartedAt != nil || ready.Status.Version != "1.36.3" {
		t.Errorf("the status shows the hops: %+v, version %s", h, ready.Status.Version)
	}
	approved := ready.Status.PlanDigest
	plan := s.planOf(ready)
	if hops := plan.Hops(); len(hops) != 2 || hops[0].Nodes[0].To != "v1.35.4" || hops[1].Nodes[0].From != "v1.35.4" || hops[1].Nodes[0].To != "v1.36.3" || plan.Digest() != approved {
		t.Errorf("the plan has both hops: %s", plan.JSON())
	}
	s.heldByAll(first, last)

	s.change("up", func(u *v1alpha1.ClusterUpdateSpec) { u.Start, u.PlanDigest = v1alpha1.StartImmediate, approved })
	paused := s.waitUpdate("up", "the update pauses after the first hop", blocked(v1alpha1.ReasonPaused))
	if got := s.kubelets(); !slices.Equal(got, []string{"v1.35.4", "v1.35.4", "v1.35.4"}) {
		t.Errorf("after the first hop the nodes run %v", got)
	}
	if paused.Status.Phase != v1alpha1.PhaseBlocked || paused.Status.Hops[0].FinishedAt == nil || paused.Status.Hops[1].StartedAt != nil || paused.Status.FinishedAt != nil {
		t.Errorf("between the hops: phase %s, %+v", paused.Status.Phase, paused.Status.Hops)
	}
	s.heldByAll(first, last)

	// A check of the gate is asked again, by a controller that has just started.
	s.agents["n3"].set(func(a *simAgent) { a.full = true })
	s.restartController()
	s.change("up", func(u *v1alpha1.ClusterUpdateSpec) { u.PauseAfter = "" })
	closed := s.waitUpdate("up", "the gate is closed before the second hop", blocked(v1alpha1.ReasonInsufficientSpace))
	if closed.Status.Hops[1].StartedAt != nil || closed.Status.PlanDigest != approved {
		t.Errorf("the second hop waits with the same plan: %+v, plan %s", closed.Status.Hops, closed.Status.PlanDigest)
	}

	s.agents["n3"].set(func(a *simAgent) { a.full = false })
	done := s.waitUpdate("up", "both hops are done", phase(v1alpha1.PhaseDone))
	if got := s.kubelets(); !slices.Equal(got, []string{"v1.36.3", "v1.36.3", "v1.36.3"}) {
		t.Errorf("after the second hop the nodes run %v", got)
	}
	if done.Status.PlanDigest != approved || done.Status.Hops[1].StartedAt == nil || done.Status.Hops[1].FinishedAt == nil {
		t.Errorf("the approved plan ended: %+v", done.Status)
	}
	for name, a := range s.agents {
		a.mu.Lock()
		if a.runs != 2 {
			t.Errorf("node %s had %d runs, one for each hop is right", name, a.runs)
		}
		a.mu.Unlock()
	}
	// Both bundles were approved, and the cluster ran both: the first one is the release before.
	s.waitBundle("first", "the bundle of the first hop is kept for a rollback", func(b *v1alpha1.Bundle) bool {
		return b.Status.Retention != nil && b.Status.Retention.Use == v1alpha1.BundleRollback
	})
	s.waitBundle("last", "the bundle of the last hop runs", func(b *v1alpha1.Bundle) bool {
		return b.Status.Retention != nil && b.Status.Retention.Use == v1alpha1.BundleRuns
	})
}

// A node that joins between two hops was in no plan that an administrator approved: the update does
// not go on. Deleting it leaves the nodes as they are, and another update goes on from there.
func TestTheRestOfTheHopsIsAsApproved(t *testing.T) {
	s, first, last := hopsSite(t)
	s.update("up", last, func(u *v1alpha1.ClusterUpdateSpec) {
		u.Hops, u.PauseAfter, u.Start = []string{first}, first, v1alpha1.StartManual
	})
	approved := s.waitUpdate("up", "it is planned", phase(v1alpha1.PhaseReady)).Status.PlanDigest
	s.change("up", func(u *v1alpha1.ClusterUpdateSpec) { u.Start, u.PlanDigest = v1alpha1.StartImmediate, approved })
	s.waitUpdate("up", "the first hop is done", hopDone(0))
	s.addNode("n4", false, "v1.35.4")
	s.change("up", func(u *v1alpha1.ClusterUpdateSpec) { u.PauseAfter = "" })
	s.waitUpdate("up", "the nodes may not have reported everything", blocked(v1alpha1.ReasonSettling))
	s.ahead.Add(int64(2 * 60 * 1e9))
	changed := s.waitUpdate("up", "another plan is another update", blocked(v1alpha1.ReasonPlanChanged))
	if changed.Status.PlanDigest != approved || changed.Status.Hops[1].StartedAt != nil || changed.Status.Phase != v1alpha1.PhaseBlocked || !strings.Contains(changed.Status.WaitingFor, "n4") {
		t.Errorf("the approved plan stays, and the node is named: %+v", changed.Status)
	}
	s.delete("up")
	s.update("rest", last, nil)
	s.waitUpdate("rest", "the rest is done", phase(v1alpha1.PhaseDone))
	if got := s.kubelets(); !slices.Equal(got, []string{"v1.36.3", "v1.36.3", "v1.36.3", "v1.36.3"}) {
		t.Errorf("the nodes run %v", got)
	}
}

// What is not approved, or cannot be a hop, keeps the update from starting; the API refuses what
// makes no sense. An update that is deleted between hops leaves the cluster whole.
func TestHopsThatDoNotStart(t *testing.T) {
	s, first, last := hopsSite(t)
	other := strings.Repeat("0", 64)
	for name, spec := range map[string]v1alpha1.ClusterUpdateSpec{
		"hops without a target":     {Hops: []string{first}},
		"a hop that is the target":  {Bundle: last, Hops: []string{last}},
		"the same hop twice":        {Bundle: last, Hops: []string{first, first}},
		"a hop that is no digest":   {Bundle: last, Hops: []string{"v1.35"}},
		"some nodes only":           {Bundle: last, Hops: []string{first}, Nodes: []string{"n1"}},
		"a rollback":                {Bundle: last, Hops: []string{first}, AllowDowngrade: true},
		"a pause after no hop":      {Bundle: last, Hops: []string{first}, PauseAfter: last},
		"a pause without hops":      {Bundle: last, PauseAfter: last},
		"workers in another rhythm": {Bundle: last, Hops: []string{first}, Workers: "Never"},
	} {
		u := &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "refused"}, Spec: spec}
		if err := s.admin.Create(context.Background(), u); err == nil {
			t.Errorf("%s: the API takes it", name)
			_ = s.admin.Delete(context.Background(), u)
		}
	}
	s.update("unknown", last, func(u *v1alpha1.ClusterUpdateSpec) { u.Hops = []string{"sha256:" + other} })
	u := s.waitUpdate("unknown", "a hop that no Bundle has", blocked(v1alpha1.ReasonBundleNotFound))
	if u.Status.StartedAt != nil || !strings.Contains(u.Status.WaitingFor, other) {
		t.Errorf("nothing starts: %+v", u.Status)
	}
	u.Spec.Hops = []string{first}
	if err := s.admin.Update(context.Background(), u); err == nil {
		t.Error("the hops of an update can be changed")
	}
	s.delete("unknown")

	s.update("skips", last, nil)
	s.waitUpdate("skips", "without a hop the minor version is skipped", blocked(v1alpha1.ReasonVersionSkew))
	s.delete("skips")

	s.update("workers", last, func(u *v1alpha1.ClusterUpdateSpec) {
		u.Hops, u.PauseAfter, u.Workers = []string{first}, first, v1alpha1.WorkersLastHop
	})
	between := s.waitUpdate("workers", "the control plane has moved", blocked(v1alpha1.ReasonPaused))
	if got := s.kubelets(); !slices.Equal(got, []string{"v1.35.4", "v1.34.2", "v1.34.2"}) || between.Status.Hops[0].Nodes != 1 || between.Status.Hops[1].Nodes != 3 {
		t.Errorf("workers stay until the last hop: %v, %+v", got, between.Status.Hops)
	}
	s.delete("workers")
	s.update("rest", last, nil)
	s.waitUpdate("rest", "another update goes on from there", blocked(v1alpha1.ReasonVersionSkew))
	s.delete("rest")
	s.update("end", last, func(u *v1alpha1.ClusterUpdateSpec) { u.Workers = v1alpha1.WorkersLastHop })
	s.waitUpdate("end", "workers go over two minor versions at once", phase(v1alpha1.PhaseDone))
	if got := s.kubelets(); !slices.Equal(got, []string{"v1.36.3", "v1.36.3", "v1.36.3"}) {
		t.Errorf("the nodes run %v", got)
	}
}

func (s *site) delete(update string) {
	s.t.Helper()
	if err := s.admin.Delete(context.Background(), &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: update}}); err != nil {
		s.t.Fatal(err)
	}
}

// planOf reads the plan that the status names.
func (s *site) planOf(u *v1alpha1.ClusterUpdate) model.Plan {
	s.t.Helper()
	var c v1alpha1.Content
	var p model.Plan
	if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: u.Status.Plan}, &c); err != nil {
		s.t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(c.Data), &p); err != nil {
		s.t.Fatal(err)
	}
	return p
}

// heldByAll checks that every node holds what it needs of the bundles.
func (s *site) heldByAll(bundles ...string) {
	s.t.Helper()
	for name := range s.agents {
		var nu v1alpha1.NodeUpdate
		var c v1alpha1.Content
		var l model.PinSet
		if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, &nu); err != nil {
			s.t.Fatal(err)
		}
		if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: nu.Spec.Pins}, &c); err != nil {
			s.t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(c.Data), &l); err != nil {
			s.t.Fatal(err)
		}
		for _, b := range bundles {
			if !slices.ContainsFunc(l.Payloads, func(p model.PinSetPayload) bool { return p.Bundle == b }) {
				s.t.Errorf("node %s does not hold bundle %s", name, b)
			}
		}
	}
}
