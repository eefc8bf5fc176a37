package clusterfacts

import (
	"context"
	"fmt"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/drain"
)

// pageSize is how many pods one list request returns.
const pageSize = 500

// defaultGrace is the grace period of a pod without one.
const defaultGrace = 30 * time.Second

// Rules are an update's drain options about pods.
type Rules struct {
	skip, unowned labels.Selector
	keepData      bool
	nodes         []*corev1.Node
}

// RulesOf converts the drain options of an update. An invalid selector matches nothing; the API
// server has refused it already.
func RulesOf(o *v1alpha1.DrainOptions) Rules {
	r := Rules{skip: labels.Nothing(), unowned: labels.Nothing()}
	if o == nil {
		return r
	}
	r.keepData = o.KeepEmptyDirData
	if s, err := metav1.LabelSelectorAsSelector(o.SkipSelector); err == nil && o.SkipSelector != nil {
		r.skip = s
	}
	if s, err := metav1.LabelSelectorAsSelector(o.EvictUnownedSelector); err == nil && o.EvictUnownedSelector != nil {
		r.unowned = s
	}
	return r
}

// Options are those for drain.DecideWith.
func (r Rules) Options() drain.Options { return drain.Options{KeepEmptyDirData: r.keepData} }

// PodsOn lists the pods of a node, without budgets.
func PodsOn(ctx context.Context, c client.Reader, node string, r Rules) ([]drain.Pod, error) {
	var l corev1.PodList
	if err := c.List(ctx, &l, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", node, err)
	}
	out := make([]drain.Pod, 0, len(l.Items))
	for i := range l.Items {
		out = append(out, r.drainPod(&l.Items[i], nil))
	}
	return out, nil
}

// PodsOnWithBudgets lists the pods of a node with the budgets that protect them.
func PodsOnWithBudgets(ctx context.Context, c client.Reader, node string, r Rules) ([]drain.Pod, error) {
	bs, err := ListBudgets(ctx, c)
	if err != nil {
		return nil, err
	}
	var l corev1.PodList
	if err := c.List(ctx, &l, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", node, err)
	}
	out := make([]drain.Pod, 0, len(l.Items))
	for i := range l.Items {
		out = append(out, r.drainPod(&l.Items[i], bs.Protecting(&l.Items[i])))
	}
	return out, nil
}

// eachPod lists all pods page by page.
func eachPod(ctx context.Context, c client.Reader, see func(*corev1.Pod)) error {
	next := ""
	for {
		var l corev1.PodList
		if err := c.List(ctx, &l, client.Limit(pageSize), client.Continue(next)); err != nil {
			return fmt.Errorf("list the pods: %w", err)
		}
		for i := range l.Items {
			see(&l.Items[i])
		}
		if next = l.Continue; next == "" {
			return nil
		}
	}
}

func (r Rules) drainPod(p *corev1.Pod, budgets []drain.Budget) drain.Pod {
	d := drain.Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Node: p.Spec.NodeName, Budgets: budgets,
		Finished:    p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		Ready:       podReady(p),
		EvictAnyway: p.Annotations[v1alpha1.AnnotationEvict] == "true" || r.unowned != nil && r.unowned.Matches(labels.Set(p.Labels)),
		StaysByRun:  r.skip != nil && r.skip.Matches(labels.Set(p.Labels)),
	}
	if p.DeletionTimestamp != nil {
		d.Deleting, d.Finalizers, d.Grace = true, p.Finalizers, defaultGrace
		if g := p.DeletionGracePeriodSeconds; g != nil {
			d.Grace = time.Duration(*g) * time.Second
		}
		d.Since = p.DeletionTimestamp.Add(-d.Grace) // the timestamp is the end of the grace period
	}
	_, d.Mirror = p.Annotations[corev1.MirrorPodAnnotationKey]
	_, d.Refit = p.Labels[v1alpha1.LabelComponent]
	if o := metav1.GetControllerOf(p); o != nil {
		d.OwnerKind, d.OwnerName = o.Kind, o.Name
	}
	for _, v := range p.Spec.Volumes {
		d.EmptyDir = d.EmptyDir || v.EmptyDir != nil
	}
	return d
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Budgets are disruption budgets by namespace.
type Budgets map[string][]budget

type budget struct {
	selector labels.Selector
	value    drain.Budget
}

// ListBudgets lists disruption budgets.
func ListBudgets(ctx context.Context, c client.Reader, opts ...client.ListOption) (Budgets, error) {
	var l policyv1.PodDisruptionBudgetList
	if err := c.List(ctx, &l, opts...); err != nil {
		return nil, fmt.Errorf("list disruption budgets: %w", err)
	}
	out := Budgets{}
	for i := range l.Items {
		b := &l.Items[i]
		s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			continue // it protects nothing; the API server treats it the same way
		}
		out[b.Namespace] = append(out[b.Namespace], budget{s, budgetValue(b)})
	}
	for _, bs := range out {
		sort.Slice(bs, func(i, j int) bool { return bs[i].value.Name < bs[j].value.Name })
	}
	return out, nil
}

// Protecting returns the budgets that protect a pod.
func (bs Budgets) Protecting(p *corev1.Pod) []drain.Budget {
	var out []drain.Budget
	for _, b := range bs[p.Namespace] {
		if b.selector.Matches(labels.Set(p.Labels)) {
			out = append(out, b.value)
		}
	}
	return out
}

func budgetValue(b *policyv1.PodDisruptionBudget) drain.Budget {
	out := drain.Budget{Namespace: b.Namespace, Name: b.Name, Allowed: b.Status.DisruptionsAllowed, Healthy: b.Status.CurrentHealthy,
		Wanted: b.Status.DesiredHealthy, Expected: b.Status.ExpectedPods, Stale: b.Status.ObservedGeneration < b.Generation}
	switch {
	case b.Spec.MinAvailable != nil:
		out.Rule = "minAvailable " + b.Spec.MinAvailable.String()
	case b.Spec.MaxUnavailable != nil:
		out.Rule = "maxUnavailable " + b.Spec.MaxUnavailable.String()
	}
	if p := b.Spec.UnhealthyPodEvictionPolicy; p != nil {
		out.UnhealthyMayGo = *p == policyv1.AlwaysAllow
	}
	for _, c := range b.Status.Conditions {
		if c.Type == policyv1.DisruptionAllowedCondition && c.Reason == policyv1.SyncFailedReason {
			out.Broken = c.Message
		}
	}
	return out
}
