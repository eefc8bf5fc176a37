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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/bundlefiles"
	"github.com/refit-dev/refit/internal/controller/nodeindex"
	"github.com/refit-dev/refit/internal/controller/queue"
	"github.com/refit-dev/refit/internal/controller/reconcilemetrics"

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
	Headers *bundlefiles.Headers
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
	nodes      *nodeindex.Index
	// more: there was too much to write for one look.
	more bool
	// settled has how urgent each node was; peers knows neighbours.
	settled nodeindex.Row[ranked]
	// peersEdition is the edition of the neighbours that the nodes were last compared with.
	peersEdition int
	peers        peerIndex
	kinds        kindIndex
	running      running
	// foundGone is since when no node has a Bundle that nobody approved.
	foundGone map[types.UID]time.Time
	// unread is why the header of a found bundle was not read, as it was logged, by digest.
	unread map[string]string
	// asked is what pools want of each node.
	asked nodeindex.Row[asked]
}

// Setup registers the reconciler with a manager.
func (r *Reconciler) Setup(ctx context.Context, mgr ctrl.Manager, times *reconcilemetrics.Times, again source.Source) error {
	r.nodes = nodeindex.New()
	if err := r.nodes.Watch(ctx, mgr.GetCache(), nodeindex.Changes{Node: nodeChanged, Update: reportChanged}); err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(mgr).Named("fleet").WithOptions(controller.Options{RateLimiter: queue.Backoff()}).
		WatchesRawSource(source.Channel(r.nodes.Changed(), queue.DebounceBy("fleet", func() time.Duration { return queue.DebounceDelay(r.nodes.Size()) }))).
		WatchesRawSource(again)
	for _, o := range []client.Object{&v1alpha1.Bundle{}, &v1alpha1.TrustPolicy{}, &v1alpha1.PinnedImageSet{}, &v1alpha1.ClusterUpdate{}} {
		b = b.Watches(o, queue.Debounce("fleet", settle))
	}
	b = b.Watches(&v1alpha1.UpdatePool{}, queue.Debounce("fleet", settle), builder.WithPredicates(predicate.GenerationChangedPredicate{}))
	return b.Complete(times.Of("fleet", r))
}

// nodeChanged drops the kubelet's heartbeats: only labels, platform, deletion, and
// whether it was let in matter here.
func nodeChanged(a, b *corev1.Node) bool {
	return !maps.Equal(a.Labels, b.Labels) || platform(a) != platform(b) || a.Status.NodeInfo.BootID != b.Status.NodeInfo.BootID ||
		(StartupTaint(a) == nil) != (StartupTaint(b) == nil) || a.Annotations[v1alpha1.AnnotationAdmitted] != b.Annotations[v1alpha1.AnnotationAdmitted]
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
	if !r.nodes.Synced() {
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
	return source.Channel(changed, queue.Debounce("fleet", settle))
}
