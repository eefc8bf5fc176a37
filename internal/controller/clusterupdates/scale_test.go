package clusterupdates

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// largeSnapshot is a large update in its middle: half of the nodes are done, as
// many as the budget allows run their steps, the rest waits.
func largeSnapshot(nodes, budget int) (*rolloutSnapshot, *v1alpha1.ClusterUpdate, model.Plan) {
	now := time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC)
	b := intstr.FromInt32(int32(budget))
	u := &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "u", UID: types.UID("0f0c2a3e-5a5b-4a66-9d0e-1f2d3c4b5a69")}, Spec: v1alpha1.ClusterUpdateSpec{Bundle: "sha256:1"},
		Status: v1alpha1.ClusterUpdateStatus{PlanDigest: "sha256:2", Phase: v1alpha1.PhaseUpdating, StartedAt: metaNow(now)}}
	w := &rolloutSnapshot{now: now,
		pools: []v1alpha1.UpdatePool{{ObjectMeta: metav1.ObjectMeta{Name: "workers"}, Spec: v1alpha1.UpdatePoolSpec{MaxUnavailable: &b, NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"w": "y"}}}}}}
	steps := []model.Step{{ID: "cordon"}, {ID: "drain"}, {ID: "kubeadm", By: model.ByAgent}, {ID: "kubelet", By: model.ByAgent,
		Changes: []model.Change{{Path: "kubernetes/kubelet", From: "v1.35.4", To: "v1.36.3"}}}, {ID: "settle", By: model.ByAgent}, {ID: "uncordon"}}
	plan := model.Plan{Version: model.PlanVersion}
	for i := range nodes {
		name := fmt.Sprintf("node-%05d", i)
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"w": "y", "kubernetes.io/hostname": name}, Annotations: map[string]string{"a": "b"}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeDiskPressure}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
				NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.35.4", OperatingSystem: "linux", Architecture: "amd64"}}}
		nu := &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Status: v1alpha1.NodeUpdateStatus{Phase: "Ready",
			Agent: &v1alpha1.AgentInfo{Heartbeat: metaNow(now)}, Observed: &v1alpha1.Observed{KubeletVersion: "v1.35.4", Fields: map[string]string{"a": "b"}}}}
		if i < nodes/2+budget {
			nu.Spec.Run = &v1alpha1.NodeRun{UID: string(u.UID), PlanDigest: u.Status.PlanDigest, Attempt: 1, Try: 1}
			nu.Status.Run = &v1alpha1.NodeRunStatus{UID: string(u.UID), PlanDigest: u.Status.PlanDigest, Attempt: 1, State: v1alpha1.RunRunning, Step: "kubeadm"}
			n.Annotations[v1alpha1.AnnotationUpdating] = rolloutfacts.Mark{UID: string(u.UID), Attempt: rollout.Attempt{Number: 1, Try: 1}, At: now}.String()
			n.Spec.Unschedulable = true
		}
		if i < nodes/2 {
			n.Status.NodeInfo.KubeletVersion, nu.Status.Observed.KubeletVersion = "v1.36.3", "v1.36.3"
			nu.Status.Run.State = v1alpha1.RunSucceeded
			delete(n.Annotations, v1alpha1.AnnotationUpdating)
			n.Annotations[v1alpha1.AnnotationUpdated] = rolloutfacts.Record{UID: string(u.UID), Start: now.Add(-time.Minute), End: now}.String()
			n.Spec.Unschedulable = false
		}
		w.nodes = append(w.nodes, n)
		w.reports = append(w.reports, nu)
		plan.Nodes = append(plan.Nodes, model.NodePlan{Node: name, Pool: "workers", Role: model.RoleWorker, From: "v1.35.4", To: "v1.36.3", Steps: steps})
	}
	w.poolsOf = rolloutfacts.PoolMatcher(w.pools)
	return w, u, plan
}

