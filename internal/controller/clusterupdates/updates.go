package clusterupdates

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/bundlefiles"
	"github.com/refit-dev/refit/internal/controller/clusterapi/hooks"

	"github.com/refit-dev/refit/internal/controller/gatefacts"
	"github.com/refit-dev/refit/internal/controller/nodedrain"
	"github.com/refit-dev/refit/internal/controller/plans"

	"github.com/refit-dev/refit/internal/controller/nodedistribution"
	"github.com/refit-dev/refit/internal/controller/nodeindex"
	"github.com/refit-dev/refit/internal/controller/queue"

	"github.com/refit-dev/refit/internal/outbound"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// FieldOwnerRun is the server-side apply owner of NodeUpdate.spec.run.
const FieldOwnerRun = v1alpha1.FieldOwnerRun

const (
	// settle is how long events are collected before a reconcile.
	settle = 200 * time.Millisecond
	// whileDraining is how often pods that leave are checked and evictions retried.
	whileDraining = 3 * time.Second
	// whileMoving is how often nodes that run their steps are checked.
	whileMoving = 5 * time.Second
	// whileActive is how often a waiting update is checked without an event.
	whileActive = 15 * time.Second
	// whileResting is how often there is a reconcile without an update and without an event.
	// Heartbeats cause no reconcile, but they replace objects in the cache, and the indexes hold
	// the objects that they saw last.
	whileResting = 30 * time.Second
)

// Reconciler reconciles all updates together, because only one may move nodes.
type Reconciler struct {
	// Client reads from the cache; Live reads from the API server.
	Client    client.Client
	Live      client.Reader
	NodeIndex *nodeindex.Reader
	Plans     *plans.Store
	Headers   *bundlefiles.Headers
	Evictor   *nodedrain.Evictor
	// Cordoner is set by Setup.
	Cordoner *nodedrain.Cordoner
	Gate     *gatefacts.Gatherer
	Events   events.EventRecorder
	// External calls external updaters; set by Setup.
	External *plans.ExternalUpdaters
	// Servers restricts the connections to external updaters.
	Servers *outbound.Guard
	// Downtime measures how long the API server does not answer; nil measures nothing.
	Downtime downtimeMeter
	Now      func() time.Time
	// clock ignores changes of the wall clock while an update moves nodes.
	clock steadyClock

	mu sync.Mutex
	// started are updates, or further hops of them, whose start was written and may not be in
	// the cache yet. It is only a reason to wait.
	started map[types.UID]bool
	// downtimeBefore is what an earlier process measured for the update.
	downtimeBefore earlierDowntime
	// emitted are the events already sent, so that a repeated drain does not repeat them.
	emitted map[string]bool
	// heartbeats records when each agent's heartbeat last changed.
	heartbeats nodeindex.Heartbeats
	// maker and planNode cache what did not change for the planner.
	maker    plans.Maker
	planNode nodeindex.Row[*updateplan.Node]
	// offered are nodes with the steps that external updaters offer for them.
	offered map[string]*updateplan.Node
	// planIndex has the rollout's facts of every node, learned the durations of earlier
	// updates, and slow throttles what is expensive and changes little.
	planIndex planIndex
	poolIndex poolIndex
	learned   rollout.Learned
	learnedAt time.Time
	slow      queue.Throttle
	// large clusters get one event for a node's update, not two.
	large bool
	// wantStaged are the OS configurations, by node, that this reconcile found nodes must
	// prepare; rolloutSeen is true if it evaluated a rollout.
	wantStaged  map[string]string
	rolloutSeen bool
	// gates has the cached gate facts of the updates that this reconcile prepares,
	// gatesBefore those of the reconcile before.
	gatesBefore, gates map[types.UID]*gateIndex
}

