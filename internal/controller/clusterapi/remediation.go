package clusterapi

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/clusterapi/workloadcluster"
)

const (
	// held is how long the health checker is held back after refit last looked at
	// a machine that moves; renewed when less than half of it is left.
	held = time.Hour
	// sweepEvery is how often machines that are listed are looked at, in case
	// Cluster API does not ask any more.
	sweepEvery = 30 * time.Second
)

// remediation holds the health checker back from a machine, or lets it go. The
// mark says that it is ours, and until when; one that a person made is left.
func (s *Server) remediation(ctx context.Context, m machine, hold bool) error {
	p := machine{m.DeepCopy()}
	a := p.GetAnnotations()
	if a == nil {
		a = map[string]string{}
	}
	if !s.mark(a, hold) {
		return nil
	}
	p.SetAnnotations(a)
	err := s.Client.Patch(ctx, p.Unstructured, client.MergeFrom(m.Unstructured), client.FieldOwner(v1alpha1.FieldOwnerController))
	return client.IgnoreNotFound(err)
}

// mark changes the annotations and reports whether it did.
func (s *Server) mark(a map[string]string, hold bool) bool {
	until, ours := a[v1alpha1.AnnotationRemediationHeld]
	_, skips := a[annotationSkipRemediation]
	switch {
	case skips && !ours, !hold && !ours:
		return false // a person's mark, or none
	case !hold:
		delete(a, annotationSkipRemediation)
		delete(a, v1alpha1.AnnotationRemediationHeld)
	case skips && s.left(until) > held/2:
		return false
	default:
		a[annotationSkipRemediation] = ""
		a[v1alpha1.AnnotationRemediationHeld] = s.Now().Add(held).UTC().Format(time.RFC3339)
	}
	return true
}

// left is how long a mark still holds; none for one that cannot be read.
func (s *Server) left(until string) time.Duration {
	t, err := time.Parse(time.RFC3339, until)
	if err != nil {
		return 0
	}
	return t.Sub(s.Now())
}

// sweeper looks after the machines that Cluster API does not ask about any more.
type sweeper struct{ *Server }

// NeedLeaderElection is true: one is enough.
func (sweeper) NeedLeaderElection() bool { return true }

// Start sweeps until the context ends.
func (w sweeper) Start(ctx context.Context) error {
	for {
		if err := w.Sweep(ctx); err != nil && ctx.Err() == nil {
			w.report(ctx, "look after the machines that are listed", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(sweepEvery):
		}
	}
}

// Sweep looks at every machine on a plan's list once: the mark for the health
// checker comes off when the update has ended or the mark has run out, and the
// machine comes off the list.
func (s *Server) Sweep(ctx context.Context) error {
	var plans v1alpha1.InPlacePlanList
	if err := s.Live.List(ctx, &plans); err != nil {
		return err
	}
	var errs []error
	for i := range plans.Items {
		p := poolOfPlan(&plans.Items[i])
		for _, x := range plans.Items[i].Status.Machines {
			errs = append(errs, s.sweep(ctx, &p, x))
		}
	}
	return errors.Join(errs...)
}

func poolOfPlan(plan *v1alpha1.InPlacePlan) pool {
	return pool{InPlacePool: plan.Spec.Pool, Namespace: plan.Namespace, Cluster: plan.Spec.Cluster}
}

func (s *Server) sweep(ctx context.Context, p *pool, x v1alpha1.InPlaceMachine) error {
	m, err := s.readMachine(ctx, p.Namespace, x.Name)
	switch {
	case apierrors.IsNotFound(err), err == nil && string(m.GetUID()) != x.UID:
		return errors.Join(s.forget(ctx, p, x.UID), s.recordMachine(ctx, p, x.Name, nil))
	case err != nil:
		return err
	case m.inUpdate() && m.GetDeletionTimestamp() == nil:
		until, ours := m.GetAnnotations()[v1alpha1.AnnotationRemediationHeld]
		if ours && s.left(until) <= 0 {
			return s.remediation(ctx, m, false)
		}
		return nil
	}
	if err := s.remediation(ctx, m, false); err != nil {
		return err
	}
	if m.GetDeletionTimestamp() != nil {
		if err := s.forget(ctx, p, x.UID); err != nil {
			return err
		}
	}
	return s.recordMachine(ctx, p, x.Name, nil)
}

// forget deletes the updates in a machine's cluster that were made for a machine
// that is gone. A cluster that is gone too, or has no kubeconfig, has none.
func (s *Server) forget(ctx context.Context, p *pool, uid string) error {
	if err := s.lookUpPool(ctx, p); err != nil {
		return err
	}
	secret, err := s.kubeconfig(ctx, p)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	c, err := s.site(secret)
	if err != nil {
		return nil //nolint:nilerr // without a kubeconfig there is nobody to ask; the Machine's own status says so
	}
	return workloadcluster.Forget(ctx, c, uid, true)
}
