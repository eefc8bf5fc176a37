package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/agent/peertransfer"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/transfer"
)

// copyRound gets chunks from the medium, and the rest from peers or the registry. It returns no
// blocker if all of them arrived or the round was interrupted.
func (l *bundleLoop) copyRound(ctx context.Context, s *bundlestore.Shelf, chunks []int, peers []*peerapi.Client) []model.Blocker {
	progress := l.countArrivals()
	defer wake(l.wakeImages)
	defer l.sources.Save()
	if m := l.media.With(s.Digest()); m != nil {
		f, err := m.Reader(s.Bundle())
		if err == nil {
			err = bundlestore.Copy(ctx, f, l.countingShelf(s), chunks, func(n int64) { progress(s.Digest(), sourceBytes{Media: n}) })
		}
		if errors.Is(err, bundlestore.ErrStore) {
			return l.waiting(err)
		}
		if err != nil && ctx.Err() == nil {
			l.log.Warn("failed to copy a medium completely", "medium", m.Path, "error", err)
			l.media.Fail(m, err)
			l.dropEdges(s.Digest(), err)
			l.mediaScan.describe(ctx)
		}
	}
	verdicts := l.restoreDelta(ctx, s, blobsOfChunks(s, chunks), peers, true, progress)
	left := slices.DeleteFunc(slices.Clone(chunks), s.Has)
	if len(left) > 0 && ctx.Err() == nil {
		verdicts = append(verdicts, l.fetch(ctx, s, left, peers, progress)...)
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

// countingShelf counts what comes from a medium.
func (l *bundleLoop) countingShelf(s *bundlestore.Shelf) countingShelf {
	return countingShelf{s, func(n int) { l.countChunk(s, n, sourceBytes{Media: s.ChunkSize(n)}) }}
}

// countChunk counts a chunk by the blob that it is part of.
func (l *bundleLoop) countChunk(s *bundlestore.Shelf, n int, from sourceBytes) {
	c := s.Bundle().Chunks.Chunk(n)
	l.arrivals.Add(s.Bundle().Metadata.Blobs[c.Blob].Digest, from)
}

const (
	// fetchTime bounds one attempt, so that the next one sees new peers, media in other
	// nodes and the room that is left.
	fetchTime = 2 * time.Minute
	// silenceTime is how long no chunk may arrive before the status reports it.
	silenceTime = 10 * time.Second
)

// repeating calls a function whenever a time has passed without a reset.
type repeating struct {
	mu    sync.Mutex
	every time.Duration
	timer *time.Timer
}

func newRepeating(every time.Duration, f func()) *repeating {
	r := &repeating{every: every}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = time.AfterFunc(every, func() {
		f()
		r.reset()
	})
	return r
}

func (r *repeating) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.every > 0 {
		r.timer.Reset(r.every)
	}
}

func (r *repeating) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.every = 0
	r.timer.Stop()
}

// fetch gets chunks from peers, and from the registry if that is this node's task.
func (l *bundleLoop) fetch(ctx context.Context, s *bundlestore.Shelf, chunks []int, peers []*peerapi.Client, progress func(string, sourceBytes)) []model.Blocker {
	noSource := func() []model.Blocker { return []model.Blocker{l.withoutSource(s, chunks)} }
	sources := l.chunkSources(s, peers)
	if len(sources) == 0 {
		return noSource()
	}
	var came atomic.Bool
	silence := newRepeating(silenceTime, func() {
		v := noSource()
		l.recordFetch(s.Digest(), nil)
		l.update(func(s *state) { s.bundleVerdicts = v })
	})
	defer silence.stop()
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	err := peertransfer.Fetch(ctx, s, chunks, sources, peertransfer.Settings{Log: l.log, First: l.restoreFirst(s), ChunkTime: peertransfer.ChunkTime(&l.limit, s.Bundle().Metadata.ChunkSize), OnBadChunk: func(p peerapi.Peer, _ int) { l.reportBadPeer(ctx, p.Name) }, OnChunk: func(p peerapi.Peer, n int, bytes int64) {
		came.Store(true)
		silence.reset()
		from := sourceBytes{Peers: bytes}
		if p.PublicKey == "" { // only nodes have one
			from = sourceBytes{Registry: bytes}
		}
		l.countChunk(s, n, from)
		progress(s.Digest(), from)
	}})
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded) && came.Load():
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return noSource()
	}
	return l.waiting(err)
}

// chunkSources are the peers, and the registry of a bundle that this node is to fetch.
func (l *bundleLoop) chunkSources(s *bundlestore.Shelf, peers []*peerapi.Client) []peertransfer.Peer {
	out := make([]peertransfer.Peer, 0, len(peers)+1)
	for _, p := range peers {
		out = append(out, p)
	}
	if r := l.registries.get(s.Digest()); r != nil {
		r.Use(s.Bundle(), s.Has, nil)
		out = append(out, r)
	}
	return out
}

// shareRegistry has this node read for its peers what it does not want itself, once it has what
// it wants or cannot get it. Before, a chunk could come twice: for a peer and for itself.
func (l *bundleLoop) shareRegistry(s *bundlestore.Shelf, own []int, verdicts []model.Blocker) {
	r := l.registries.get(s.Digest())
	if r == nil {
		return
	}
	mine := transfer.NewBitmap(s.Chunks())
	for _, n := range own {
		mine.Set(n)
	}
	r.Use(s.Bundle(), s.Has, mine)
	if verdicts == nil {
		r.Settle()
	}
	l.recordFetch(s.Digest(), verdicts)
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

// countArrivals returns a function that counts bytes as they arrive and wakes the image loop,
// which loads complete images meanwhile.
func (l *bundleLoop) countArrivals() func(digest string, from sourceBytes) {
	var looked time.Time
	return func(digest string, from sourceBytes) {
		l.sources.Add(digest, from)
		l.mu.Lock()
		l.state.pins.BytesDone += from.sum()
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
