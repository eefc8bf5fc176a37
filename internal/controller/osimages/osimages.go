package osimages

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/queue"

	"github.com/refit-dev/refit/internal/controller/osimages/osbuild"

	"github.com/refit-dev/refit/internal/osimage"
	"github.com/refit-dev/refit/internal/registry"
)

const (
	// settle is how long events are collected before a reconcile.
	settle = 300 * time.Millisecond
	// busyEvery is the interval of reconciles during a build.
	busyEvery = 2 * time.Second
	// recheck is the interval of reconciles without an event: ConfigMaps and registries are
	// not watched.
	recheck = 30 * time.Second
	// trackEvery is how old the digest of a base that is followed may be.
	trackEvery = time.Minute
	// hasEvery is how long the answer counts that an image is there.
	hasEvery = 10 * time.Minute
)

// Reconciler handles all OSImages at once.
type Reconciler struct {
	Client client.Client
	// Live reads past the cache: a build that was just made must be seen.
	Live   client.Reader
	Poller *registry.Poller
	// Over is how registries are reached; nil is the usual way.
	Over http.RoundTripper
	// Bases finds the base of an image that is built without a registry.
	Bases *osbuild.Finder
	// Now is the clock.
	Now func() time.Time
	// Tell says what becomes of builds; nil says nothing.
	Tell *osbuild.EventRecorder

	mu sync.Mutex
	// has is what registries said of images. To lose it costs one question.
	has map[string]answer
	// pollers of OSImages with a CA bundle or a proxy of their own.
	pollers map[string]*registry.Poller
	// emitted is what registries said of images that nodes are to hold.
	emitted map[string]cachedAnswer
	// facts reads what images have.
	facts factsReader
	// tried is when images could not be compared, to wait before it is tried again.
	tried map[string]time.Time
}

type answer struct {
	what osimage.Answer
	at   time.Time
}

// Setup registers the reconciler, and the one of builds, with a manager.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	all := queue.Debounce("osimages", settle)
	changed := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	err := ctrl.NewControllerManagedBy(mgr).Named("osimages").WithOptions(controller.Options{RateLimiter: queue.Backoff()}).
		Watches(&v1alpha1.OSImage{}, all, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&v1alpha1.OSBuild{}, all).
		Watches(&v1alpha1.UpdatePool{}, all, changed).
		Watches(&v1alpha1.NodeConfig{}, all, changed).
		Complete(r)
	if err != nil {
		return err
	}
	return r.builds().Setup(mgr)
}

func (r *Reconciler) builds() *osbuild.Builds {
	return &osbuild.Builds{Client: r.Client, Live: r.Live, Over: r.Over, Bases: r.Bases, Now: r.Now, Tell: r.Tell}
}

// Reconcile decides for all OSImages and writes the differences.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	w, err := r.gather(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.Tell.Count(w.builds, w.images)
	if len(w.images)+len(w.builds) == 0 {
		return ctrl.Result{}, nil
	}
	var errs []error
	busy := false
	for i := range w.images {
		again, err := r.reconcileOne(ctx, w, &w.images[i])
		busy = busy || again
		errs = append(errs, err)
	}
	errs = append(errs, r.sweep(ctx, w), (&prepuller{Client: r.Client, Live: r.Live}).Sweep(ctx, w.poolsWithImage()))
	if err := errors.Join(errs...); err != nil {
		return ctrl.Result{}, err
	}
	if busy {
		return ctrl.Result{RequeueAfter: busyEvery}, nil
	}
	return ctrl.Result{RequeueAfter: recheck}, nil
}

// reconcileOne reconciles one OSImage; again asks for another reconcile soon.
func (r *Reconciler) reconcileOne(ctx context.Context, w *imageSnapshot, o *v1alpha1.OSImage) (again bool, err error) {
	if !o.DeletionTimestamp.IsZero() {
		return false, nil // its builds go with it
	}
	if o.Spec.Image != "" {
		return r.finished(ctx, w, o)
	}
	about, text, x, err := r.readInputs(ctx, o)
	if err != nil {
		return false, err
	}
	if about.ref == "" && about.problem == "" {
		_, err := r.writeStatus(ctx, w, o, about, nil)
		return true, err // nothing is known of the base yet
	}
	builds := w.buildsOf(o)
	wishes := w.poolPlans(o, about, text)
	if again, err = r.decideAll(ctx, w, wishes, builds, x); err != nil {
		return false, err
	}
	if err := r.act(ctx, w, o, wishes); err != nil {
		return false, err
	}
	held, err := r.writeStatus(ctx, w, o, about, wishes)
	if err == nil {
		r.emitEvents(o, wishes)
	}
	return again || !held, err
}

// decideAll for every pool; again: something is to come by itself.
func (r *Reconciler) decideAll(ctx context.Context, w *imageSnapshot, wishes []*poolPlan, builds []osimage.Build, ways osbuild.Inputs) (again bool, err error) {
	for _, x := range wishes {
		if err := r.decide(ctx, w, x, builds, ways); err != nil {
			return false, err
		}
		again = again || !slices.Contains([]osimage.Verb{osimage.Use, osimage.Keep, osimage.Stuck}, x.decision.Verb)
	}
	return again, nil
}

