package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/agent/peertransfer"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// bundlesEvery is how often headers and chunks that nobody had are asked for
// again.
const bundlesEvery = 3 * time.Second

func platform() string { return "linux/" + runtime.GOARCH }

// bundlesLoop gets headers and blobs. A wake cuts off what is under way: the
// want or the media changed, and what was fetched is kept anyway.
func (a *Agent) bundlesLoop(ctx context.Context) {
	for ctx.Err() == nil {
		pass, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			a.bundlesPass(pass)
		}()
		woken := false
		select {
		case <-a.wakeBundles:
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
		case <-a.wakeBundles:
		case <-time.After(bundlesEvery):
		}
	}
}

// bundlesPass does everything that can be done now.
func (a *Agent) bundlesPass(ctx context.Context) {
	w := a.wanted()
	if w == nil {
		return
	}
	peers := a.peers.Clients(a.id, w.Spec.Peers, a.conf.Node)
	var verdicts []model.Verdict
	var served []string
	policy, unbacked := a.policy(w), false
	for _, digest := range w.Bundles() {
		shelf, v := a.shelf(ctx, policy, digest, peers)
		if v != nil {
			unbacked = unbacked || isUnbacked(v)
			verdicts = append(verdicts, *v)
			continue
		}
		served = append(served, shelf.Digest())
	}
	a.authority.Accept(served, w.Bundles())
	a.authority.Unbacked(unbacked)
	if !slices.Equal(a.served, served) { // what is here may be loaded, or may not any more
		a.served = slices.Clone(served)
		wake(a.wakeHold)
	}
	a.library.Serve(served)
	a.collect(ctx, w, served)
	a.update(func(s *state) { s.bundles = slices.Clone(served[:min(len(served), 8)]) })
	slices.Sort(served)
	for _, digest := range w.Bundles() {
		if ctx.Err() != nil {
			return
		}
		if slices.Contains(served, digest) {
			verdicts = append(verdicts, a.acquire(ctx, w, a.library.Shelf(digest), peers)...)
		}
	}
	if ctx.Err() == nil {
		a.setBundleVerdicts(verdicts)
	}
	a.describeMedia(ctx)
}

func (a *Agent) setBundleVerdicts(vs []model.Verdict) {
	// What a person must do comes first.
	slices.SortStableFunc(vs, func(x, y model.Verdict) int {
		switch {
		case x.Waiting == y.Waiting:
			return 0
		case y.Waiting:
			return -1
		}
		return 1
	})
	a.update(func(s *state) { s.bundleVerdicts, s.copying = vs, false })
}

// shelf is the bundle's header on this node, from disk, a medium or a peer; or
// why it is not there or may not be used.
func (a *Agent) shelf(ctx context.Context, policy bundlestore.Policy, digest string, peers []*peerapi.Client) (*bundlestore.Shelf, *model.Verdict) {
	if s := a.library.Shelf(digest); s != nil {
		if d := policy.Decide(s.Bundle()); !d.Allowed {
			v := a.authority.Explain(d.Verdict, digest)
			return nil, &v
		}
		return s, nil
	}
	if v := a.authority.Hopeless(digest, policy); v != nil {
		return nil, v
	}
	var h *bundle.Header
	var refused *model.Verdict
	check := func(got *bundle.Header) error {
		if got.Digest != digest {
			return fmt.Errorf("it is that of bundle %s", got.Digest)
		}
		if d := policy.Decide(got); !d.Allowed {
			v := a.authority.Explain(d.Verdict, digest)
			refused = &v
			return errors.New(d.Verdict.Message)
		}
		h = got
		return nil
	}
	err := a.findHeader(ctx, digest, peers, check)
	if refused != nil {
		return nil, refused
	}
	if err == nil {
		var s *bundlestore.Shelf
		if s, err = a.library.Add(h); err == nil {
			return s, nil
		}
	}
	return nil, &model.Verdict{Reason: v1alpha1.ReasonBundleNotFound, Waiting: true, Object: "Bundle/" + digest,
		Message: fmt.Sprintf("bundle %s is on no medium here and no neighbour has it yet", digest),
		Fix:     "plug the medium into any node of the cluster"}
}

