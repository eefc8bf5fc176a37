package nodeconfig

import (
	"context"
	"errors"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/fleet"
)

// FieldOwner is the server-side apply owner of NodeUpdate.spec.config.
const FieldOwner = v1alpha1.FieldOwnerController + "-config"

const (
	// settle is how long events are collected before everything is looked at.
	settle = 300 * time.Millisecond
	// recheck is how often it is looked at without an event: ConfigMaps are not
	// watched.
	recheck = 30 * time.Second
)

// Reconciler looks at all nodes at once: most of them share one configuration.
type Reconciler struct {
	Client client.Client
	// Live reads ConfigMaps past the cache.
	Live client.Reader
	// Now is the clock.
	Now func() time.Time
}

// Setup registers the reconciler with a manager.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	all := fleet.Whole("nodeconfig", settle)
	return ctrl.NewControllerManagedBy(mgr).Named("nodeconfig").WithOptions(controller.Options{RateLimiter: fleet.Backoff()}).
		Watches(&v1alpha1.NodeConfig{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.UpdatePool{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, all, labelChanges()).
		Watches(&v1alpha1.NodeUpdate{}, all, fieldChanges()).
		Complete(r)
}

func labelChanges() builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
	}})
}

// fieldChanges: only what is wanted and what is seen of it matters here.
func fieldChanges() builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		a, okA := e.ObjectOld.(*v1alpha1.NodeUpdate)
		b, okB := e.ObjectNew.(*v1alpha1.NodeUpdate)
		return !okA || !okB || a.Spec.Config != b.Spec.Config || !maps.Equal(fieldsOf(a), fieldsOf(b))
	}})
}

func fieldsOf(nu *v1alpha1.NodeUpdate) map[string]string {
	if nu == nil || nu.Status.Observed == nil {
		return nil
	}
	return nu.Status.Observed.Fields
}

// Reconcile looks at everything and writes what differs.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	w, err := r.gather(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	v := w.decide()
	err = errors.Join(r.writeNodes(ctx, w, v), r.writeStatus(ctx, w, v), r.sweep(ctx, w, v))
	if err != nil || len(w.configs) == 0 {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: recheck}, nil
}
