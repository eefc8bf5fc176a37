package nodeconfigs

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
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/nodeindex"
	"github.com/refit-dev/refit/internal/controller/queue"
)

// FieldOwner is the server-side apply owner of NodeUpdate.spec.config.
const FieldOwner = v1alpha1.FieldOwnerController + "-config"

const (
	// settle is how long events are collected before a reconcile.
	settle = 300 * time.Millisecond
	// recheck is the interval of reconciles without an event: ConfigMaps are not watched.
	recheck = 30 * time.Second
)

// Reconciler handles all nodes at once: most of them share one configuration.
type Reconciler struct {
	Client client.Client
	// Live reads ConfigMaps past the cache.
	Live client.Reader
	// WithoutOSImages: this installation has no OSImages.
	WithoutOSImages bool
	// Now is the clock.
	Now func() time.Time

	nodes  *nodeindex.Reader
	memory matchCache
}

// Setup registers the reconciler with a manager.
func (r *Reconciler) Setup(mgr ctrl.Manager, index *nodeindex.Index, times *queue.Times) error {
	r.nodes = index.Reader(nodeindex.Changes{Node: nodeChanged, Update: updateChanged})
	all := queue.DebounceBy("nodeconfig", func() time.Duration { return max(settle, queue.DebounceDelay(r.nodes.Size())) })
	b := ctrl.NewControllerManagedBy(mgr).Named("nodeconfig").WithOptions(controller.Options{RateLimiter: queue.Backoff()}).
		Watches(&v1alpha1.NodeConfig{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.UpdatePool{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Channel(r.nodes.Changed(), all))
	if !r.WithoutOSImages {
		b = b.Watches(&v1alpha1.OSImage{}, all)
	}
	return b.Complete(times.Of("nodeconfig", r))
}

func nodeChanged(a, b *corev1.Node) bool { return !maps.Equal(a.Labels, b.Labels) }

// updateChanged: only what is wanted and what is seen of it matters here.
func updateChanged(a, b *v1alpha1.NodeUpdate) bool {
	return a.Spec.Config != b.Spec.Config || !maps.Equal(fieldsOf(a), fieldsOf(b))
}

func fieldsOf(nu *v1alpha1.NodeUpdate) map[string]string {
	if nu == nil || nu.Status.Observed == nil {
		return nil
	}
	return nu.Status.Observed.Fields
}

// Reconcile renders the configurations of all nodes and writes the differences.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if !r.nodes.Synced() {
		return ctrl.Result{RequeueAfter: settle}, nil
	}
	w, err := r.gather(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	v := w.decide(&r.memory)
	err = errors.Join(r.writeNodes(ctx, w, v), r.writeStatus(ctx, w, v), r.sweep(ctx, w, v))
	if len(w.configs) == 0 {
		r.memory = matchCache{} // the next look may be far: it would hold objects that the cache has replaced
	}
	if err != nil || len(w.configs) == 0 {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: recheck}, nil
}
