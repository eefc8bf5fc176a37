package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/agent/peertransfer"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/pin"
	"github.com/refit-dev/refit/internal/text"
)

// bundlesEvery is how often the loop retries headers and chunks that no medium and no peer
// had.
const bundlesEvery = 3 * time.Second

// bundleLoop gets the headers and blobs of approved bundles, from a medium in this node or
// from peers, and removes those that are no longer desired.
type bundleLoop struct {
	*shared
	space     *spaceChecker
	mediaScan *mediaLoop
	peers     peertransfer.Peers
	badPeers  badPeers
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
			verdicts = append(verdicts, l.acquire(ctx, w, l.library.Shelf(digest), peers)...)
		}
	}
	if ctx.Err() == nil {
		l.reportVerdicts(verdicts)
	}
	l.mediaScan.describe(ctx)
}

func (l *bundleLoop) reportVerdicts(vs []model.Blocker) {
	// Blockers that need a person come first.
	slices.SortStableFunc(vs, func(x, y model.Blocker) int {
		switch {
		case x.Waiting == y.Waiting:
			return 0
		case y.Waiting:
			return -1
		}
		return 1
	})
	l.update(func(s *state) { s.bundleVerdicts, s.copying = vs, false })
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
	return nil, &model.Blocker{Reason: v1alpha1.ReasonBundleNotFound, Waiting: true, Object: "Bundle/" + digest,
		Message: fmt.Sprintf("bundle %s is on no medium in this node and on no peer yet", digest),
		Fix:     "Plug the medium into any node of the cluster."}
}

func (l *bundleLoop) findHeader(ctx context.Context, digest string, peers []*peerapi.Client, check func(*bundle.Header) error) error {
	if m := l.media.With(digest); m != nil {
		return l.headerOnMedium(m, check)
	}
	ps := make([]peertransfer.HeaderPeer, 0, len(peers))
	for _, p := range peers {
		ps = append(ps, p)
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
	f, err := m.Reader()
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
		missing := l.missingChunks(s, x)
		if missing == nil {
			return x.Missing
		}
		if vs := l.space.checkSpace(ctx, w); len(vs) > 0 {
			return append(x.Missing, vs...)
		}
		l.update(func(s *state) { s.copying = true })
		if vs := l.copyRound(ctx, s, missing, peers); len(vs) > 0 {
			return append(x.Missing, vs...)
		}
	}
	return nil
}

// copyRound gets chunks from the medium, and the rest from peers. It returns no blocker if all
// of them arrived or the round was interrupted.
func (l *bundleLoop) copyRound(ctx context.Context, s *bundlestore.Shelf, chunks []int, peers []*peerapi.Client) []model.Blocker {
	progress := l.countArrivals()
	defer wake(l.wakeImages)
	defer l.sources.Save()
	if m := l.media.With(s.Digest()); m != nil {
		f, err := m.Reader()
		if err == nil {
			err = bundlestore.Copy(ctx, f, l.countingShelf(s, func(n int64) sourceBytes { return sourceBytes{Media: n} }), chunks, func(n int64) { progress(s.Digest(), n, 0) })
		}
		if errors.Is(err, bundlestore.ErrStore) {
			return l.waiting(err)
		}
		if err != nil && ctx.Err() == nil {
			l.log.Warn("failed to copy a medium completely", "medium", m.Path, "error", err)
			l.media.Fail(m, err)
			l.mediaScan.describe(ctx)
		}
	}
	var verdicts []model.Blocker
	left := slices.DeleteFunc(slices.Clone(chunks), s.Has)
	if len(left) > 0 && ctx.Err() == nil {
		verdicts = l.fetch(ctx, s, left, peers, progress)
	}
	return verdicts
}

// arriving is a shelf whose new chunks are noted with where they came from.
type countingShelf struct {
	*bundlestore.Shelf
	onNew func(n int)
}

// Put counts a chunk that was new.
func (s countingShelf) Put(n int, data []byte) (bool, error) {
	kept, err := s.Shelf.Put(n, data)
	if kept {
		s.onNew(n)
	}
	return kept, err
}

func (l *bundleLoop) countingShelf(s *bundlestore.Shelf, from func(bytes int64) sourceBytes) countingShelf {
	return countingShelf{s, func(n int) {
		c := s.Bundle().Chunks.Chunk(n)
		l.arrivals.Add(s.Bundle().Metadata.Blobs[c.Blob].Digest, from(c.Size))
	}}
}