// emitEvents what is new of a pool, and needed no build or no boot.
func (r *Reconciler) emitEvents(o *v1alpha1.OSImage, wishes []*poolPlan) {
	for _, x := range wishes {
		was, d := x.before, x.decision
		switch {
		case d.Verb == osimage.Use && was.Build != "" && d.Build != was.Build && d.Build != was.Wanted:
			r.Tell.Reused(o, x.pool.Name, d.Build)
		case x.live != nil && (was.Live == nil || was.Live.Build != x.live.Build):
			r.Tell.NotBooted(o, x.pool.Name, d.Why)
		}
	}
}

// readInputs everything that an OSImage says and names.
func (r *Reconciler) readInputs(ctx context.Context, o *v1alpha1.OSImage) (about base, text osbuild.Texts, x osbuild.Inputs, err error) {
	if text, err = osbuild.ReadTexts(ctx, r.Live, o); err != nil {
		return about, text, x, err
	}
	if x, err = osbuild.ReadInputs(ctx, r.Live, o); err != nil {
		return about, text, x, err
	}
	if text.Context = x.Context; x.Problem != "" { // the way to registries may be wrong: none is asked
		return base{ref: o.Status.Base, problem: x.Problem}, text, x, nil
	}
	about, err = r.resolve(ctx, o, x)
	return about, text, x, err
}

// decide asks the registry if the decision needs it.
func (r *Reconciler) decide(ctx context.Context, w *imageSnapshot, x *poolPlan, builds []osimage.Build, ways osbuild.Inputs) error {
	s := osimage.Situation{Wanted: x.inputs, Builds: builds, Current: x.before.Build, Refused: x.refused, HeldBuild: x.pool.Spec.OSBuild}
	asked := x.image.Annotations[v1alpha1.AnnotationRebuild]
	s.RetryRequested = asked != "" && asked != x.image.Status.Rebuilt
	if x.refused == "" {
		s.Live, s.LiveWhy = w.liveDifference(x, builds)
	}
	var err error
	if x.inputs.Output != "" && x.refused == "" {
		if _, s.NoBase, err = r.Bases.Find(ctx, x.inputs.Base, ""); err != nil {
			return err
		}
	}
	x.decision = osimage.Decide(s)
	if x.decision.Verb == osimage.Ask {
		i := slices.IndexFunc(builds, func(b osimage.Build) bool { return b.Name == x.decision.Build })
		if s.Registry, err = r.answerFor(ctx, w, x, builds[i], ways); err != nil {
			return err
		}
		x.decision = osimage.Decide(s)
	}
	return r.decideReboot(ctx, w, x, s, ways)
}

// answerFor is what the registry says of a build's image, or what is known where there is none.
func (r *Reconciler) answerFor(ctx context.Context, w *imageSnapshot, x *poolPlan, b osimage.Build, ways osbuild.Inputs) (osimage.Answer, error) {
	if b.Inputs.Output != "" {
		return w.answerWithoutRegistry(b.Name), nil
	}
	return r.askRegistry(ctx, x.image, b, ways.Transport(r.Over))
}

// answerWithoutRegistry answers if there is no registry: the layers of an image above its base
// are in the cluster, or no longer.
func (w *imageSnapshot) answerWithoutRegistry(build string) osimage.Answer {
	if b := w.build(build); b != nil {
		if c := w.contents[b.Status.Parts]; c != nil && v1alpha1.ContentName(v1alpha1.ContentOSImage, c.Data) == c.Name {
			return osimage.Present
		}
	}
	return osimage.Absent
}

// resolve the registry whether a build's image is still there.
func (r *Reconciler) askRegistry(ctx context.Context, o *v1alpha1.OSImage, b osimage.Build, over http.RoundTripper) (osimage.Answer, error) {
	ref := b.Inputs.Repository + "@" + b.Digest
	r.mu.Lock()
	known, ok := r.has[ref]
	r.mu.Unlock()
	if ok && known.what == osimage.Present && r.Now().Sub(known.at) < hasEvery {
		return known.what, nil
	}
	keys, problem, err := osbuild.Keys(ctx, r.Live, osbuild.PushSecret(&o.Spec))
	if err != nil {
		return "", err
	}
	if problem != "" {
		return osimage.Denied, nil
	}
	there, err := registry.NewWriter(keys, over).Has(ctx, b.Inputs.Repository, b.Digest)
	what := osimage.Absent
	var f *registry.Failure
	switch {
	case errors.As(err, &f) && f.Kind == registry.Unauthorized:
		what = osimage.Denied
	case err != nil:
		what = osimage.Unreachable
	case there:
		what = osimage.Present
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.has == nil {
		r.has = map[string]answer{}
	}
	r.has[ref] = answer{what, r.Now()}
	return what, nil
}

// poller asks over the way that an OSImage gives.
func (r *Reconciler) poller(x osbuild.Inputs) *registry.Poller {
	way := x.Way()
	if way == "" {
		return r.Poller
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pollers == nil || len(r.pollers) > maxPollers {
		r.pollers = map[string]*registry.Poller{}
	}
	if r.pollers[way] == nil {
		r.pollers[way] = registry.NewPoller(x.Transport(r.Over), r.Now)
	}
	return r.pollers[way]
}

// maxPollers are remembered; each saves questions only.
const maxPollers = 16
