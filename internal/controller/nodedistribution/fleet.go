package nodedistribution

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/bundleheaders"
	"github.com/refit-dev/refit/internal/controller/nodeindex"
	"github.com/refit-dev/refit/internal/controller/reconcilemetrics"
	"github.com/refit-dev/refit/internal/controller/startuptaints"
	"github.com/refit-dev/refit/internal/controller/throttle"
	"github.com/refit-dev/refit/internal/pipeline/transfer"
)

// settle is how long events are collected before the whole fleet is looked at.
const settle = 200 * time.Millisecond

// recheck is how often the fleet is looked at without any event.
const recheck = 30 * time.Second

// Reconciler looks at the whole fleet at once: what one node must hold depends
// on objects that concern all.
type Reconciler struct {
	Client client.Client
	// Live reads past the cache: pods, before images are let go. nil: nobody asks.
	Live    client.Reader
	Headers *bundleheaders.Cache
	// PublicKey of the controller, base64 of PKIX DER.
	PublicKey string
	// Refit is the release of this refit; a build before a release counts as it.
	Refit string
	// Bandwidth is what nodes may use of their networks.
	Bandwidth transfer.Bandwidth
	// Now is the clock.
	Now func() time.Time
	// Events about nodes that wait and are let in; nil: nobody is told.
	Events events.EventRecorder

	// progressAt is when each Bundle's status was last written; later is set when
	// one was put off. One look runs at a time.
	progressAt map[types.UID]time.Time
	later      bool
	roster     *nodeindex.Roster
	// more: there was too much to write for one look.
	more bool
	// settled has how urgent each node was; peers knows neighbours.
	settled nodeindex.Row[ranked]
	// told is the edition of the neighbours that the nodes were last compared with.
	told    int
	peers   peers
	ledger  ledger
	running running
	// foundGone is since when no node has a Bundle that nobody approved.
	foundGone map[types.UID]time.Time
	// unread is why the header of a found bundle was not read, as it was logged, by digest.
	unread map[string]string
	// asked is what pools want of each node.
	asked nodeindex.Row[asked]
}

// Setup registers the reconciler with a manager.
func (r *Reconciler) Setup(ctx context.Context, mgr ctrl.Manager, times *reconcilemetrics.Times, again source.Source) error {
	r.roster = nodeindex.New()
	if err := r.roster.Watch(ctx, mgr.GetCache(), nodeindex.Changes{Node: nodeChanged, Update: reportChanged}); err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(mgr).Named("fleet").WithOptions(controller.Options{RateLimiter: Backoff()}).
		WatchesRawSource(source.Channel(r.roster.Called(), Paced("fleet", func() time.Duration { return throttle.Settle(r.roster.Size()) }))).
		WatchesRawSource(again)
	for _, o := range []client.Object{&v1alpha1.Bundle{}, &v1alpha1.TrustPolicy{}, &v1alpha1.PinnedImageSet{}, &v1alpha1.ClusterUpdate{}} {
		b = b.Watches(o, Whole("fleet", settle))
	}
	b = b.Watches(&v1alpha1.UpdatePool{}, Whole("fleet", settle), builder.WithPredicates(predicate.GenerationChangedPredicate{}))
	return b.Complete(times.Of("fleet", r))
}

// Backoff rests at most some seconds after an error: the usual error is an API
// server that is being moved, and nobody should wait long after it is back.
func Backoff() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](100*time.Millisecond, 10*time.Second)
}

// Whole maps every event to the one request of a controller, a moment later so
// that many events make one look.
func Whole(name string, later time.Duration) handler.EventHandler {
	return Paced(name, func() time.Duration { return later })
}

// Paced is Whole with a moment that may grow with the cluster.
func Paced(name string, later func() time.Duration) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(q queue) {
		q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}, later())
	}
	return handler.Funcs{
		CreateFunc:  func(_ context.Context, _ event.CreateEvent, q queue) { add(q) },
		UpdateFunc:  func(_ context.Context, _ event.UpdateEvent, q queue) { add(q) },
		DeleteFunc:  func(_ context.Context, _ event.DeleteEvent, q queue) { add(q) },
		GenericFunc: func(_ context.Context, _ event.GenericEvent, q queue) { add(q) },
	}
}

// nodeChanged drops the kubelet's heartbeats: only labels, platform, deletion, and
// whether it was let in matter here.
func nodeChanged(a, b *corev1.Node) bool {
	return !maps.Equal(a.Labels, b.Labels) || platform(a) != platform(b) || a.Status.NodeInfo.BootID != b.Status.NodeInfo.BootID ||
		(startuptaints.Taint(a) == nil) != (startuptaints.Taint(b) == nil) || a.Annotations[v1alpha1.AnnotationAdmitted] != b.Annotations[v1alpha1.AnnotationAdmitted]
}

// NodeUpdateChanged drops the agents' heartbeats.
func NodeUpdateChanged(a, b *v1alpha1.NodeUpdate) bool {
	return a.Generation != b.Generation || !sameButHeartbeat(a.Status, b.Status)
}

// reportChanged drops what is about an update that runs: what a node must know
// and hold does not depend on it.
func reportChanged(a, b *v1alpha1.NodeUpdate) bool {
	return a.Generation != b.Generation && !sameSpec(&a.Spec, &b.Spec) || !sameReport(&a.Status, &b.Status)
}

func sameReport(a, b *v1alpha1.NodeUpdateStatus) bool {
	if (a.Agent == nil) != (b.Agent == nil) || a.Agent != nil && (a.Agent.Address != b.Agent.Address || a.Agent.PublicKey != b.Agent.PublicKey) {
		return false
	}
	if bootOf(a) != bootOf(b) {
		return false
	}
	x, y := meta.FindStatusCondition(a.Conditions, v1alpha1.ConditionStalled), meta.FindStatusCondition(b.Conditions, v1alpha1.ConditionStalled)
	return slices.Equal(a.Bundles, b.Bundles) && equality.Semantic.DeepEqual(a.Media, b.Media) && equality.Semantic.DeepEqual(a.Pins, b.Pins) &&
		equality.Semantic.DeepEqual(x, y)
}

func bootOf(st *v1alpha1.NodeUpdateStatus) string {
	if st.Observed == nil {
		return ""
	}
	return st.Observed.BootID
}

// sameButHeartbeat is given copies, and changes nothing below them.
func sameButHeartbeat(a, b v1alpha1.NodeUpdateStatus) bool {
	for _, s := range []*v1alpha1.NodeUpdateStatus{&a, &b} {
		if s.Agent != nil {
			agent := *s.Agent
			agent.Heartbeat, s.Agent = nil, &agent
		}
	}
	return equality.Semantic.DeepEqual(a, b)
}

// platform of a node, for example linux/amd64.
func platform(n *corev1.Node) string {
	return n.Status.NodeInfo.OperatingSystem + "/" + n.Status.NodeInfo.Architecture
}

// Reconcile looks at everything and writes what differs.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if !r.roster.Synced() {
		return ctrl.Result{RequeueAfter: settle}, nil
	}
	r.later = false
	w, err := r.gather(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.apply(ctx, w); err != nil {
		return ctrl.Result{}, err
	}
	if r.more {
		return ctrl.Result{RequeueAfter: settle}, nil
	}
	if r.later {
		return ctrl.Result{RequeueAfter: progressEvery(len(w.nodes))}, nil
	}
	return ctrl.Result{RequeueAfter: recheck}, nil
}

// HeaderSource triggers a look when a header has arrived.
func HeaderSource(changed <-chan event.GenericEvent) source.Source {
	return source.Channel(changed, Whole("fleet", settle))
}
