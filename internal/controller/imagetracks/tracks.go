package imagetracks

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/bundlefiles"
	"github.com/refit-dev/refit/internal/controller/nodeindex"
	"github.com/refit-dev/refit/internal/controller/queue"

	"github.com/refit-dev/refit/internal/controller/imagetracks/workloads"
	"github.com/refit-dev/refit/internal/imagetag/track"
	"github.com/refit-dev/refit/internal/registry"
)

const (
	// busyEvery is how often it is looked while nodes load or a workload rolls.
	busyEvery = 3 * time.Second
	// stoppedEvery is how often a track that waits for a person is checked.
	stoppedEvery = time.Minute
	// workers reconcile tracks in parallel.
	workers = 4
)

// Reconciler reconciles one ImageTrack at a time.
type Reconciler struct {
	Client client.Client
	// Live reads past the cache: workloads are not cached, and what a track
	// remembers must not be an old copy.
	Live    client.Reader
	Headers *bundlefiles.Headers
	Poller  *registry.Poller
	// Now is the clock.
	Now func() time.Time

	mu  sync.Mutex
	due map[types.UID]pollTime
	// refusals are what evictions were refused with, by the track's name.
	refusals map[string]string
	// turns is locked from the check of who has the turn until the turn is written.
	turns      sync.Mutex
	heartbeats nodeindex.Heartbeats
	checks     signatureChecks
}

// pollTime is when a track's registry is asked next. It is only ever a reason not to
// ask: who forgets it asks once more.
type pollTime struct {
	at         time.Time
	generation int64
}

// Setup registers the reconciler with a manager.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	if err := mgr.Add(manager.RunnableFunc(r.removeOldMarks)); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("tracks").
		WithOptions(controller.Options{RateLimiter: queue.Backoff(), MaxConcurrentReconciles: workers}).
		For(&v1alpha1.ImageTrack{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.TrustPolicy{}, handler.EnqueueRequestsFromMapFunc(r.allTracks), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
}

// allTracks are asked again when the rules for signatures change.
func (r *Reconciler) allTracks(ctx context.Context, _ client.Object) (out []ctrl.Request) {
	var l v1alpha1.ImageTrackList
	if err := r.Client.List(ctx, &l); err != nil {
		return nil // each track is reconciled after its interval
	}
	for i := range l.Items {
		out = append(out, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&l.Items[i])})
	}
	return out
}

// Reconcile looks, decides, remembers, and does one thing.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	o := &v1alpha1.ImageTrack{}
	if err := r.Live.Get(ctx, req.NamespacedName, o); apierrors.IsNotFound(err) {
		r.setRefusal(req.Name, "")
		return ctrl.Result{}, errors.Join(r.removeMarks(ctx, req.Name), r.releaseOf(ctx, func(track string) bool { return track == req.Name }))
	} else if err != nil || !o.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, err
	}
	t, err := trackOf(&o.Spec)
	if err != nil {
		return ctrl.Result{}, r.writeInvalid(ctx, o, err)
	}
	l := &turn{o: o, t: t, now: r.Now().Truncate(time.Second), state: stateOf(&o.Status), status: *o.Status.DeepCopy()}
	if l.ws, err = workloads.Gather(ctx, r.Live, o.Spec.Targets); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.describeTargets(ctx, l); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.poll(ctx, l); err != nil {
		if errors.Is(err, errSecret) {
			return ctrl.Result{RequeueAfter: stoppedEvery}, r.writeInvalid(ctx, o, err)
		}
		return ctrl.Result{}, err
	}
	if l.later > 0 {
		return ctrl.Result{RequeueAfter: l.later}, nil
	}
	if err := r.selectImage(ctx, l); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: r.next(l)}, nil
}

