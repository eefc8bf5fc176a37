package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/agent/peertransfer"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// bundlesEvery is how often the loop retries headers and chunks that no medium and no peer
// had.
const bundlesEvery = 3 * time.Second

// bundleLoop gets the headers and blobs of approved bundles, from a medium in this node, from a
// registry or from peers, and removes those that are no longer desired.
type bundleLoop struct {
	*shared
	space     *spaceChecker
	mediaScan *mediaLoop
	peers     peertransfer.Peers
	badPeers  badPeers
	// registryRetry is the first pause after a registry failed; 0 is the default.
	registryRetry time.Duration
	// served are the bundles of the last pass.
	served []string
}

// Run gets headers and blobs. A wake-up interrupts the pass, because the desired state or the
// media changed; chunks that arrived stay in the store.
func (l *bundleLoop) Run(ctx context.Context) {
	for ctx.Err() == nil {
		pass, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.sync(pass)
		}()
		woken := false
		select {
		case <-l.wakeBundles:
			woken = true
		case <-done:
		case <-ctx.Done():
		}
		cancel()
		<-done
		if woken {
			continue
		}
		select {
		case <-ctx.Done():
		case <-l.wakeBundles:
		case <-time.After(bundlesEvery):
		}
	}
}

// sync makes one pass: headers, removal of unwanted blobs, then chunks.
func (l *bundleLoop) sync(ctx context.Context) {
	w := l.desiredState()
	if w == nil {
		return
	}
	peers := l.peers.Clients(l.id, w.Spec.Peers, l.conf.Node)
	l.registries.update(w, l.authority.Registry, l.openRegistry)
	var verdicts []model.Blocker
	var served []string
	policy, unbacked := l.policy(w), false
	for _, digest := range w.Bundles() {
		shelf, v := l.openShelf(ctx, policy, digest, peers)
		if v != nil {
			unbacked = unbacked || isUnapproved(v)
			verdicts = append(verdicts, *v)
			continue
		}
		served = append(served, shelf.Digest())
	}
	l.authority.Accept(served, w.Bundles())
	l.authority.SetUnapproved(unbacked)
	if !slices.Equal(l.served, served) { // the image loop may load more bundles now, or fewer
		l.served = slices.Clone(served)
		wake(l.wakeImages)
	}
	l.library.Serve(served)
	l.collect(ctx, w, served)
	l.update(func(s *state) { s.bundles = slices.Clone(served[:min(len(served), 8)]) })
	slices.Sort(served)
	for _, digest := range w.Bundles() {
		if ctx.Err() != nil {
			return
		}
		if slices.Contains(served, digest) {
			verdicts = append(verdicts, l.keepEdges(digest)...)
			verdicts = append(verdicts, l.acquire(ctx, w, l.library.Shelf(digest), peers)...)
		}
	}
	if ctx.Err() == nil {
		l.reportVerdicts(verdicts)
	}
	l.mediaScan.describe(ctx)
}

func (l *bundleLoop) reportVerdicts(vs []model.Blocker) {
	vs = personFirst(vs)
	failed := l.registries.report()
	l.update(func(s *state) { s.bundleVerdicts, s.copying, s.failedFetches = vs, false, failed })
}

// personFirst puts blockers that need a person first.
func personFirst(vs []model.Blocker) (out []model.Blocker) {
	for _, waiting := range []bool{false, true} {
		for _, v := range vs {
			if v.Waiting == waiting {
				out = append(out, v)
			}
		}
	}
	return out
}

// openShelf returns the bundle's shelf, with its header from disk, a medium or a peer; or
// why the header is missing or must not be used.
func (l *bundleLoop) openShelf(ctx context.Context, policy bundlestore.Policy, digest string, peers []*peerapi.Client) (*bundlestore.Shelf, *model.Blocker) {
	if s := l.library.Shelf(digest); s != nil {
		if d := policy.Decide(s.Bundle()); !d.Allowed {
			v := l.authority.Explain(d.Blocker, digest)
			return nil, &v
		}
		return s, nil
	}
	if v := l.authority.RefuseFetch(digest, policy); v != nil {
		return nil, v
	}
	var h *bundle.Header
	var refused *model.Blocker
	check := func(got *bundle.Header) error {
		if got.Digest != digest {
			return fmt.Errorf("the header belongs to bundle %s", got.Digest)
		}
		if d := policy.Decide(got); !d.Allowed {
			v := l.authority.Explain(d.Blocker, digest)
			refused = &v
			return errors.New(d.Blocker.Message)
		}
		h = got
		return nil
	}
	err := l.findHeader(ctx, digest, peers, check)
	if refused != nil {
		return nil, refused
	}
	if err == nil {
		var s *bundlestore.Shelf
		if s, err = l.library.Add(h); err == nil {
			return s, nil
		}
	}
	if m := l.media.With(digest); m != nil && m.Header() == nil {
		return nil, &model.Blocker{Reason: v1alpha1.ReasonPartMissing, Waiting: true, Object: "Bundle/" + digest,
			Message: fmt.Sprintf("bundle %s is in parts, and part 1 with its header is on no medium in this node and on no peer", digest),
			Fix:     "Plug the medium with part 1 into any node of the cluster first, or at the same time."}
	}
	v := l.noSource(v1alpha1.ReasonBundleNotFound, digest, fmt.Sprintf("bundle %s is on no medium in this node and on no peer yet", digest))
	l.recordFetch(digest, nil)
	return nil, &v
}

