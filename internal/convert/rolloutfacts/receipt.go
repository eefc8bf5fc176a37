package rolloutfacts

import (
	"cmp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/model"
)

// ChooseReceiptUpdate returns the update that a receipt is about by default: the newest that is
// done or halted, else the current one.
func ChooseReceiptUpdate(us []v1alpha1.ClusterUpdate) *v1alpha1.ClusterUpdate {
	var best *v1alpha1.ClusterUpdate
	for i := range us {
		u := &us[i]
		if u.Status.Phase != v1alpha1.PhaseDone && u.Status.Phase != v1alpha1.PhaseHalted {
			continue
		}
		if best == nil || lastMove(u).After(lastMove(best)) {
			best = u
		}
	}
	if best == nil {
		return ChooseUpdate(us)
	}
	return best
}

// lastMove is when an update finished, else when it started or was created.
func lastMove(u *v1alpha1.ClusterUpdate) time.Time {
	switch {
	case u.Status.FinishedAt != nil:
		return u.Status.FinishedAt.Time
	case u.Status.StartedAt != nil:
		return u.Status.StartedAt.Time
	}
	return u.CreationTimestamp.Time
}

// ReceiptFacts converts the objects of an update. plan is nil if the update has none.
func ReceiptFacts(u *v1alpha1.ClusterUpdate, plan *model.Plan, nodes []corev1.Node, nus []v1alpha1.NodeUpdate, bundles []v1alpha1.Bundle) explain.ReceiptFacts {
	f := explain.ReceiptFacts{Update: *statusUpdate(u), UpdateUID: string(u.UID), Bundle: explain.ReceiptBundle{Digest: u.Spec.Bundle, Version: u.Status.Version}}
	for i := range bundles {
		if b := statusBundle(&bundles[i]); b.Digest == u.Spec.Bundle && b.Digest != "" {
			f.Bundle.Name, f.To = bundles[i].Status.Name, bundles[i].Status.KubernetesVersion
		}
	}
	if plan != nil {
		addPlan(&f, plan)
	}
	reports := map[string]*v1alpha1.NodeUpdate{}
	for i := range nus {
		reports[nus[i].Name] = &nus[i]
	}
	for i := range nodes {
		f.Kubelets = append(f.Kubelets, Kubelet(&nodes[i], reports[nodes[i].Name]))
	}
	f.Failed = failedNodes(u, nus)
	return f
}

// addPlan adds where a plan leads to in its last hop, and from where each node starts.
func addPlan(f *explain.ReceiptFacts, plan *model.Plan) {
	seen := map[string]bool{}
	for _, hop := range plan.Hops() {
		f.Bundle.Name, f.Bundle.Version, f.To = hop.Target.Name, hop.Target.Version, hop.Target.Kubernetes
		for i := range hop.Nodes {
			if n := &hop.Nodes[i]; !seen[n.Node] {
				seen[n.Node] = true
				f.From = append(f.From, n.From)
			}
		}
	}
}

// failureReasons are the words of nodes that failed without a failed step of their own.
var failureReasons = map[string]bool{v1alpha1.ReasonDrainBlocked: true, v1alpha1.ReasonVersionReverted: true, v1alpha1.ReasonUndone: true,
	v1alpha1.ReasonUndoFailed: true, v1alpha1.ReasonStepFailed: true}

// failedNodes returns the nodes that failed, as their agents report them and as the update's
// blockers name them. The status has the number of them; nodes that are tried again are not in it.
func failedNodes(u *v1alpha1.ClusterUpdate, nus []v1alpha1.NodeUpdate) []explain.FailedNode {
	if u.Status.NodesFailed == 0 || u.Status.Phase == v1alpha1.PhaseDone {
		return nil
	}
	reasons := nodeReasons(u.Status.Blockers)
	var out []explain.FailedNode
	for i := range nus {
		if n, ok := failedNode(u, &nus[i], reasons[nus[i].Name]); ok {
			out = append(out, n)
		}
	}
	return out[:min(len(out), int(u.Status.NodesFailed))]
}

// nodeReasons returns the first reason of each node among the blockers, which is the most important.
func nodeReasons(all []v1alpha1.Blocker) map[string]string {
	out := map[string]string{}
	for _, b := range all {
		node, ok := strings.CutPrefix(b.Object, "Node/")
		if _, has := out[node]; ok && !has {
			out[node] = b.Reason
		}
	}
	return out
}

// failedNode reports whether a node has failed in an update. blocker is its reason word in the
// status of the update, if it is there.
func failedNode(u *v1alpha1.ClusterUpdate, nu *v1alpha1.NodeUpdate, blocker string) (explain.FailedNode, bool) {
	n := explain.FailedNode{Node: nu.Name, Reason: blocker}
	run := Run(nu, u.RunUID(), u.Status.PlanDigest)
	switch {
	case blocker == v1alpha1.ReasonRetrying:
		return n, false
	case run == nil || run.State != string(v1alpha1.RunFailed) && run.State != string(v1alpha1.RunUndone):
		return n, failureReasons[blocker]
	}
	n.Step, n.Reason = run.Step, cmp.Or(blocker, run.Reason, v1alpha1.ReasonStepFailed)
	return n, true
}
