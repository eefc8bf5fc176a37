package osimages

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/osimages/osbuild"
	"github.com/refit-dev/refit/internal/controller/ssa"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/osimage"
	"github.com/refit-dev/refit/internal/osimage/contents"
	"github.com/refit-dev/refit/internal/text"
)

const (
	// factsWait is how long a reconcile waits for a read: a small image is read by then.
	factsWait = 2 * time.Second
	// factsTime bounds one read, factsRest is the time until the next try.
	factsTime = 30 * time.Minute
	factsRest = time.Minute
)

// factsReader reads what images have, one image at a time and next to the reconciles: an image
// of some gigabytes takes half a minute. The zero value is ready.
type factsReader struct {
	mu     sync.Mutex
	reads  map[string]*factsRead
	tables contents.Tables
	// turn is held by the image that is read.
	turn sync.Mutex
	// wait replaces factsWait in tests.
	wait time.Duration
}

// factsRead is one read; the rest counts once done is closed.
type factsRead struct {
	done chan struct{}
	// awaited: a reconcile has waited for it already.
	awaited bool
	facts   []osimage.ImageFacts
	err     error
	at      time.Time
}

// start returns the read of an image; it starts one if there is none, or if the last one failed
// some time ago.
func (f *factsReader) start(ctx context.Context, image string, open openFunc, now func() time.Time) *factsRead {
	f.mu.Lock()
	defer f.mu.Unlock()
	if old := f.reads[image]; old != nil && !old.isOld(now()) {
		return old
	}
	if f.reads == nil || len(f.reads) > maxListedNodes {
		f.reads = map[string]*factsRead{}
	}
	x := &factsRead{done: make(chan struct{})}
	f.reads[image] = x
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), factsTime)
	go func() {
		defer cancel()
		f.turn.Lock()
		defer f.turn.Unlock()
		x.facts, x.err = f.read(ctx, open)
		x.at = now()
		close(x.done)
	}()
	return x
}

func (x *factsRead) isOld(now time.Time) bool {
	select {
	case <-x.done:
		return x.err != nil && now.Sub(x.at) >= factsRest
	default:
		return false
	}
}

func (f *factsReader) read(ctx context.Context, open openFunc) ([]osimage.ImageFacts, error) {
	root, err := open(ctx)
	if err != nil {
		return nil, err
	}
	facts, err := contents.ReadAllFacts(ctx, root, contents.FactsLimits(), &f.tables)
	if err == nil && len(facts) == 0 {
		err = errors.New("its source has none of its platforms")
	}
	return facts, err
}

// openFunc opens an image.
type openFunc func(context.Context) (oci.Root, error)

// sourceOf finds who has all of an image: nodes with a bundle that has it, or its base; else the
// registry, which is not asked for an image that a bundle brings.
func (r *Reconciler) sourceOf(ctx context.Context, w *imageSnapshot, x *poolPlan, st *v1alpha1.OSImagePool) (open openFunc, problem string, err error) {
	if b := w.build(st.Build); b != nil && b.Spec.Output == v1alpha1.OutputNodes {
		return r.assembledSource(ctx, w, b)
	}
	why := ""
	if r.Bases != nil {
		var found *osbuild.Base
		if found, why, err = r.Bases.Find(ctx, st.Image, ""); err != nil {
			return nil, "", err
		}
		if found != nil {
			return func(context.Context) (oci.Root, error) { return found.Whole(), nil }, "", nil
		}
	}
	if strings.HasPrefix(st.Image, model.NoRegistry+"/") {
		return nil, cmp.Or(why, "no registry has it"), nil
	}
	from, problem, err := r.readerOf(ctx, x.image)
	return func(ctx context.Context) (oci.Root, error) { return from.Open(ctx, st.Image) }, problem, err
}

// assembledSource is a base of a bundle with what a build added to it.
func (r *Reconciler) assembledSource(ctx context.Context, w *imageSnapshot, b *v1alpha1.OSBuild) (openFunc, string, error) {
	base, why, err := r.Bases.Find(ctx, b.Spec.Base, "")
	if err != nil || base == nil {
		return nil, why, err
	}
	c := w.contents[b.Status.Parts]
	if c == nil {
		return nil, "the parts of build " + b.Name + " are not there", nil
	}
	parts, err := model.ParseImageOverlay(c.Data)
	if err != nil {
		return nil, err.Error(), nil //nolint:nilerr // the pool's status and the gate report it
	}
	return func(context.Context) (oci.Root, error) { return base.Assembled(parts), nil }, "", nil
}

// addFacts records a Content with what an image has.
func (w *imageSnapshot) addFacts(c *v1alpha1.Content) {
	if c.Type != v1alpha1.ContentOSFacts {
		return
	}
	if digest, _, err := contents.OpenFacts([]byte(c.Data)); err == nil {
		w.facts[digest] = c.Name
	}
}

// factsPart has what a pool's image has read once for its digest, for the gate. reading: that is
// not known yet.
func (r *Reconciler) factsPart(ctx context.Context, w *imageSnapshot, x *poolPlan, st *v1alpha1.OSImagePool) (reading bool, err error) {
	_, digest, ok := strings.Cut(st.Image, "@")
	if st.Facts = w.facts[digest]; !ok || st.Facts != "" {
		st.FactsMessage = ""
		return false, nil
	}
	if st.Image != x.before.Image {
		st.FactsMessage = ""
	}
	open, problem, err := r.sourceOf(ctx, w, x, st)
	if err != nil || problem != "" {
		st.FactsMessage = text.Truncate(problem, 1024)
		return false, err
	}
	read := r.facts.start(ctx, st.Image, open, r.Now)
	if !r.facts.await(ctx, read) {
		return true, nil
	}
	if read.err != nil {
		st.FactsMessage = text.Truncate(read.err.Error(), 1024)
		return false, nil //nolint:nilerr // the pool's status and the gate report it
	}
	c, err := ssa.MakeContent(ctx, r.Client, v1alpha1.ContentOSFacts, string(contents.SealFacts(digest, read.facts)))
	if err != nil {
		return false, err
	}
	w.named[c.Name], w.contents[c.Name], w.facts[digest] = true, c, c.Name
	st.Facts, st.FactsMessage = c.Name, ""
	return false, nil
}

// await reports whether a read ended. Only the first reconcile waits some time for it: a large
// image must not slow down the others.
func (f *factsReader) await(ctx context.Context, x *factsRead) bool {
	most := cmp.Or(f.wait, factsWait)
	if x.awaited {
		most = 0
	}
	x.awaited = true
	wait := time.NewTimer(most)
	defer wait.Stop()
	select {
	case <-x.done:
		return true
	case <-wait.C:
	case <-ctx.Done():
	}
	select {
	case <-x.done:
		return true
	default:
		return false
	}
}

// readerOf reads registries as the nodes of an OSImage do, from its mirrors too.
func (r *Reconciler) readerOf(ctx context.Context, o *v1alpha1.OSImage) (from *oci.Registries, problem string, err error) {
	x, err := osbuild.ReadInputs(ctx, r.Live, o)
	if err != nil || x.Problem != "" {
		return nil, x.Problem, err
	}
	keys, problem, err := osbuild.Keys(ctx, r.Live, nodeSecret(o))
	if err != nil || problem != "" {
		return nil, problem, err
	}
	if from, err = osbuild.RegistryReader(keys, x.Transport(r.Over)); err != nil {
		return nil, "", err
	}
	return from.WithMirrors(x.Elsewhere), "", nil
}
