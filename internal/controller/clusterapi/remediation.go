package clusterapi

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
)

const (
	// holdTime is how long Machine health checks skip a machine after refit last advanced
	// it; renewed when less than half of it is left.
	holdTime = time.Hour
	// sweepInterval is how often listed machines are checked, in case Cluster API calls
	// no more.
	sweepInterval = 30 * time.Second
)

// setRemediationHold makes Machine health checks skip a machine, or stops that. An annotation
// marks the hold as refit's and has its expiry; a person's own hold stays.
func (s *Server) setRemediationHold(ctx context.Context, m machine, hold bool) error {
	p := machine{m.DeepCopy()}
	a := p.GetAnnotations()
	if a == nil {
		a = map[string]string{}
	}
	if !s.setHoldAnnotations(a, hold) {
		return nil
	}
	p.SetAnnotations(a)
	err := s.Client.Patch(ctx, p.Unstructured, client.MergeFrom(m.Unstructured), client.FieldOwner(v1alpha1.FieldOwnerController))
	return client.IgnoreNotFound(err)
}

// setHoldAnnotations changes the annotations and reports whether it did.
func (s *Server) setHoldAnnotations(a map[string]string, hold bool) bool {
	until, ours := a[v1alpha1.AnnotationRemediationHeld]
	_, skips := a[annotationSkipRemediation]
	switch {
	case skips && !ours, !hold && !ours:
		return false // a person's hold, or none
	case !hold:
		delete(a, annotationSkipRemediation)
		delete(a, v1alpha1.AnnotationRemediationHeld)
	case skips && s.holdLeft(until) > holdTime/2:
		return false
	default:
		a[annotationSkipRemediation] = ""
		a[v1alpha1.AnnotationRemediationHeld] = s.Now().Add(holdTime).UTC().Format(time.RFC3339)
	}
	return true
}

// holdLeft returns how long a hold still lasts, 0 if its expiry is invalid.
func (s *Server) holdLeft(until string) time.Duration {
	t, err := time.Parse(time.RFC3339, until)
	if err != nil {
		return 0
	}
	return t.Sub(s.Now())
}

// sweeper releases machines that Cluster API calls no hook for any more.
type sweeper struct{ *Server }

// NeedLeaderElection is true: one replica is enough.
func (sweeper) NeedLeaderElection() bool { return true }

// Start sweeps until the context ends.
func (w sweeper) Start(ctx context.Context) error {
	for {
		if err := w.Sweep(ctx); err != nil && ctx.Err() == nil {
			w.report(ctx, "check the machines in the InPlacePlans", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(sweepInterval):
		}
	}
}

// Sweep checks every listed machine once. It removes the hold when the update has ended or the
// hold has expired, and removes ended machines from the list.
func (s *Server) Sweep(ctx context.Context) error {
	var plans v1alpha1.InPlacePlanList
	if err := s.Live.List(ctx, &plans); err != nil {
		return err
	}
	var errs []error
	for i := range plans.Items {
		p := poolOfPlan(&plans.Items[i])
		for _, x := range plans.Items[i].Status.Machines {
			errs = append(errs, s.sweepMachine(ctx, &p, x))
		}
	}
	return errors.Join(errs...)
}

func poolOfPlan(plan *v1alpha1.InPlacePlan) pool {
	return pool{InPlacePool: plan.Spec.Pool, Namespace: plan.Namespace, Cluster: plan.Spec.Cluster}
}

func (s *Server) sweepMachine(ctx context.Context, p *pool, x v1alpha1.InPlaceMachine) error {
	m, err := s.readMachine(ctx, p.Namespace, x.Name)
	switch {
	case apierrors.IsNotFound(err), err == nil && string(m.GetUID()) != x.UID:
		return errors.Join(s.deleteUpdates(ctx, p, x.UID), s.recordMachine(ctx, p, x.Name, nil))
	case err != nil:
		return err
	case m.inUpdate() && m.GetDeletionTimestamp() == nil:
		until, ours := m.GetAnnotations()[v1alpha1.AnnotationRemediationHeld]
		if ours && s.holdLeft(until) <= 0 {
			return s.setRemediationHold(ctx, m, false)
		}
		return nil
	}
	if err := s.setRemediationHold(ctx, m, false); err != nil {
		return err
	}
	if m.GetDeletionTimestamp() != nil {
		if err := s.deleteUpdates(ctx, p, x.UID); err != nil {
			return err
		}
	}
	return s.recordMachine(ctx, p, x.Name, nil)
}

// deleteUpdates deletes the updates in a workload cluster that were created for a deleted
// machine. A cluster that is gone too, or has no kubeconfig, has none.
func (s *Server) deleteUpdates(ctx context.Context, p *pool, uid string) error {
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
	c, err := s.workloadClient(secret)
	if err != nil {
		return nil //nolint:nilerr // without a kubeconfig there is no cluster to call; the Machine's status says so
	}
	return deleteWorkloadUpdates(ctx, c, uid, true)
}
