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
	// settle is how long events are collected before everything is looked at.
	settle = 300 * time.Millisecond
	// busyEvery is how often it is looked at while something builds.
	busyEvery = 2 * time.Second
	// recheck is how often it is looked at without an event: ConfigMaps and
	// registries are not watched.
	recheck = 30 * time.Second
	// trackEvery is how old the digest of a base that is followed may be.
	trackEvery = time.Minute
	// hasEvery is how long the answer counts that an image is there.
	hasEvery = 10 * time.Minute
)

// Reconciler looks at all OSImages at once.
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
	emitted map[string]seen
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

// Reconcile looks at everything and writes what differs.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	w, err := r.gather(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.Tell.Count(w.builds)
	if len(w.images)+len(w.builds) == 0 {
		return ctrl.Result{}, nil
	}
	var errs []error
	busy := false
	for i := range w.images {
		again, err := r.image(ctx, w, &w.images[i])
		busy = busy || again
		errs = append(errs, err)
	}
	errs = append(errs, r.sweep(ctx, w), (&prepuller{Client: r.Client, Live: r.Live}).Sweep(ctx, w.wanting()))
	if err := errors.Join(errs...); err != nil {
		return ctrl.Result{}, err
	}
	if busy {
		return ctrl.Result{RequeueAfter: busyEvery}, nil
	}
	return ctrl.Result{RequeueAfter: recheck}, nil
}

// image looks at one OSImage; again says that it is to be looked at soon.
func (r *Reconciler) image(ctx context.Context, w *imageSnapshot, o *v1alpha1.OSImage) (again bool, err error) {
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
	wishes := w.wishes(o, about, text)
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
func (r *Reconciler) decideAll(ctx context.Context, w *imageSnapshot, wishes []*wish, builds []osimage.Build, ways osbuild.Given) (again bool, err error) {
	for _, x := range wishes {
		if err := r.decide(ctx, w, x, builds, ways); err != nil {
			return false, err
		}
		again = again || !slices.Contains([]osimage.Verb{osimage.Use, osimage.Keep, osimage.Stuck}, x.decision.Verb)
	}
	return again, nil
}

// emitEvents what is new of a pool, and needed no build or no boot.
func (r *Reconciler) emitEvents(o *v1alpha1.OSImage, wishes []*wish) {
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
func (r *Reconciler) readInputs(ctx context.Context, o *v1alpha1.OSImage) (about base, text osbuild.Texts, x osbuild.Given, err error) {
	if text, err = osbuild.ReadTexts(ctx, r.Live, o); err != nil {
		return about, text, x, err
	}
	if x, err = osbuild.Read(ctx, r.Live, o); err != nil {
		return about, text, x, err
	}
	if text.Context = x.Context; x.Problem != "" { // the way to registries may be wrong: none is asked
		return base{ref: o.Status.Base, problem: x.Problem}, text, x, nil
	}
	about, err = r.resolve(ctx, o, x)
	return about, text, x, err
}

// decide asks the registry if the decision needs it.
func (r *Reconciler) decide(ctx context.Context, w *imageSnapshot, x *wish, builds []osimage.Build, ways osbuild.Given) error {
	s := osimage.Situation{Wanted: x.inputs, Builds: builds, Current: x.before.Build, Refused: x.refused, Held: x.pool.Spec.OSBuild}
	asked := x.image.Annotations[v1alpha1.AnnotationRebuild]
	s.Again = asked != "" && asked != x.image.Status.Rebuilt
	if x.refused == "" {
		s.Live, s.LiveWhy = w.live(x, builds)
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
		if s.Registry, err = r.answers(ctx, w, x, builds[i], ways); err != nil {
			return err
		}
		x.decision = osimage.Decide(s)
	}
	return r.spare(ctx, w, x, s, ways)
}

// answers is what the registry says of a build's image, or what is known where there is none.
func (r *Reconciler) answers(ctx context.Context, w *imageSnapshot, x *wish, b osimage.Build, ways osbuild.Given) (osimage.Answer, error) {
	if b.Inputs.Output != "" {
		return w.kept(b.Name), nil
	}
	return r.askRegistry(ctx, x.image, b, ways.Over(r.Over))
}

// kept answers for the registry where there is none: what an image has beside its base
// is in the cluster, or not any more.
func (w *imageSnapshot) kept(build string) osimage.Answer {
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
	case errors.As(err, &f) && f.Kind == registry.Denied:
		what = osimage.Denied
	case err != nil:
		what = osimage.Away
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
func (r *Reconciler) poller(x osbuild.Given) *registry.Poller {
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
		r.pollers[way] = registry.NewPoller(x.Over(r.Over), r.Now)
	}
	return r.pollers[way]
}

// maxPollers are remembered; each saves questions only.
const maxPollers = 16
