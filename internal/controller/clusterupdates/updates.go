package clusterupdates

import (
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

	"github.com/refit-dev/refit/internal/controller/externalupdaters"
	"github.com/refit-dev/refit/internal/controller/gatefacts"
	"github.com/refit-dev/refit/internal/controller/nodedrain"

	"github.com/refit-dev/refit/internal/controller/nodedistribution"
	"github.com/refit-dev/refit/internal/controller/nodeindex"
	"github.com/refit-dev/refit/internal/controller/plans"
	"github.com/refit-dev/refit/internal/controller/queue"
	"github.com/refit-dev/refit/internal/controller/reconcilemetrics"

	"github.com/refit-dev/refit/internal/outbound"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// FieldOwnerRun is the server-side apply owner of NodeUpdate.spec.run.
const FieldOwnerRun = v1alpha1.FieldOwnerRun

const (
	// settle is how long events are collected before everything is looked at.
	settle = 200 * time.Millisecond
	// whileDraining is how often pods that leave are looked at and evictions
	// are tried again.
	whileDraining = 3 * time.Second
	// whileMoving is how often nodes that run their steps are looked at.
	whileMoving = 5 * time.Second
	// whileActive is how often an update that waits is looked at without an event.
	whileActive = 15 * time.Second
)

// Reconciler looks at all updates at once, because only one may move nodes.
type Reconciler struct {
	// Client reads from the cache; Live reads from the API server.
	Client  client.Client
	Live    client.Reader
	Roster  *nodeindex.Index
	Plans   *plans.Store
	Headers *bundlefiles.Headers
	Evictor *nodedrain.Evictor
	// Cordoner is made by Setup.
	Cordoner *nodedrain.Cordoner
	Gate     *gatefacts.Gatherer
	Events   events.EventRecorder
	Metrics  *Metrics
	// Outside speaks with external updaters; made by Setup.
	Outside *externalupdaters.Caller
	// Servers guards the connections to external updaters.
	Servers *outbound.Guard
	// Away measures how long the API server does not answer; nil measures nothing.
	Away awayMeter
	Now  func() time.Time
	// clock is not set while an update moves nodes.
	clock steadyClock

	mu sync.Mutex
	// started remembers what was written and may not be in the cache yet; it is
	// only ever a reason to wait.
	started map[types.UID]bool
	// awayBefore is what an earlier process measured of the update.
	awayBefore awayBase
	// emitted remembers which events were sent, so that a drain that is tried again
	// does not repeat itself.
	emitted map[string]bool
	// heartbeats remembers when each agent's heartbeat was seen to change.
	heartbeats nodeindex.Heartbeats
	// maker and planNode spare the planner what did not change.
	maker    plans.Maker
	planNode nodeindex.Row[*updateplan.Node]
	// offered are nodes with what external updaters would do for them.
	offered map[string]*updateplan.Node
	// planIndex has what the rollout needs of every node, learned what it took them,
	// and slow says when what costs much and changes little is due again.
	track     planIndex
	census    poolIndex
	learned   rollout.Learned
	learnedAt time.Time
	slow      queue.Throttle
	// large clusters have one event for a node's move, not two.
	large bool
	// ready is what nodes are to have ready by what this look found of the update that
	// moves; looked is true if one was looked at.
	ready  map[string]string
	looked bool
	// asked has the gate's facts for every update that is being prepared, asks
	// those of this look.
	asked, asks map[types.UID]*gateIndex
}

// Setup registers the reconciler with a manager.
func (r *Reconciler) Setup(ctx context.Context, mgr ctrl.Manager, times *reconcilemetrics.Times) error {
	r.Roster = nodeindex.New()
	r.Plans = &plans.Store{Client: r.Client, Live: r.Live}
	r.Cordoner = &nodedrain.Cordoner{Client: r.Client, Live: r.Live, Nodes: r.Roster, Now: r.Now}
	answered := make(chan event.GenericEvent, 1)
	r.offered = map[string]*updateplan.Node{}
	r.Outside = &externalupdaters.Caller{Client: r.Client, Registry: hooks.Registry{Servers: r.Servers}, Now: r.Now, Called: func() {
		select {
		case answered <- event.GenericEvent{}:
		default: // one is waiting already
		}
	}}
	if err := r.Roster.Watch(ctx, mgr.GetCache(), nodeindex.Changes{Node: nodeChanged, Update: nodedistribution.NodeUpdateChanged}); err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(mgr).Named("updates").WithOptions(controller.Options{RateLimiter: queue.Backoff()}).
		WatchesRawSource(source.Channel(r.Roster.Changed(), queue.Debounce("updates", settle))).
		WatchesRawSource(source.Channel(answered, queue.Debounce("updates", settle)))
	for _, o := range []client.Object{&v1alpha1.ClusterUpdate{}, &v1alpha1.UpdatePool{}, &v1alpha1.Bundle{}, &v1alpha1.NodeConfig{}, &v1alpha1.Updater{}} {
		b = b.Watches(o, queue.Debounce("updates", settle))
	}
	return b.Complete(times.Of("updates", r))
}

// nodeChanged drops the kubelets' heartbeats.
func nodeChanged(a, b *corev1.Node) bool {
	return a.Spec.Unschedulable != b.Spec.Unschedulable || ready(a) != ready(b) ||
		(nodedistribution.StartupTaint(a) == nil) != (nodedistribution.StartupTaint(b) == nil) ||
		a.Status.NodeInfo != b.Status.NodeInfo || !maps.Equal(a.Labels, b.Labels) || !maps.Equal(a.Annotations, b.Annotations)
}

// Reconcile looks at everything, does what is next, and writes the statuses.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if !r.Roster.Synced() {
		return ctrl.Result{RequeueAfter: settle}, nil
	}
	w, err := r.gather(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	var errs []error
	again := time.Duration(0)
	running := r.running(w)
	r.clock.Hold(running != "")
	for i := range w.moves {
		u := &w.moves[i]
		if u.Status.Phase == v1alpha1.PhaseDone || !u.DeletionTimestamp.IsZero() {
			continue
		}
		next, err := r.reconcileOne(ctx, w, u, &running)
		errs = append(errs, err)
		again = sooner(again, next)
	}
	r.forgetAsked()
	errs = append(errs, r.releaseOrphans(ctx, w), r.unstage(ctx, w), r.writePools(ctx, w))
	if r.slow.TakeDue("metrics", len(w.nodes), w.now) {
		r.Metrics.observe(w)
	}
	if err := errors.Join(errs...); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// reconcileOne takes one update a step further.
func (r *Reconciler) reconcileOne(ctx context.Context, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, running *string) (time.Duration, error) {
	if u.Status.StartedAt != nil {
		return r.move(ctx, w, u)
	}
	if r.wasStarted(u.UID) {
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

// running names the update that has started and is not done, empty if none.
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

func (r *Reconciler) remember(uid types.UID) {
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

// isFirstTime reports true the first time it is asked about something.
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
