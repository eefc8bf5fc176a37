// Package evict empties nodes through the Eviction API, as package drain decides.
//
// Promise: it evicts and never deletes: a disruption budget is never gone
// around. It does not wait; whoever calls asks again. A refusal names pod,
// owner, budget and how many disruptions that allows.
//
// Input: a node, a drain.Decision. Output: verdicts. Caller: controller/updates.
package evict

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/drain"
	"github.com/refit-dev/refit/internal/model"
)

// Evictor speaks with the API server; Live reads past any cache.
type Evictor struct {
	Client client.Client
	Live   client.Reader
}

// Budgets lists disruption budgets.
func (e *Evictor) Budgets(ctx context.Context, opts ...client.ListOption) ([]policyv1.PodDisruptionBudget, error) {
	var l policyv1.PodDisruptionBudgetList
	if err := e.Live.List(ctx, &l, opts...); err != nil {
		return nil, fmt.Errorf("list disruption budgets: %w", err)
	}
	return l.Items, nil
}

// PodsOn lists the pods of a node, from the API server: pods are not cached.
func (e *Evictor) PodsOn(ctx context.Context, node string) ([]drain.Pod, error) {
	var l corev1.PodList
	if err := e.Live.List(ctx, &l, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", node, err)
	}
	out := make([]drain.Pod, 0, len(l.Items))
	for i := range l.Items {
		out = append(out, podFacts(&l.Items[i]))
	}
	return out, nil
}

func podFacts(p *corev1.Pod) drain.Pod {
	d := drain.Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID),
		Finished: p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		Deleting: p.DeletionTimestamp != nil, EvictAnyway: p.Annotations[v1alpha1.AnnotationEvict] == "true"}
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

// Evict asks the Eviction API for every pod of a node that must go, once; what
// it refuses is explained, and asked for again at the next look.
func (e *Evictor) Evict(ctx context.Context, node string, d drain.Decision) ([]model.Verdict, error) {
	var verdicts []model.Verdict
	var errs []error
	for _, p := range d.Evict {
		uid := types.UID(p.UID)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
		ev := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}}
		err := e.Client.SubResource("eviction").Create(ctx, pod, ev)
		switch {
		case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err): // gone, or another pod of that name
		case apierrors.IsTooManyRequests(err):
			v, err := e.explain(ctx, node, p)
			verdicts = append(verdicts, v)
			errs = append(errs, err)
		case apierrors.IsInternalError(err) && strings.Contains(err.Error(), "PodDisruptionBudget"):
			v, err := e.explain(ctx, node, p) // two budgets for one pod
			verdicts = append(verdicts, v)
			errs = append(errs, err)
		default:
			verdicts = append(verdicts, model.Verdict{Reason: v1alpha1.ReasonDrainBlocked, Object: p.Object(), Waiting: true,
				Message: fmt.Sprintf("node %s: the eviction of pod %s is refused: %v", node, p.Key(), err)})
		}
	}
	return verdicts, errors.Join(errs...)
}

// explain names the budgets that protect a pod.
func (e *Evictor) explain(ctx context.Context, node string, p drain.Pod) (model.Verdict, error) {
	var pod corev1.Pod
	if err := e.Live.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: p.Name}, &pod); err != nil {
		return drain.Blocked(node, p, nil), client.IgnoreNotFound(err)
	}
	pdbs, err := e.Budgets(ctx, client.InNamespace(p.Namespace))
	if err != nil {
		return drain.Blocked(node, p, nil), err
	}
	var protecting []drain.Budget
	for _, b := range pdbs {
		s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && s.Matches(labels.Set(pod.Labels)) {
			protecting = append(protecting, drain.Budget{Namespace: b.Namespace, Name: b.Name, Allowed: b.Status.DisruptionsAllowed,
				Healthy: b.Status.CurrentHealthy, Wanted: b.Status.DesiredHealthy, Expected: b.Status.ExpectedPods})
		}
	}
	return drain.Blocked(node, p, protecting), nil
}
