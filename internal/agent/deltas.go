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
	"github.com/refit-dev/refit/internal/pipeline/transfer"
)

// headerOfDelta reads the header of the bundle that a delta on a medium makes. As with a whole
// bundle, the label decides whether it is approved, before this process parses the header.
func (l *bundleLoop) headerOfDelta(ctx context.Context, d *bundlestore.PluggedDelta, check func(*bundle.Header) error) error {
	if err := check(d.Header()); err != nil {
		return err
	}
	r, err := l.openDelta(ctx, d)
	if err != nil {
		return err
	}
	return check(r.Header())
}

// openDelta opens an allowed delta and finds its base. A delta that cannot be opened is not used
// again.
func (l *bundleLoop) openDelta(ctx context.Context, d *bundlestore.PluggedDelta) (*bundlestore.DeltaRestorer, error) {
	r, err := l.media.OpenDelta(ctx, d, l.library, func(h *bundle.Header) bool {
		w := l.desiredState()
		return w != nil && l.policy(w).Decide(h).Allowed
	})
	if err != nil && ctx.Err() == nil {
		l.failDelta(ctx, d, err)
	}
	return r, err
}

func (l *bundleLoop) failDelta(ctx context.Context, d *bundlestore.PluggedDelta, err error) {
	l.log.Warn("failed to restore a bundle from a delta", "medium", d.Path, "error", err)
	d.Fail(err)
	l.mediaScan.describe(ctx)
}

// blobsOfChunks returns the blobs of those of some chunks that are not here, in their order.
func blobsOfChunks(s *bundlestore.Shelf, chunks []int) (out []int) {
	for _, n := range chunks {
		if s.Has(n) {
			continue
		}
		if b := s.Bundle().Chunks.Chunk(n).Blob; !slices.Contains(out[max(0, len(out)-1):], b) {
			out = append(out, b)
		}
	}
	return out
}

// restoreDelta makes blobs of a bundle from a delta in this node. own says that this node needs them:
// then the status says that content of the base is missing, before anything is made. The blockers are
// those of this node's store.
func (l *bundleLoop) restoreDelta(ctx context.Context, s *bundlestore.Shelf, blobs []int, peers []*peerapi.Client, own bool, progress func(string, sourceBytes)) []model.Blocker {
	d, w := l.media.Delta(s.Digest()), l.desiredState()
	if d == nil || w == nil || len(blobs) == 0 {
		return nil
	}
	r, err := l.openDelta(ctx, d)
	if err != nil {
		return nil // the status of the medium has the error
	}
	if len(r.Missing(blobs)) > 0 {
		l.fetchBase(ctx, w, r, blobs, peers)
	}
	if missing := r.Missing(blobs); own && d.SetMissing(len(missing) > 0) {
		l.reportMissingBase(s, missing)
		l.mediaScan.describe(ctx)
	}
	err = r.Restore(ctx, l.countingShelf(s), blobs, l.space.stateRoom(ctx, w), func(n int64) { progress(s.Digest(), sourceBytes{Media: n}) })
	if errors.Is(err, bundlestore.ErrStore) {
		return l.waiting(err)
	}
	if err != nil && ctx.Err() == nil {
		l.failDelta(ctx, d, err)
	}
	return nil
}

// haveTime bounds the question to a peer which content of the base it has.
const haveTime = 5 * time.Second

// fetchBase gets missing content of the base from peers: nodes of another role have other images.
func (l *bundleLoop) fetchBase(ctx context.Context, w *desired.State, r *bundlestore.DeltaRestorer, blobs []int, peers []*peerapi.Client) {
	base, chunks := r.MissingBase(blobs)
	if base == nil || l.library.Shelf(base.Digest()) == nil { // else its content is not allowed here
		return
	}
	var offers []transfer.Bitmap
	for _, p := range peers {
		offers = append(offers, l.chunksOf(ctx, base, p))
	}
	var size int64
	chunks = slices.DeleteFunc(chunks, func(n int) bool {
		return !slices.ContainsFunc(offers, func(b transfer.Bitmap) bool { return b.Has(n) })
	})
	for _, n := range chunks {
		size += base.ChunkSize(n)
	}
	if len(chunks) == 0 || size > l.space.stateRoom(ctx, w) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	err := peertransfer.Fetch(ctx, base, chunks, l.chunkSources(base, peers), peertransfer.Settings{Log: l.log, ChunkTime: peertransfer.ChunkTime(&l.limit, base.Bundle().Metadata.ChunkSize),
		OnBadChunk: func(p peerapi.Peer, _ int) { l.reportBadPeer(ctx, p.Name) }})
	if err != nil && ctx.Err() == nil {
		l.log.Warn("failed to fetch content of the base of a delta", "bundle", base.Digest(), "error", err)
	}
}