func (a *Agent) findHeader(ctx context.Context, digest string, peers []*peerapi.Client, check func(*bundle.Header) error) error {
	if m := a.media.With(digest); m != nil {
		return a.headerOn(m, check)
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

// headerOn is the header on a medium. Its label decides whether it may be used; only
// then this process, which is root, parses it.
func (a *Agent) headerOn(m *bundlestore.Plugged, check func(*bundle.Header) error) error {
	if err := check(m.Header()); err != nil {
		return err
	}
	f, err := m.Reader()
	if err != nil {
		a.media.Fail(m, err)
		return err
	}
	return check(f.Header())
}

// missing is how many bytes of what a node needs of a bundle are not here.
func (a *Agent) missing(s *bundlestore.Shelf, hold model.HoldList) (missing, total int64) {
	x := s.Wanted(hold, platform())
	return x.Bytes - s.BytesHere(x.Blobs), x.Bytes
}

// full reports whether a bundle is here to its last byte.
func full(s *bundlestore.Shelf) bool {
	var all []int
	var bytes int64
	for i, b := range s.Bundle().Metadata.Blobs {
		all, bytes = append(all, i), bytes+b.Size
	}
	return s.BytesHere(all) == bytes
}

// acquire gets the chunks of one bundle, round by round: what an index or a
// manifest wants is known once it is here.
func (a *Agent) acquire(ctx context.Context, w *desired.State, s *bundlestore.Shelf, peers []*peerapi.Client) []model.Verdict {
	defer a.countProgress(ctx, w)
	for ctx.Err() == nil {
		hold, _ := a.inStore(ctx, w)
		x := s.Wanted(hold, platform())
		missing := a.missingChunks(s, x)
		if missing == nil {
			return x.Missing
		}
		if vs := a.checkSpace(ctx, w); len(vs) > 0 {
			return append(x.Missing, vs...)
		}
		a.update(func(s *state) { s.copying = true })
		if vs := a.round(ctx, s, missing, peers); len(vs) > 0 {
			return append(x.Missing, vs...)
		}
	}
	return nil
}

// round gets chunks from the medium, and what it does not give from peers. No
// verdict means that all of them are here, or that the round was cut off.
func (a *Agent) round(ctx context.Context, s *bundlestore.Shelf, chunks []int, peers []*peerapi.Client) []model.Verdict {
	progress := a.progress()
	defer wake(a.wakeHold)
	defer a.sources.Save()
	if m := a.media.With(s.Digest()); m != nil {
		f, err := m.Reader()
		if err == nil {
			err = bundlestore.Copy(ctx, f, a.arriving(s, func(n int64) sourceBytes { return sourceBytes{Media: n} }), chunks, func(n int64) { progress(s.Digest(), n, 0) })
		}
		if errors.Is(err, bundlestore.ErrStore) {
			return a.waits(err)
		}
		if err != nil && ctx.Err() == nil {
			a.log.Warn("failed to copy a medium completely", "medium", m.Path, "error", err)
			a.media.Fail(m, err)
			a.describeMedia(ctx)
		}
	}
	var verdicts []model.Verdict
	left := slices.DeleteFunc(slices.Clone(chunks), s.Has)
	if len(left) > 0 && ctx.Err() == nil {
		verdicts = a.fetch(ctx, s, left, peers, progress)
	}
	return verdicts
}

// arriving is a shelf whose new chunks are noted with where they came from.
type arriving struct {
	*bundlestore.Shelf
	note func(n int)
}

// Put notes what was kept.
func (s arriving) Put(n int, data []byte) (bool, error) {
	kept, err := s.Shelf.Put(n, data)
	if kept {
		s.note(n)
	}
	return kept, err
}

func (a *Agent) arriving(s *bundlestore.Shelf, from func(bytes int64) sourceBytes) arriving {
	return arriving{s, func(n int) {
		c := s.Bundle().Chunks.Chunk(n)
		a.arrivals.Add(s.Bundle().Metadata.Blobs[c.Blob].Digest, from(c.Size))
	}}
}

const (
	// fetchTime bounds one try, so that a medium plugged in elsewhere, new peers
	// and the room left are looked at again.
	fetchTime = 2 * time.Minute
	// silence is how long nothing may come before the status says so.
	silence = 10 * time.Second
)

func (a *Agent) fetch(ctx context.Context, s *bundlestore.Shelf, chunks []int, peers []*peerapi.Client, progress func(string, int64, int64)) []model.Verdict {
	noSource := []model.Verdict{{Reason: v1alpha1.ReasonNoSource, Waiting: true, Object: "Bundle/" + s.Digest(),
		Message: fmt.Sprintf("%d chunks of bundle %s are on no medium here and no neighbour has sent them", len(chunks), s.Digest()),
		Fix:     "plug the medium into any node of the cluster"}}
	if len(peers) == 0 {
		return noSource
	}
	ps := make([]peertransfer.Peer, 0, len(peers))
	for _, p := range peers {
		ps = append(ps, p)
	}
	var came atomic.Bool
	say := time.AfterFunc(silence, func() {
		a.update(func(s *state) { s.bundleVerdicts = noSource })
	})
	defer say.Stop()
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	err := peertransfer.Fetch(ctx, a.arriving(s, func(n int64) sourceBytes { return sourceBytes{Peers: n} }), chunks, ps, peertransfer.Settings{Log: a.log, First: a.first(s), ChunkTime: peertransfer.ChunkTime(&a.limit, s.Bundle().Metadata.ChunkSize), Lied: func(p peerapi.Peer, _ int) { a.reportBadPeer(ctx, p.Name) }, Got: func(n int64) {
		came.Store(true)
		say.Reset(silence)
		progress(s.Digest(), 0, n)
	}})
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded) && came.Load():
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return noSource
	}
	return a.waits(err)
}

