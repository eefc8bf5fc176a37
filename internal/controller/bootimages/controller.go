package bootimages

import (
	"cmp"
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/queue"

	"github.com/refit-dev/refit/internal/controller/bootimages/machineobjects"
	"github.com/refit-dev/refit/internal/controller/bootstreams"
)

// FieldOwner is the field manager for machine managers, templates and the specs of
// MachineSources.
const FieldOwner = "refit-boot-images"

const (
	// debounce is how long events are collected before a reconcile.
	debounce = 500 * time.Millisecond
	// recheck is how often machine managers are listed. refit does not watch them,
	// because their kinds are data and not known at compile time.
	recheck = 30 * time.Second
	// retryInterval is when a write that lost against another client is retried.
	retryInterval = 2 * time.Second
)

// Reconciler reconciles all machine managers together.
type Reconciler struct {
	// Client reads refit's kinds and Nodes from a cache, and writes.
	Client client.Client
	// Objects reads and writes machine kinds without a cache.
	Objects client.Client
	// Streams reads the streams.
	Streams *bootstreams.Loader
	Metrics *Metrics
	// Events on machines; nil for none.
	Events events.EventRecorder
	// Now is the clock.
	Now func() time.Time
}

// Setup registers the reconciler with a manager.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	all := queue.Debounce("bootimages", debounce)
	changed := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	return ctrl.NewControllerManagedBy(mgr).Named("bootimages").WithOptions(controller.Options{RateLimiter: queue.Backoff()}).
		Watches(&v1alpha1.BootImagePolicy{}, all, changed).
		Watches(&v1alpha1.BootImageStream{}, all, changed).
		Watches(&v1alpha1.MachineSource{}, all, changed).
		Watches(&corev1.Node{}, all, builder.WithPredicates(nodeJoined)).
		Complete(r)
}

// nodeJoined passes nodes that join or change their version: they are compared with what their
// source declares, and may make a stream usable.
var nodeJoined = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		a, okA := e.ObjectOld.(*corev1.Node)
		b, okB := e.ObjectNew.(*corev1.Node)
		return okA && okB && (a.Status.NodeInfo.KubeletVersion != b.Status.NodeInfo.KubeletVersion || ready(a) != ready(b))
	},
}

func ready(n *corev1.Node) bool { return !readySince(n).IsZero() }

// readySince returns since when a node is Ready, zero if it is not.
func readySince(n *corev1.Node) time.Time {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return cmp.Or(c.LastTransitionTime.Time, n.CreationTimestamp.Time)
		}
	}
	return time.Time{}
}

// Reconcile gathers the state, and writes what differs.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	w, err := r.gather(ctx)
	if err != nil || w == nil {
		return ctrl.Result{}, err
	}
	var errs []error
	for i := range w.policies {
		errs = append(errs, r.reconcilePolicy(ctx, w, &w.policies[i]))
	}
	conditions := &machineobjects.ConditionWriter{Client: r.Objects, Events: r.Events, Now: r.Now}
	errs = append(errs, r.recordUnclaimed(ctx, w), r.collect(ctx, w), conditions.WriteAll(ctx, w.machines, w.sources))
	for i := range w.policies {
		errs = append(errs, r.writeSummary(ctx, w, &w.policies[i]))
	}
	r.Metrics.Observe(w.policies, w.sources)
	if err := errors.Join(errs...); err != nil {
		return ctrl.Result{}, err
	}
	if w.retrySoon {
		return ctrl.Result{RequeueAfter: retryInterval}, nil
	}
	return ctrl.Result{RequeueAfter: recheck}, nil
}

// reconcilePolicy reconciles one policy. A failing object does not stop the others.
func (r *Reconciler) reconcilePolicy(ctx context.Context, w *machineSnapshot, p *v1alpha1.BootImagePolicy) error {
	var errs []error
	w.openCanary = ""
	for _, c := range r.candidates(ctx, w, p) {
		w.kinds.Unread = nil
		if c.decide(ctx, w); c.staysRecorded(w) {
			continue
		}
		if err := r.writeImage(ctx, w, c); err != nil {
			errs, w.partial = append(errs, err), true
			c.recordFailure(err)
		}
		c.keepCanary(w)
		errs = append(errs, c.updateAuthority(ctx, w), r.record(ctx, w, c))
	}
	return errors.Join(errs...)
}