// chunksOf returns the chunks of a bundle that a peer has, none if it does not answer.
func (l *bundleLoop) chunksOf(ctx context.Context, s *bundlestore.Shelf, p *peerapi.Client) transfer.Bitmap {
	ctx, cancel := context.WithTimeout(ctx, haveTime)
	defer cancel()
	have, err := p.Have(ctx, s.Digest(), s.Chunks())
	if err != nil {
		return nil // it is asked again at the next pass
	}
	return have
}

// reportMissingBase reports that blobs cannot be made. Chunks that arrive from elsewhere clear it.
func (l *bundleLoop) reportMissingBase(s *bundlestore.Shelf, blobs []int) {
	chunks := 0
	for _, i := range blobs {
		_, n := s.Bundle().Chunks.OfBlob(i)
		chunks += n
	}
	if v := l.baseMissing(s.Digest(), fmt.Sprintf("%d chunks of bundle %s", chunks, s.Digest())); v != nil {
		l.update(func(s *state) { s.bundleVerdicts = []model.Blocker{*v} })
	}
}

// baseMissing returns that missing content of a bundle needs the base of a delta in this node. It is
// nil if no delta waits for its base, or if the bundle comes from a registry.
func (l *bundleLoop) baseMissing(digest, missing string) *model.Blocker {
	d := l.media.Delta(digest)
	if d == nil || !d.Missing() || l.authority.Registry(digest, 0) != nil {
		return nil
	}
	base := l.media.NameBase(d)
	return &model.Blocker{Reason: v1alpha1.ReasonBaseContentMissing, Waiting: true, Object: "Bundle/" + digest,
		Message: fmt.Sprintf("content of the base, %s, is missing in node %s: the delta on %s makes of it %s", base, l.conf.Node, d.Path, missing),
		Fix:     fmt.Sprintf("Plug the medium with the base, %s, into node %s too, or bring the full bundle.", base, l.conf.Node)}
}

// restoreForPeers makes the blobs of a bundle that this node does not need itself: its peers may need
// them, and cannot read the delta. It does so only if there is room.
func (l *bundleLoop) restoreForPeers(ctx context.Context, w *desired.State, s *bundlestore.Shelf, peers []*peerapi.Client) {
	d := l.media.Delta(s.Digest())
	if d == nil || len(peers) == 0 {
		return
	}
	r, err := l.openDelta(ctx, d)
	if err != nil {
		return // the status of the medium has the error
	}
	var blobs []int
	room := l.space.stateRoom(ctx, w)
	for i, b := range s.Bundle().Metadata.Blobs {
		if s.HasBlob(i) {
			continue
		}
		if room -= b.Size; room < r.SpoolSize([]int{i}) {
			break
		}
		blobs = append(blobs, i)
	}
	if len(blobs) > 0 {
		l.restoreDelta(ctx, s, blobs, peers, false, l.countArrivals())
	}
}

// keepForDeltas keeps what deltas in this node need and have made: peers may need it. It is removed
// when the medium is pulled.
func (l *bundleLoop) keepForDeltas(served []string, bundles, blobs map[string]bool) {
	for _, d := range l.media.DeltaBundles(served) {
		s := l.library.Shelf(d)
		if s == nil {
			continue
		}
		bundles[d] = true
		for _, b := range s.Bundle().Metadata.Blobs {
			blobs[b.Digest] = true
		}
	}
}
