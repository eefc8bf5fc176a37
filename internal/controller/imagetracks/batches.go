package imagetracks

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/imagetracks/workloads"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/imagetag/track"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
)

// describeBatches fills in how many pods of a DaemonSet with OnDelete may be down at once: as
// many as nodes of their pool. Other workloads have a strategy or an order of their own.
func (r *Reconciler) describeBatches(ctx context.Context, l *turn) error {
	if !slices.ContainsFunc(l.ws, replacedByPool) {
		return nil
	}
	var pools v1alpha1.UpdatePoolList
	if err := r.Client.List(ctx, &pools); err != nil {
		return fmt.Errorf("list UpdatePools: %w", err)
	}
	if len(pools.Items) == 0 {
		return nil
	}
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	list := make([]*corev1.Node, len(nodes.Items))
	for i := range nodes.Items {
		list[i] = &nodes.Items[i]
	}
	for _, w := range l.ws {
		if replacedByPool(w) {
			w.Batch = batchesOf(w, pools.Items, list)
		}
	}
	return nil
}

func replacedByPool(w *workloads.Workload) bool {
	return w.Kind == track.DaemonSet && w.OnDelete && len(w.Old) > 0
}

// batchesOf are the batches of a workload's old pods. A node that is unavailable although its pod
// is ready takes one of its pool's budget: it is drained or updated. Control-plane nodes, and
// nodes of no pool or of two, go one after the other.
func batchesOf(w *workloads.Workload, pools []v1alpha1.UpdatePool, nodes []*corev1.Node) map[string]int {
	poolsOf := rolloutfacts.PoolMatcher(pools)
	budgets := poolBudgets(w, rolloutfacts.Pools(pools, nodes, poolsOf, ""))
	byNode := map[string]int{}
	for _, n := range nodes {
		if of := poolsOf(n); len(of) == 1 && !rolloutfacts.ControlPlane(n) {
			byNode[n.Name] = budgets[of[0]]
		}
	}
	out := map[string]int{}
	for i := range w.Pods {
		if p := &w.Pods[i]; slices.Contains(w.Old, p.Name) && byNode[p.Spec.NodeName] > 1 {
			out[p.Name] = byNode[p.Spec.NodeName]
		}
	}
	return out
}

// poolBudgets are what the pools leave to a workload, by their names.
func poolBudgets(w *workloads.Workload, pools map[string]rollout.Pool) map[string]int {
	ready := map[string]bool{}
	for i := range w.Pods {
		if p := &w.Pods[i]; p.DeletionTimestamp == nil && rolloutfacts.PodReady(p) {
			ready[p.Spec.NodeName] = true
		}
	}
	out := map[string]int{}
	for name, p := range pools {
		out[name] = p.Budget
		for _, node := range p.Unavailable {
			if ready[node] {
				out[name]--
			}
		}
	}
	return out
}