func (l *bundleLoop) findHeader(ctx context.Context, digest string, peers []*peerapi.Client, check func(*bundle.Header) error) error {
	if m := l.media.With(digest); m != nil && m.Header() != nil {
		return l.headerOnMedium(m, check)
	}
	if d := l.media.Delta(digest); d != nil {
		return l.headerOfDelta(ctx, d, check)
	}
	ps := make([]peertransfer.HeaderPeer, 0, len(peers)+1)
	for _, p := range peers {
		ps = append(ps, p)
	}
	if r := l.registries.get(digest); r != nil {
		ps = append(ps, r)
	}
	_, err := peertransfer.FetchHeader(ctx, digest, ps, func(raw []byte) error {
		h, err := bundle.ParseHeaderOf(digest, raw)
		if err != nil {
			return err
		}
		return check(h)
	})
	return err
}

// headerOnMedium reads the header on a medium. The label, which an unprivileged process read,
// decides whether the bundle is approved; only then this process, which is root, parses it.
func (l *bundleLoop) headerOnMedium(m *bundlestore.Plugged, check func(*bundle.Header) error) error {
	if err := check(m.Header()); err != nil {
		return err
	}
	f, err := m.Reader(nil)
	if err != nil {
		l.media.Fail(m, err)
		return err
	}
	return check(f.Header())
}

// acquire gets the chunks of one bundle in rounds: an index or a manifest names further
// blobs, so that each round can need more than the one before.
func (l *bundleLoop) acquire(ctx context.Context, w *desired.State, s *bundlestore.Shelf, peers []*peerapi.Client) []model.Blocker {
	defer l.countProgress(ctx, w)
	for ctx.Err() == nil {
		hold, _ := l.pinsToStore(ctx, w)
		x := s.Wanted(hold, platform())
		own := x.Chunks(s.Bundle().Chunks)
		missing := slices.DeleteFunc(slices.Clone(own), s.Has)
		if len(missing) == 0 {
			l.shareRegistry(s, own, nil)
			l.restoreForPeers(ctx, w, s, peers)
			return x.Missing
		}
		if vs := l.space.checkSpace(ctx, w); len(vs) > 0 {
			l.shareRegistry(s, own, vs)
			return append(x.Missing, vs...)
		}
		l.update(func(s *state) { s.copying = true })
		if vs := l.copyRound(ctx, s, missing, peers); len(vs) > 0 {
			l.shareRegistry(s, own, vs)
			return append(x.Missing, vs...)
		}
	}
	return nil
}

// needed returns the blobs of the pin set in these bundles. known is false while a header is
// missing, because its blobs are unknown then.
func (l *bundleLoop) needed(hold model.PinSet, digests []string) (bundles, blobs map[string]bool, known bool) {
	bundles, blobs = map[string]bool{}, map[string]bool{}
	for _, d := range digests {
		s := l.library.Shelf(d)
		if s == nil {
			return nil, nil, false
		}
		bundles[d] = true
		for _, i := range s.Wanted(hold, platform()).Blobs {
			blobs[s.Bundle().Metadata.Blobs[i].Digest] = true
		}
	}
	return bundles, blobs, true
}

// collect removes bundles that are neither served nor pinned, and their blobs.
func (l *bundleLoop) collect(ctx context.Context, w *desired.State, served []string) {
	if l.runner.Busy() {
		return // the run may need blobs that the desired state no longer names
	}
	hold, known := l.pinsToStore(ctx, w)
	if !known {
		return
	}
	bundles, blobs, known := l.needed(hold, append(w.Bundles(), served...))
	if !known {
		return
	}
	for _, d := range w.OwnBlobs() {
		blobs[d] = true
	}
	l.keepForDeltas(served, bundles, blobs)
	have, err := l.library.Blobs().List()
	if err != nil {
		l.log.Warn("failed to list old blobs", "error", err)
		return
	}
	for d := range have {
		if blobs[d] = !l.expired(w, d, blobs[d]); !blobs[d] {
			defer wake(l.wakeImages) // the cold start reports its copies
		}
	}
	for _, d := range l.library.Digests() {
		bundles[d] = !l.expired(w, d, bundles[d])
	}
	if err := l.library.Collect(bundles, blobs); err != nil {
		l.log.Warn("failed to remove old blobs", "error", err)
	}
}

// expired reports whether an object was unwanted for the grace time. A node that needs room
// does not wait, unless its desired state is empty: a recreated NodeUpdate is, for a moment.
func (l *bundleLoop) expired(w *desired.State, object string, wanted bool) bool {
	over := l.unwanted.Expired(object, wanted)
	return over || !wanted && l.full.Load() && w.Spec.Pins != ""
}

func isUnapproved(v *model.Blocker) bool {
	return v.Reason == v1alpha1.ReasonApprovalNotFound || v.Reason == v1alpha1.ReasonApprovalUnreadable
}