// waits says that copying goes on by itself when the reason has gone.
func (a *Agent) waits(err error) []model.Verdict {
	return []model.Verdict{{Reason: v1alpha1.ReasonCopying, Waiting: true, Message: err.Error(), Object: "Node/" + a.conf.Node}}
}

func (a *Agent) missingChunks(s *bundlestore.Shelf, x pin.Want) []int {
	var out []int
	for _, n := range x.Chunks(s.Bundle().Chunks) {
		if !s.Has(n) {
			out = append(out, n)
		}
	}
	return out
}

// progress returns a function that counts bytes as they arrive and has complete
// images loaded meanwhile.
func (a *Agent) progress() func(digest string, media, peers int64) {
	var looked time.Time
	return func(digest string, media, peers int64) {
		a.sources.Add(digest, sourceBytes{Media: media, Peers: peers})
		a.mu.Lock()
		a.state.holding.BytesDone += media + peers
		if !model.Blocked(a.state.bundleVerdicts) {
			a.state.bundleVerdicts = nil // whatever was waited for, it comes
		}
		look := time.Since(looked) > time.Second
		if look {
			looked = time.Now()
		}
		a.mu.Unlock()
		if look {
			wake(a.wakePublish)
			wake(a.wakeHold)
		}
	}
}

// countProgress counts anew what of the hold list is in the store.
func (a *Agent) countProgress(ctx context.Context, w *desired.State) {
	count := a.countStore(ctx, w)
	a.update(func(s *state) {
		if a.want.Spec.Pins == w.Spec.Pins { // or the counts are not about it
			count(&s.holding)
		}
	})
}

// countStore looks what of the hold list is in the store, and returns what
// writes it down.
func (a *Agent) countStore(ctx context.Context, w *desired.State) func(*v1alpha1.PinStatus) {
	var total, done int64
	payloads := 0
	hold, _ := a.inStore(ctx, w)
	for _, d := range w.Bundles() {
		s := a.library.Shelf(d)
		if s == nil {
			continue
		}
		x := s.Wanted(hold, platform())
		total += x.Bytes
		done += s.BytesHere(x.Blobs)
		for _, p := range x.Payloads {
			if s.HasBlob(p.Blob) {
				payloads++
			}
		}
	}
	return func(h *v1alpha1.PinStatus) {
		h.BytesTotal, h.BytesDone = total, done
		h.PayloadsTotal, h.PayloadsReady = int32(len(w.Hold.Payloads)), int32(payloads)
	}
}

// needed are the blobs that these bundles bring to what is held; known is false while
// a header is missing: without all of them it is not known which blobs are needed.
func (a *Agent) needed(hold model.HoldList, digests []string) (bundles, blobs map[string]bool, known bool) {
	bundles, blobs = map[string]bool{}, map[string]bool{}
	for _, d := range digests {
		s := a.library.Shelf(d)
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

// collect removes bundles that are neither served nor held, and their blobs.
func (a *Agent) collect(ctx context.Context, w *desired.State, served []string) {
	if a.runner.Busy() {
		return // a run may need what nobody else does
	}
	hold, known := a.inStore(ctx, w)
	if !known {
		return
	}
	bundles, blobs, known := a.needed(hold, append(w.Bundles(), served...))
	if !known {
		return
	}
	for _, d := range w.OwnBlobs() {
		blobs[d] = true
	}
	have, err := a.library.Blobs().List()
	if err != nil {
		a.log.Warn("failed to list old blobs", "error", err)
		return
	}
	for d := range have {
		if blobs[d] = !a.unwanted.Over(d, blobs[d]); !blobs[d] {
			defer wake(a.wakeHold) // what this node would start from has changed
		}
	}
	for _, d := range a.library.Digests() {
		bundles[d] = !a.unwanted.Over(d, bundles[d])
	}
	if err := a.library.Collect(bundles, blobs); err != nil {
		a.log.Warn("failed to remove old blobs", "error", err)
	}
}