// selectImage selects the image that the targets get, remembers it, and does one thing.
func (r *Reconciler) selectImage(ctx context.Context, l *turn) error {
	if err := r.verifySignatures(ctx, l); err != nil {
		return err
	}
	var candidates []track.Candidate
	l.state, candidates = track.Decide(l.t, l.state, l.findings(), l.now)
	if err := r.describeTargets(ctx, l); err != nil {
		return err
	}
	remember(&l.state, candidates, &l.status)
	if err := r.findMarks(ctx, l, candidates); err != nil {
		return err
	}
	return r.act(ctx, l)
}

// turn is one reconcile of one track.
type turn struct {
	o     *v1alpha1.ImageTrack
	t     track.Track
	now   time.Time
	ws    []*workloads.Workload
	state track.State
	// status as it will be written.
	status v1alpha1.ImageTrackStatus
	// bundles are what lookBundles found.
	bundles map[string]Held
	// later: no result is possible before; again: when the registry is polled next.
	later time.Duration
	again time.Time
	// signatures of candidates by digest, as the rules have it.
	signatures map[string]track.Signature
	// marks of the nodes, and what of them must be written.
	marks nodeMarks
	rows  []track.Row
	pre   track.Preload
	step  track.Step
	// drained is the node that the track has cordoned, nil for none.
	drained *corev1.Node
	// opens is when a window is open next that is waited for.
	opens time.Time
}

// describeTargets tells the workloads which of their containers are meant, and of static
// pods how far their nodes are.
func (r *Reconciler) describeTargets(ctx context.Context, l *turn) error {
	l.t.Critical = false
	for _, w := range l.ws {
		w.SetContainers(l.t, l.state.Approved)
		l.t.Critical = l.t.Critical || w.Critical && len(w.Containers) > 0
		if w.Kind == track.StaticPod {
			if err := r.nodes().Fill(ctx, l.roll(), w, l.digestBefore(w.Key())); err != nil {
				return err
			}
		}
	}
	return nil
}

// nodes are where static pods are.
func (r *Reconciler) nodes() *Nodes {
	return &Nodes{Client: r.Client, Live: r.Live, Heartbeats: &r.heartbeats}
}

func (l *turn) roll() Roll {
	return Roll{Object: l.o, Track: l.t, Approved: l.state.Approved, Now: l.now}
}

// digestBefore is the digest that a workload named at the look before.
func (l *turn) digestBefore(key string) string {
	for _, w := range l.o.Status.Workloads {
		if w.Workload == key {
			return w.Digest
		}
	}
	return ""
}

// findings is what the targets name and run.
func (l *turn) findings() track.Found {
	var f track.Found
	for _, w := range l.ws {
		f.Workloads = append(f.Workloads, track.Workload{Key: w.Key(), Named: w.Named, Before: l.digestBefore(w.Key())})
	}
	f.Running, f.Signatures = l.running(), l.signatures
	return f
}

// running digests, each once.
func (l *turn) running() (out []string) {
	for _, w := range l.ws {
		w.Running(l.t, func(digest, _ string) {
			if !slices.Contains(out, digest) {
				out = append(out, digest)
			}
		})
	}
	slices.Sort(out)
	return out
}