const (
	// fetchTime bounds one attempt, so that the next one sees new peers, media in other
	// nodes and the room that is left.
	fetchTime = 2 * time.Minute
	// silenceTime is how long no chunk may arrive before the status reports it.
	silenceTime = 10 * time.Second
)

func (l *bundleLoop) fetch(ctx context.Context, s *bundlestore.Shelf, chunks []int, peers []*peerapi.Client, progress func(string, int64, int64)) []model.Blocker {
	noSource := []model.Blocker{{Reason: v1alpha1.ReasonNoSource, Waiting: true, Object: "Bundle/" + s.Digest(),
		Message: fmt.Sprintf("%s of bundle %s missing: on no medium in this node, and no peer has sent them", text.Count(len(chunks), "chunk"), s.Digest()),
		Fix:     "Plug the medium into any node of the cluster."}}
	if len(peers) == 0 {
		return noSource
	}
	ps := make([]peertransfer.Peer, 0, len(peers))
	for _, p := range peers {
		ps = append(ps, p)
	}
	var came atomic.Bool
	say := time.AfterFunc(silenceTime, func() {
		l.update(func(s *state) { s.bundleVerdicts = noSource })
	})
	defer say.Stop()
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	err := peertransfer.Fetch(ctx, l.countingShelf(s, func(n int64) sourceBytes { return sourceBytes{Peers: n} }), chunks, ps, peertransfer.Settings{Log: l.log, First: l.restoreFirst(s), ChunkTime: peertransfer.ChunkTime(&l.limit, s.Bundle().Metadata.ChunkSize), OnBadChunk: func(p peerapi.Peer, _ int) { l.reportBadPeer(ctx, p.Name) }, OnChunk: func(n int64) {
		came.Store(true)
		say.Reset(silenceTime)
		progress(s.Digest(), 0, n)
	}})
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded) && came.Load():
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return noSource
	}
	return l.waiting(err)
}

// waiting returns a blocker that ends by itself: copying continues without it.
func (l *bundleLoop) waiting(err error) []model.Blocker {
	if fsutil.IsFull(err) {
		l.full.Store(true) // the image loop sees when there is room again
		return []model.Blocker{{Reason: v1alpha1.ReasonInsufficientSpace, Object: "Node/" + l.conf.Node,
			Message: fmt.Sprintf("node %s has no space left in %s: %v. Copying has stopped", l.conf.Node, l.conf.StateDir, err),
			Fix:     "Free space on that file system; do not delete images that refit pinned. Copying then continues by itself."}}
	}
	return []model.Blocker{{Reason: v1alpha1.ReasonCopying, Waiting: true, Message: err.Error(), Object: "Node/" + l.conf.Node}}
}

func (l *bundleLoop) missingChunks(s *bundlestore.Shelf, x pin.Needed) []int {
	var out []int
	for _, n := range x.Chunks(s.Bundle().Chunks) {
		if !s.Has(n) {
			out = append(out, n)
		}
	}
	return out
}

// countArrivals returns a function that counts bytes as they arrive and wakes the image loop,
// which loads complete images meanwhile.
func (l *bundleLoop) countArrivals() func(digest string, media, peers int64) {
	var looked time.Time
	return func(digest string, media, peers int64) {
		l.sources.Add(digest, sourceBytes{Media: media, Peers: peers})
		l.mu.Lock()
		l.state.pins.BytesDone += media + peers
		if !model.NeedsPerson(l.state.bundleVerdicts) {
			l.state.bundleVerdicts = nil // chunks arrive: the wait is over
		}
		look := time.Since(looked) > time.Second
		if look {
			looked = time.Now()
		}
		l.mu.Unlock()
		if look {
			wake(l.wakeStatus)
			wake(l.wakeImages)
		}
	}
}

// countProgress counts again how much of the pin set is in the store.
func (l *bundleLoop) countProgress(ctx context.Context, w *desired.State) {
	count := l.countStore(ctx, w)
	l.update(func(s *state) {
		if l.want.Spec.Pins == w.Spec.Pins { // else the counts are those of an old list
			count(&s.pins)
		}
	})
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
