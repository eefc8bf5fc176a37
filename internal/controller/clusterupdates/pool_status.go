package clusterupdates

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/refit-dev/refit/internal/text"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/nodedistribution"
	"github.com/refit-dev/refit/internal/controller/ssa"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
)

// poolCounter is the input of the pools' status.
type poolCounter struct {
	Now   time.Time
	Pools []v1alpha1.UpdatePool
	Nodes []*corev1.Node
	// Reports of the agents, by node; nil without one.
	Reports []*v1alpha1.NodeUpdate
	// PoolsOf names the pools whose selector matches the i-th node.
	PoolsOf func(i int) []string
	// Target is the Kubernetes version that updated nodes run, empty if unknown.
	Target string
}

// writePoolStatuses counts the nodes of every pool and writes the statuses that changed.
func writePoolStatuses(ctx context.Context, c client.Client, l poolCounter) error {
	var errs []error
	for i := range l.Pools {
		p := &l.Pools[i]
		st := l.statusOf(p)
		if !equality.Semantic.DeepEqual(p.Status, st) {
			errs = append(errs, ssa.Status(ctx, c, ssa.Object{Kind: "UpdatePool", Name: p.Name, UID: string(p.UID)}, &st))
		}
	}
	return errors.Join(errs...)
}

func (l *poolCounter) statusOf(p *v1alpha1.UpdatePool) v1alpha1.UpdatePoolStatus {
	st := v1alpha1.UpdatePoolStatus{ObservedGeneration: p.Generation, Conditions: append([]metav1.Condition(nil), p.Status.Conditions...)}
	twice := l.count(p.Name, &st)
	cond := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAsExpected,
		Message: text.Count(int(st.Nodes), "node"), ObservedGeneration: p.Generation}
	if len(twice) > 0 {
		cond.Status, cond.Reason, cond.Message = metav1.ConditionFalse, v1alpha1.ReasonNodeInTwoPools, "also in another pool: "+poolNodeNames(twice)
	}
	if pace := rolloutfacts.Pool(p, 0); pace.Invalid != "" {
		cond.Status, cond.Reason, cond.Message = metav1.ConditionFalse, v1alpha1.ReasonWindowInvalid, "no node starts: "+pace.Invalid
	} else {
		st.Window = rollout.DescribeWindows(pace.Windows, l.Now)
	}
	meta.SetStatusCondition(&st.Conditions, cond)
	cond.Type = v1alpha1.ConditionStalled
	cond.Status = map[metav1.ConditionStatus]metav1.ConditionStatus{metav1.ConditionTrue: metav1.ConditionFalse, metav1.ConditionFalse: metav1.ConditionTrue}[cond.Status]
	meta.SetStatusCondition(&st.Conditions, cond)
	return st
}

// count counts a pool's nodes and names those that are also in another pool.
func (l *poolCounter) count(pool string, st *v1alpha1.UpdatePoolStatus) (twice []string) {
	for i, n := range l.Nodes {
		in := l.PoolsOf(i)
		if !slices.Contains(in, pool) {
			continue
		}
		st.Nodes++
		if len(in) > 1 {
			twice = append(twice, n.Name)
		}
		if rolloutfacts.Unavailable(n) {
			st.Unavailable++
		}
		if nodedistribution.StartupTaint(n) != nil {
			st.Joining++
		}
		switch {
		case rolloutfacts.MarkOf(n) != nil:
			st.Updating++
		case l.Target != "" && rolloutfacts.Kubelet(n, l.Reports[i]) == l.Target:
			st.Updated++
		}
	}
	return twice
}

// poolNodeNames names as many nodes as a condition has room for.
func poolNodeNames(all []string) string { return text.FirstOf(all, 10, ", ") }