// decideLarge is a reconcile of a running update without its writes.
func decideLarge(t testing.TB, r *Reconciler, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, plan model.Plan) rollout.Decision {
	in, drains, err := r.rolloutInput(context.Background(), w, &status{u: u}, plan)
	if err != nil || len(drains) > 0 {
		t.Fatalf("%d drains, %v", len(drains), err)
	}
	d := rollout.Next(in)
	st := r.newStatus(w, u)
	st.verdicts = d.Blockers
	st.progress(d)
	st.estimate(in, d)
	st.enterPhaseOf(d)
	st.out.Blockers = blockers(st.verdicts, u.Status.Blockers, w.now)
	st.conditions()
	return d
}

// BenchmarkDecide30000 reconciles a running update of 30,000 nodes, of which a few have
// changed since the last reconcile.
func BenchmarkDecide30000(b *testing.B) {
	r := &Reconciler{}
	w, u, plan := largeSnapshot(30000, 1500)
	i := 0
	for b.Loop() {
		for range 20 {
			i = (i + 7919) % len(w.nodes)
			w.nodes[i] = w.nodes[i].DeepCopy()
		}
		w.now = w.now.Add(time.Millisecond)
		if d := decideLarge(b, r, w, u, plan); d.Done != 15000 || len(d.Current) != 1500 {
			b.Fatalf("%d done, %d current", d.Done, len(d.Current))
		}
	}
}

// What is remembered of a node is forgotten when the node changes: a decision
// from memory is the decision from scratch.
func TestDecisionFromMemoryIsTheDecision(t *testing.T) {
	t.Parallel()
	r := &Reconciler{}
	w, u, plan := largeSnapshot(300, 20)
	first := decideLarge(t, r, w, u, plan)
	if len(first.Actions) != 0 || first.Done != 150 {
		t.Fatalf("%d actions, %d done", len(first.Actions), first.Done)
	}
	n, nu := w.nodes[150].DeepCopy(), w.reports[150].DeepCopy() // it has run its steps
	n.Status.NodeInfo.KubeletVersion, nu.Status.Observed.KubeletVersion, nu.Status.Run.State = "v1.36.3", "v1.36.3", v1alpha1.RunSucceeded
	w.nodes[150], w.reports[150] = n, nu
	again := decideLarge(t, r, w, u, plan)
	if len(again.Actions) != 1 || again.Actions[0].Verb != rollout.Uncordon || again.Actions[0].Node != "node-00150" {
		t.Errorf("a node that is done is not seen: %+v", again.Actions)
	}
	fresh := &Reconciler{}
	w.poolsOf = func(n *corev1.Node) []string { return rolloutfacts.PoolMatcher(w.pools)(n) }
	if d := decideLarge(t, fresh, w, u, plan); d.Done != again.Done || len(d.Current) != len(again.Current) || len(d.Blockers) != len(again.Blockers) {
		t.Errorf("from scratch %d done, %d current, %d verdicts; from memory %d, %d, %d", d.Done, len(d.Current), len(d.Blockers), again.Done, len(again.Current), len(again.Blockers))
	}
}

// A refreshed pool index equals one that counts all nodes again.
func TestPoolIndexCountsAsPoolsDoes(t *testing.T) {
	t.Parallel()
	r := &Reconciler{}
	w, _, _ := largeSnapshot(40, 5)
	for round := range 4 {
		n := w.nodes[round*7].DeepCopy()
		n.Spec.Unschedulable = !n.Spec.Unschedulable
		w.nodes[round*7] = n
		switch round {
		case 2:
			w.pools = nil
		case 3:
			w.nodes[3] = w.nodes[3].DeepCopy()
			w.nodes[3].Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
			w.nodes[3].Status.Conditions = nil
		}
		r.poolIndex.refresh(w)
		if d := cmp.Diff(rolloutfacts.Pools(w.pools, w.nodes, w.poolsOf, updateplan.DefaultPool), r.poolIndex.pools(w)); d != "" {
			t.Errorf("round %d: %s", round, d)
		}
		if d := cmp.Diff(rolloutfacts.Unhealthy(w.nodes), rolloutfacts.Unhealthy(r.poolIndex.controlPlanes())); d != "" {
			t.Errorf("round %d: %s", round, d)
		}
	}
}