// Setup registers the reconciler with a manager.
func (r *Reconciler) Setup(mgr ctrl.Manager, index *nodeindex.Index, times *queue.Times) error {
	r.NodeIndex = index.Reader(nodeindex.Changes{Node: nodeChanged, Update: nodedistribution.NodeUpdateChanged})
	r.Plans = &plans.Store{Client: r.Client, Live: r.Live}
	r.Cordoner = &nodedrain.Cordoner{Client: r.Client, Live: r.Live, Nodes: r.NodeIndex}
	answered := make(chan event.GenericEvent, 1)
	r.offered = map[string]*updateplan.Node{}
	r.External = &plans.ExternalUpdaters{Client: r.Client, Registry: hooks.Registry{Servers: r.Servers}, Now: r.Now, Called: func() {
		select {
		case answered <- event.GenericEvent{}:
		default: // one is waiting already
		}
	}}
	b := ctrl.NewControllerManagedBy(mgr).Named("updates").WithOptions(controller.Options{RateLimiter: queue.Backoff()}).
		WatchesRawSource(source.Channel(r.NodeIndex.Changed(), queue.Debounce("updates", settle))).
		WatchesRawSource(source.Channel(answered, queue.Debounce("updates", settle)))
	for _, o := range []client.Object{&v1alpha1.ClusterUpdate{}, &v1alpha1.UpdatePool{}, &v1alpha1.Bundle{}, &v1alpha1.NodeConfig{}, &v1alpha1.Updater{}} {
		b = b.Watches(o, queue.Debounce("updates", settle))
	}
	return b.Complete(times.Of("updates", r))
}

// nodeChanged ignores the kubelets' heartbeats.
func nodeChanged(a, b *corev1.Node) bool {
	return a.Spec.Unschedulable != b.Spec.Unschedulable || ready(a) != ready(b) ||
		(nodedistribution.StartupTaint(a) == nil) != (nodedistribution.StartupTaint(b) == nil) ||
		a.Status.NodeInfo != b.Status.NodeInfo || !maps.Equal(a.Labels, b.Labels) || !maps.Equal(a.Annotations, b.Annotations)
}

// Reconcile gathers the state, continues every update, and writes the statuses.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if !r.NodeIndex.Synced() {
		return ctrl.Result{RequeueAfter: settle}, nil
	}
	w, err := r.gather(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	var errs []error
	requeueAfter := time.Duration(0)
	running := r.running(w)
	r.clock.Hold(running != "")
	for i := range w.moves {
		u := &w.moves[i]
		if u.Status.Phase == v1alpha1.PhaseDone || !u.DeletionTimestamp.IsZero() {
			continue
		}
		next, err := r.reconcileOne(ctx, w, u, &running)
		errs = append(errs, err)
		requeueAfter = sooner(requeueAfter, next)
	}
	r.dropUnusedGates()
	r.dropUnusedPlans(running != "")
	errs = append(errs, r.releaseOrphans(ctx, w), r.unstage(ctx, w), r.writePools(ctx, w))
	if err := errors.Join(errs...); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: cmp.Or(requeueAfter, whileResting)}, nil
}

// dropUnusedPlans drops the planner's nodes and plans if this reconcile prepared no update, and
// the rollout's facts if no update has started. They hold the objects that they were derived
// from: kept after the cache has replaced those, they would be a second copy of all nodes.
func (r *Reconciler) dropUnusedPlans(started bool) {
	if len(r.gatesBefore) == 0 {
		r.maker.Forget()
		r.planNode = nodeindex.Row[*updateplan.Node]{}
	}
	if !started {
		r.planIndex = planIndex{}
	}
}

// reconcileOne continues one update.
func (r *Reconciler) reconcileOne(ctx context.Context, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, running *string) (time.Duration, error) {
	if u.Status.StartedAt != nil && !u.BetweenHops() {
		return r.advanceUpdate(ctx, w, u)
	}
	if r.wasStarted(types.UID(u.RunUID())) {
		return whileDraining, nil // the cache does not show the start yet
	}
	other := *running
	if other == u.Name {
		other = ""
	}
	started, err := r.prepare(ctx, w, u, other)
	if started {
		*running = u.Name
		return settle, err
	}
	return whileActive, err
}

// running names the update that has started and is not done, empty if there is none.
func (r *Reconciler) running(w *rolloutSnapshot) string {
	for i := range w.moves {
		u := &w.moves[i]
		if u.Status.Phase != v1alpha1.PhaseDone && (u.Status.StartedAt != nil || r.wasStarted(u.UID)) {
			return u.Name
		}
	}
	return ""
}

func (r *Reconciler) wasStarted(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.started[uid]
}

func (r *Reconciler) rememberStarted(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started == nil {
		r.started = map[types.UID]bool{}
	}
	r.started[uid] = true
}

func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// isFirstTime returns true the first time it is called with a key.
func (r *Reconciler) isFirstTime(what string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.emitted == nil {
		r.emitted = map[string]bool{}
	}
	first := !r.emitted[what]
	r.emitted[what] = true
	return first
}