// usedDigests digests: approved, named by a workload, kept for a roll-back; each once.
func (l *turn) usedDigests() (out []string) {
	if l.state.Approved != nil {
		out = append(out, l.state.Approved.Digest)
	}
	if len(l.state.History) > 0 {
		out = append(out, l.state.History[0].Digest)
	}
	for _, w := range l.ws {
		if w.Named != "" {
			out = append(out, w.Named)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// poll reads the source if it is due, and records its candidates.
func (r *Reconciler) poll(ctx context.Context, l *turn) error {
	l.again = r.dueAt(l.o)
	var s observation
	var err error
	switch {
	case l.o.Spec.Source == v1alpha1.SourceBundles:
		s, err = r.listBundles(ctx, l.t, l.state)
		if errors.Is(err, bundlefiles.ErrPending) {
			l.later = busyEvery
			return nil
		}
	case l.now.Before(l.again):
		return nil
	default:
		s, err = r.pollRegistry(ctx, &l.o.Spec, l.t, l.state, l.running(), l.usedDigests())
	}
	interval := time.Duration(l.o.Spec.IntervalSeconds) * time.Second
	var f *registry.Failure
	if errors.As(err, &f) {
		l.again = l.now.Add(interval)
		if !f.Until.IsZero() {
			l.again = f.Until
		}
		r.setDue(l.o, l.again)
		l.recordFailure(f)
		return nil
	}
	if err != nil {
		return err
	}
	l.again = l.now.Add(interval + jitter(l.o.UID, interval/10))
	r.setDue(l.o, l.again)
	l.recordSeen(s)
	return nil
}

// recordSeen takes in what a look found.
func (l *turn) recordSeen(s observation) {
	l.bundles = s.bundle
	if s.endpoint != "" {
		l.status.Endpoint = s.endpoint
	}
	l.status.PollError, l.status.Upstream, l.status.DeletedDigests = nil, nil, s.gone
	for _, tag := range slices.Sorted(maps.Keys(s.upstream)) {
		l.status.Upstream = append(l.status.Upstream, v1alpha1.UpstreamTag{Tag: tag, Digest: s.upstream[tag]})
	}
	l.state = track.Observe(l.state, s.Observation, l.now)
	if l.state.Approved == nil && len(l.state.History) == 0 {
		l.state.History = s.earlier
	}
	switch {
	case len(s.Gone) > 0:
		l.failed(v1alpha1.ReasonTagDeleted, fmt.Sprintf("%s has no tag %s", l.t.Repository, strings.Join(s.Gone, ", ")))
	case s.unfit:
		l.failed(v1alpha1.ReasonSchemeUnfit, l.t.Repository+" has no tag that is followed: "+s.unfollowed)
	case len(s.Images) == 0 && s.unfollowed != "":
		l.failed(v1alpha1.ReasonTagDeleted, l.t.Repository+" has no tag that is followed: "+s.unfollowed)
	case len(s.Images) == 0:
		l.failed(v1alpha1.ReasonTagDeleted, l.t.Repository+" has no tag that is followed: no tag of that tier is in the range")
	}
}

// dueAt is when the registry is asked next, zero for now.
func (r *Reconciler) dueAt(o *v1alpha1.ImageTrack) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, known := r.due[o.UID]
	if !known || d.generation != o.Generation {
		return time.Time{}
	}
	return d.at
}

func (r *Reconciler) setDue(o *v1alpha1.ImageTrack, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.due == nil {
		r.due = map[types.UID]pollTime{}
	}
	r.due[o.UID] = pollTime{at, o.Generation}
}

// jitter keeps tracks from asking all together, and each to its own beat.
func jitter(uid types.UID, most time.Duration) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(uid))
	return time.Duration(h.Sum32()%1000) * most / 1000
}

// next is when to look again.
func (r *Reconciler) next(l *turn) time.Duration {
	wait := max(time.Second, l.again.Sub(l.now))
	if len(l.marks.odd) > 0 || int(l.status.MarkedNodes) > len(l.marks.want) { // the rest, or what was removed must be counted
		wait = min(wait, busyEvery)
	}
	for _, row := range l.rows {
		if row.Closed {
			wait = min(wait, max(time.Second, l.opens.Sub(l.now)))
			continue
		}
		switch row.State {
		case track.Rolling, track.Preloading, track.Waiting:
			wait = min(wait, busyEvery)
		case track.Stopped, track.Proposed:
			wait = min(wait, stoppedEvery)
		}
	}
	for _, c := range l.status.Candidates {
		if age := time.Duration(l.o.Spec.MinAgeSeconds)*time.Second - l.now.Sub(timeOf(c.Since)); c.Decision == v1alpha1.DecisionWaits && !l.o.Spec.Freeze {
			wait = min(wait, max(time.Second, age))
		}
	}
	return wait
}

// isConflict reports a concurrent write: the next reconcile reads the object again.
func isConflict(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
