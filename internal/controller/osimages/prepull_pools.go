package osimages

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/osimages/osbuild"

	"github.com/refit-dev/refit/internal/registry"
)

// cachedAnswer is what a registry said of an image that nodes are to hold.
type cachedAnswer struct {
	size int64
	// problem is nil if it is there.
	problem *registry.Failure
	at      time.Time
}

// askAgain is how old an answer may be that an image is not to be had.
const askAgain = 20 * time.Second

// prepullPool has the nodes of a pool prepull its image, and reports their progress in the
// pool's status: missing, unauthorized and unreachable are different reasons.
func (r *Reconciler) prepullPool(ctx context.Context, w *imageSnapshot, x *poolPlan, st *v1alpha1.OSImagePool) (all bool, err error) {
	st.Prepulled, st.Missing, st.PrepullReason, st.PrepullMessage = "", nil, "", ""
	if !strings.Contains(st.Image, "@") {
		return true, nil
	}
	k := &prepuller{Client: r.Client, Live: r.Live}
	want := wantOf(x, st)
	h, err := w.countHolders(ctx, k, want)
	if err != nil {
		return false, err
	}
	st.Prepulled, st.Missing = fmt.Sprintf("%d/%d", h.Held, h.Nodes), h.Missing
	if b := w.build(st.Build); b != nil && b.Spec.Output == v1alpha1.OutputNodes {
		return r.prepullAssembled(ctx, k, b, want, h, st)
	}
	return r.prepullFetched(ctx, k, x, want, h, st)
}

// prepullFetched is hold for an image of a registry, or one that a bundle brings.
func (r *Reconciler) prepullFetched(ctx context.Context, k *prepuller, x *poolPlan, want WantedImage, h PrepullProgress, st *v1alpha1.OSImagePool) (all bool, err error) {
	var about cachedAnswer
	if !h.Bundled {
		if about, err = r.describe(ctx, x.image, st.Image); err != nil {
			return false, err
		}
		want.Size = about.size
	}
	why, err := k.Pull(ctx, want, h)
	if all = h.Held >= h.Nodes; all || err != nil {
		return all, err
	}
	st.PrepullReason, st.PrepullMessage = prepullStatus(about.problem, why, h)
	if st.PrepullReason == v1alpha1.ReasonImagesMissing && why == "" && hostsFetch(want, h) {
		st.PrepullReason = v1alpha1.ReasonOSImageNotFetched
	}
	return false, nil
}

// prepullAssembled is hold for an image that no registry has: nodes put it together from the
// base that a bundle brings, and from what was added to it.
func (r *Reconciler) prepullAssembled(ctx context.Context, k *prepuller, b *v1alpha1.OSBuild, want WantedImage, h PrepullProgress, st *v1alpha1.OSImagePool) (all bool, err error) {
	want.Parts, want.Secret = b.Status.Parts, ""
	_, want.Base, _ = strings.Cut(b.Spec.Base, "@")
	before, err := k.BundleOf(ctx, want.Pool.Name)
	if err != nil {
		return false, err
	}
	found, _, err := r.Bases.Find(ctx, b.Spec.Base, before)
	if err != nil {
		return false, err
	}
	if found != nil {
		want.Bundle = found.Bundle
	}
	why, err := k.Pull(ctx, want, h)
	if all = h.Held >= h.Nodes; all || err != nil {
		return all, err
	}
	switch {
	case why != "":
		st.PrepullReason, st.PrepullMessage = v1alpha1.ReasonOSBaseNotPinned, text.Truncate(why, 1024)
	case h.Why != "":
		st.PrepullReason, st.PrepullMessage = v1alpha1.ReasonImagesMissing, text.Truncate(h.Why, 1024)
	default:
		st.PrepullReason, st.PrepullMessage = v1alpha1.ReasonImagesMissing, "they put it together from the base that a bundle brings"
	}
	return false, nil
}

// hostsFetch: the nodes' container runtimes cannot fetch the image, which the hosts then
// fetch themselves.
func hostsFetch(want WantedImage, h PrepullProgress) bool {
	return h.Failing && want.Secret == "" && !h.Bundled
}

// countHolders at what nodes hold, which is gathered once.
func (w *imageSnapshot) countHolders(ctx context.Context, k *prepuller, want WantedImage) (h PrepullProgress, err error) {
	if w.site == nil {
		if w.site, err = k.Gather(ctx); err != nil {
			return h, err
		}
	}
	return k.Count(ctx, w.site, want)
}

// wantOf a pool: a built image is called as its build, a finished one by its digest.
func wantOf(x *poolPlan, st *v1alpha1.OSImagePool) WantedImage {
	_, digest, _ := strings.Cut(st.Image, "@sha256:")
	want := WantedImage{OSImage: x.image, Pool: x.pool, Image: st.Image, Tag: st.Build}
	if want.Tag == "" {
		want.Tag = "refit-" + digest[:min(12, len(digest))]
	}
	if s := nodeSecret(x.image); s != nil {
		want.Secret = s.Name
	}
	return want
}

// nodeSecret is the one that may read images: who may only push is never a node.
func nodeSecret(o *v1alpha1.OSImage) *v1alpha1.PullSecret {
	if o.Spec.PullSecret != nil {
		return o.Spec.PullSecret
	}
	return o.Spec.Secret
}

func prepullStatus(problem *registry.Failure, why string, h PrepullProgress) (reason, message string) {
	switch {
	case problem == nil && why != "":
		message = why
	case problem == nil && h.Why != "":
		message = h.Why
	case problem == nil:
		message = "they are fetching it"
	case problem.Kind == registry.Unauthorized:
		return v1alpha1.ReasonRegistryUnauthorized, text.Truncate(withoutRetryTime(problem), 1024)
	case problem.Kind == registry.Unreachable || problem.Kind == registry.RateLimited:
		return v1alpha1.ReasonRegistryUnreachable, text.Truncate(withoutRetryTime(problem), 1024)
	default:
		return v1alpha1.ReasonOSImageAbsent, text.Truncate(withoutRetryTime(problem), 1024)
	}
	return v1alpha1.ReasonImagesMissing, text.Truncate(message, 1024)
}

// withoutRetryTime says what went wrong without the time at which it is asked again, which would
// make another status of every look.
func withoutRetryTime(f *registry.Failure) string {
	g := *f
	g.Until = time.Time{}
	return g.Error()
}

// describe asks the registry that nodes fetch an image from.
func (r *Reconciler) describe(ctx context.Context, o *v1alpha1.OSImage, image string) (cachedAnswer, error) {
	r.mu.Lock()
	known, ok := r.emitted[image]
	r.mu.Unlock()
	fresh := hasEvery
	if known.problem != nil {
		fresh = askAgain
	}
	if ok && r.Now().Sub(known.at) < fresh {
		return known, nil
	}
	x, err := osbuild.ReadInputs(ctx, r.Live, o)
	if err != nil {
		return known, err
	}
	keys, _, err := osbuild.Keys(ctx, r.Live, nodeSecret(o))
	if err != nil {
		return known, err
	}
	repository, digest, _ := strings.Cut(image, "@")
	d, err := r.poller(x).Describe(ctx, registry.Place{Repository: repository, Keys: keys}, digest)
	now := cachedAnswer{size: d.Size, at: r.Now()}
	if err != nil && !errors.As(err, &now.problem) {
		return known, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.emitted == nil || len(r.emitted) > maxListedNodes {
		r.emitted = map[string]cachedAnswer{}
	}
	r.emitted[image] = now
	return now, nil
}

// maxListedNodes answers are remembered; each saves questions only.
const maxListedNodes = 256
