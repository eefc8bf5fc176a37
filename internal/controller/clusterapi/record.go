package clusterapi

import (
	"context"
	"slices"

	"github.com/refit-dev/refit/internal/text"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// Limits of the status.
const (
	maxUncovered = 20
	maxClaims    = 32
	maxPaths     = 256
	maxWhy       = 512
	maxMessage   = 1024
)

// record writes a decision before it is answered. It writes nothing if the status already has
// it, as for all but the first of equal requests.
func (s *Server) record(ctx context.Context, p *pool, d decision) error {
	reason, message := d.coveredCondition(p)
	changed := false
	plan, err := s.changePlan(ctx, p, func(st *v1alpha1.InPlacePlanStatus, generation int64) {
		st.Fallback, st.From, st.To = d.fallback, d.from, d.to
		st.Claims = keepActiveClaims(st, limitClaims(d.claims))
		st.Uncovered, st.UncoveredCount = nil, int32(len(d.uncovered))
		for _, u := range d.uncovered[:min(len(d.uncovered), maxUncovered)] {
			u.Why = text.Truncate(u.Why, maxWhy)
			st.Uncovered = append(st.Uncovered, u)
		}
		covered := metav1.ConditionTrue
		if len(d.uncovered)+len(d.silent)+len(d.refused) > 0 {
			covered = metav1.ConditionFalse
		}
		changed = meta.SetStatusCondition(&st.Conditions, metav1.Condition{Type: v1alpha1.ConditionCovered, Status: covered, Reason: reason,
			Message: text.Truncate(message, maxMessage), ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(s.Now())})
	})
	if err == nil && changed {
		kind := corev1.EventTypeNormal
		if len(d.uncovered)+len(d.silent)+len(d.refused) > 0 {
			kind = corev1.EventTypeWarning
		}
		s.Events.Eventf(plan, p.reference(), kind, reason, "Plan", "%s", text.Truncate(message, maxMessage))
		if r := p.reference(); r.UID != "" {
			s.Events.Eventf(r, plan, kind, reason, "Plan", "%s", text.Truncate(message, maxMessage)) // for `kubectl describe` of the pool
		}
	}
	return err
}

// keepActiveClaims keeps the updaters of the previous change in the list until the machines
// that still move are done.
func keepActiveClaims(st *v1alpha1.InPlacePlanStatus, now []v1alpha1.InPlaceClaim) []v1alpha1.InPlaceClaim {
	if len(st.Machines) == 0 {
		return now
	}
	for _, old := range st.Claims {
		if len(now) < maxClaims && !slices.ContainsFunc(now, func(c v1alpha1.InPlaceClaim) bool { return c.Updater == old.Updater }) {
			now = append(now, old)
		}
	}
	return now
}

func limitClaims(claims []v1alpha1.InPlaceClaim) []v1alpha1.InPlaceClaim {
	claims = slices.Clone(claims[:min(len(claims), maxClaims)])
	for i := range claims {
		claims[i].Paths = claims[i].Paths[:min(len(claims[i].Paths), maxPaths)]
	}
	return claims
}

// changePlan creates the pool's plan if it does not exist, and changes its status.
func (s *Server) changePlan(ctx context.Context, p *pool, change func(*v1alpha1.InPlacePlanStatus, int64)) (*v1alpha1.InPlacePlan, error) {
	plan := &v1alpha1.InPlacePlan{}
	err := retry.OnError(retry.DefaultBackoff, func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }, func() error {
		*plan = v1alpha1.InPlacePlan{}
		err := s.Live.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: p.planName()}, plan)
		if apierrors.IsNotFound(err) {
			p.initPlan(plan)
			err = s.Client.Create(ctx, plan, client.FieldOwner(v1alpha1.FieldOwnerController))
		}
		if err != nil {
			return err
		}
		was := plan.Status.DeepCopy()
		change(&plan.Status, plan.Generation)
		if equality.Semantic.DeepEqual(was, &plan.Status) {
			return nil
		}
		return s.Client.Status().Update(ctx, plan, client.FieldOwner(v1alpha1.FieldOwnerController))
	})
	return plan, err
}

// initPlan fills a new plan; its pool owns it.
func (p *pool) initPlan(plan *v1alpha1.InPlacePlan) {
	plan.ObjectMeta = metav1.ObjectMeta{Namespace: p.Namespace, Name: p.planName(), Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.FieldOwnerController}}
	plan.Spec = v1alpha1.InPlacePlanSpec{Pool: p.InPlacePool, Cluster: p.Cluster}
	if p.UID != "" {
		g := gvk(p.Kind)
		plan.OwnerReferences = []metav1.OwnerReference{{APIVersion: g.GroupVersion().String(), Kind: g.Kind, Name: p.Name, UID: types.UID(p.UID)}}
	}
}

// reference returns the reference to the pool for events.
func (p *pool) reference() *corev1.ObjectReference {
	g := gvk(p.Kind)
	return &corev1.ObjectReference{APIVersion: g.GroupVersion().String(), Kind: g.Kind, Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID)}
}

// recordMachine records the progress of one machine; nil removes it from the list.
func (s *Server) recordMachine(ctx context.Context, p *pool, name string, m *v1alpha1.InPlaceMachine) error {
	_, err := s.changePlan(ctx, p, func(st *v1alpha1.InPlacePlanStatus, _ int64) {
		i := slices.IndexFunc(st.Machines, func(x v1alpha1.InPlaceMachine) bool { return x.Name == name })
		switch {
		case m == nil && i >= 0:
			st.Machines = slices.Delete(st.Machines, i, i+1)
		case m == nil:
		case i < 0:
			st.Machines = append(st.Machines, *m)
			slices.SortFunc(st.Machines, byName)
		default:
			old := st.Machines[i]
			if old.UID == m.UID && old.Reason == m.Reason && old.Failed == m.Failed && old.Updater == m.Updater {
				m.Since = old.Since
			}
			st.Machines[i] = *m
		}
	})
	return err
}

func byName(a, b v1alpha1.InPlaceMachine) int {
	if a.Name < b.Name {
		return -1
	}
	return 1
}
