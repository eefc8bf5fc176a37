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

	"github.com/refit-dev/refit/internal/pipeline/transfer"
)

// settle is how long events are collected before a reconcile.
const settle = 200 * time.Millisecond

// recheck is the interval of reconciles without an event.
const recheck = 30 * time.Second

// Reconciler handles all nodes at once: what one node must pin depends on objects that
// concern all.
type Reconciler struct {
	Client client.Client
	// Live reads pods past the cache before a set is removed; nil does not read them.
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
	// Events about nodes that wait for the startup taint, or lose it, and about bundles
	// that are released; nil emits none.
	Events events.EventRecorder

	// progressAt is when each Bundle's status was last written; later is set when
	// one was put off. One look runs at a time.
	progressAt map[types.UID]time.Time
	deferred   bool
	nodes      *nodeindex.Reader
	// more: there was too much to write for one look.
	more bool
	// rankedNodes has how urgent each node was; peers has the peers of each.
	rankedNodes nodeindex.Row[ranked]
	// peersEdition is the edition of the peers that the nodes were last compared with.
	peersEdition int
	peers        peerIndex
	heartbeats   nodeindex.Heartbeats
	kinds        kindIndex
	running      podImages
	freed        freedIndex
	// unseenSince is when the last node lost an unapproved Bundle.
	unseenSince map[types.UID]time.Time
	// unread is why the header of a found bundle was not read, as it was logged, by digest.
	unread map[string]string
	// taintDemands is what pools want of each node.
	taintDemands nodeindex.Row[taintDemand]
}

// Setup registers the reconciler with a manager.
func (r *Reconciler) Setup(mgr ctrl.Manager, index *nodeindex.Index, times *queue.Times, again source.Source) error {
	r.nodes = index.Reader(nodeindex.Changes{Node: nodeChanged, Update: reportChanged})
	b := ctrl.NewControllerManagedBy(mgr).Named("nodedistribution").WithOptions(controller.Options{RateLimiter: queue.Backoff()}).
		WatchesRawSource(source.Channel(r.nodes.Changed(), queue.DebounceBy("nodedistribution", func() time.Duration { return queue.DebounceDelay(r.nodes.Size()) }))).
		WatchesRawSource(again)
	for _, o := range []client.Object{&v1alpha1.Bundle{}, &v1alpha1.TrustPolicy{}, &v1alpha1.PinnedImageSet{}, &v1alpha1.ClusterUpdate{}} {
		b = b.Watches(o, queue.Debounce("nodedistribution", settle))
	}
	b = b.Watches(&v1alpha1.UpdatePool{}, queue.Debounce("nodedistribution", settle), builder.WithPredicates(predicate.GenerationChangedPredicate{}))
	return b.Complete(times.Of("nodedistribution", r))
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
	if bootOf(a) != bootOf(b) || observesControlPlane(a) != observesControlPlane(b) {
		return false
	}
	x, y := meta.FindStatusCondition(a.Conditions, v1alpha1.ConditionStalled), meta.FindStatusCondition(b.Conditions, v1alpha1.ConditionStalled)
	return slices.Equal(a.Bundles, b.Bundles) && slices.Equal(a.FailedFetches, b.FailedFetches) && equality.Semantic.DeepEqual(a.Media, b.Media) && equality.Semantic.DeepEqual(a.Pins, b.Pins) &&
		equality.Semantic.DeepEqual(x, y)
}

func bootOf(st *v1alpha1.NodeUpdateStatus) string {
	if st.Observed == nil {
		return ""
	}
	return st.Observed.BootID
}

// observesControlPlane reports whether the agent saw a control plane on its node.
func observesControlPlane(st *v1alpha1.NodeUpdateStatus) bool {
	return st.Observed != nil && st.Observed.ControlPlane != ""
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

// Reconcile decides the desired state of all nodes and writes the differences.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if !r.nodes.Synced() {
		return ctrl.Result{RequeueAfter: settle}, nil
	}
	r.deferred = false
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
	if r.deferred {
		return ctrl.Result{RequeueAfter: progressEvery(len(w.nodes))}, nil
	}
	return ctrl.Result{RequeueAfter: recheck}, nil
}

// HeaderSource triggers a reconcile when a header has arrived.
func HeaderSource(changed <-chan event.GenericEvent) source.Source {
	return source.Channel(changed, queue.Debounce("nodedistribution", settle))
}
