package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/host/blobstore"
	"github.com/refit-dev/refit/internal/pipeline/distribute"
	"github.com/refit-dev/refit/internal/pipeline/distribute/exchange"
)

// Shelf is what this node has of one bundle.
type Shelf interface {
	// Digest of the bundle.
	Digest() string
	// Chunks is how many the bundle has; ChunkSize the bytes of one.
	Chunks() int
	ChunkSize(n int) int64
	Has(n int) bool
	// Put compares and keeps a chunk; blobstore.ErrBadChunk if it is not right.
	// kept is false if it was here already.
	Put(n int, data []byte) (kept bool, err error)
}

// Peer is a neighbour; exchange.Client is one.
type Peer interface {
	Peer() exchange.Peer
	Have(ctx context.Context, digest string, chunks int) ([]byte, error)
	Chunk(ctx context.Context, digest string, n int, size int64) ([]byte, error)
}

// Settings of a Fetcher; zero values are the defaults.
type Settings struct {
	// Streams is how many chunks are asked of one neighbour at once. Default 2.
	Streams int
	// Poll is how often a neighbour that has nothing new is asked again.
	// Default 1 s.
	Poll time.Duration
	// ChunkTime is how long one chunk may take. Default 60 s.
	ChunkTime time.Duration
	// Aside is how long a neighbour is put aside after its first failure; it
	// doubles with every further one up to 60 times that. Default 1 s.
	Aside time.Duration
	// Got is told the bytes of every chunk that was kept. May be nil.
	Got func(bytes int64)
	Log *slog.Logger
}

func (s *Settings) defaults() {
	if s.Streams <= 0 {
		s.Streams = 2
	}
	if s.Poll <= 0 {
		s.Poll = time.Second
	}
	if s.ChunkTime <= 0 {
		s.ChunkTime = time.Minute
	}
	if s.Aside <= 0 {
		s.Aside = time.Second
	}
	if s.Got == nil {
		s.Got = func(int64) {}
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
}

// lieFactor makes a neighbour that sent wrong bytes stay aside longer than one
// that was merely away.
const lieFactor = 30

// Fetch gets the wanted chunks from peers. It returns nil when all are here,
// the context's error, or the error of this node's own store.
func Fetch(ctx context.Context, shelf Shelf, wanted []int, peers []Peer, s Settings) error {
	s.defaults()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	f := &fetch{shelf: shelf, s: s, stop: stop, underWay: map[int]int{}}
	for _, n := range wanted {
		if !shelf.Has(n) {
			f.missing = append(f.missing, n)
		}
	}
	if len(f.missing) == 0 {
		return nil
	}
	var wg sync.WaitGroup
	for _, p := range peers {
		src := &source{peer: p}
		f.sources = append(f.sources, src)
	}
	for _, src := range f.sources {
		wg.Go(func() { f.follow(ctx, src) })
		for range s.Streams {
			wg.Go(func() { f.stream(ctx, src) })
		}
	}
	<-ctx.Done()
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, errComplete) {
		return err
	}
	return nil
}

var errComplete = errors.New("complete")

type fetch struct {
	shelf Shelf
	s     Settings
	stop  context.CancelCauseFunc

	mu       sync.Mutex
	missing  []int
	underWay map[int]int
	sources  []*source
}

// source is a neighbour and what is thought of it; guarded by fetch.mu.
type source struct {
	peer  Peer
	have  distribute.Bitmap
	fails int
	until time.Time
}

// follow keeps the neighbour's bitmap fresh while it lacks something.
func (f *fetch) follow(ctx context.Context, src *source) {
	for {
		if f.aside(src) <= 0 {
			f.refresh(ctx, src)
		}
		if !sleep(ctx, f.s.Poll) {
			return
		}
	}
}

func (f *fetch) refresh(parent context.Context, src *source) {
	ctx, cancel := context.WithTimeout(parent, f.s.ChunkTime)
	defer cancel()
	have, err := src.peer.Have(ctx, f.shelf.Digest(), f.shelf.Chunks())
	switch {
	case errors.Is(err, exchange.ErrNotHere):
		have = nil // it will have the bundle later
	case err != nil:
		if parent.Err() == nil { // not merely because all is here
			f.failed(src, 1, err)
		}
		return
	}
	f.mu.Lock()
	src.have = have
	f.mu.Unlock()
}

// stream asks one neighbour for one chunk after the other.
func (f *fetch) stream(ctx context.Context, src *source) {
	for ctx.Err() == nil {
		if wait := f.aside(src); wait > 0 {
			if !sleep(ctx, min(wait, f.s.Poll)) {
				return
			}
			continue
		}
		n := f.take(src)
		if n < 0 {
			if !sleep(ctx, f.s.Poll/4) {
				return
			}
			continue
		}
		f.one(ctx, src, n)
	}
}

func (f *fetch) take(src *source) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]distribute.Bitmap, 0, len(f.sources))
	for _, s := range f.sources {
		all = append(all, s.have)
	}
	n := distribute.Pick(f.missing, f.underWay, src.have, all, rand.IntN)
	if n < 0 || f.underWay[n] >= 2 {
		return -1
	}
	f.underWay[n]++
	return n
}

func (f *fetch) one(ctx context.Context, src *source, n int) {
	size := f.shelf.ChunkSize(n)
	cctx, cancel := context.WithTimeout(ctx, f.s.ChunkTime)
	data, err := src.peer.Chunk(cctx, f.shelf.Digest(), n, size)
	cancel()
	if err != nil {
		f.release(n)
		f.lost(ctx, src, n, err)
		return
	}
	kept, err := f.shelf.Put(n, data)
	f.release(n)
	switch {
	case errors.Is(err, blobstore.ErrBadChunk):
		f.failed(src, lieFactor, fmt.Errorf("sent a wrong chunk %d: %w", n, err))
	case err != nil:
		f.stop(err) // this node's own disk: no neighbour can help
	default:
		if kept {
			f.s.Got(size)
		}
		failpoint.Here(failpoint.PeerFetch)
		f.done(src, n)
	}
}

func (f *fetch) release(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.underWay[n]--; f.underWay[n] <= 0 {
		delete(f.underWay, n)
	}
}

// lost notes a chunk that did not come. A neighbour that does not have what it
// said it had is asked anew what it has.
func (f *fetch) lost(ctx context.Context, src *source, n int, err error) {
	if ctx.Err() != nil {
		return
	}
	if errors.Is(err, exchange.ErrNotHere) {
		f.mu.Lock()
		if src.have.Has(n) {
			src.have[n/8] &^= 1 << (n % 8)
		}
		f.mu.Unlock()
		return
	}
	f.failed(src, 1, err)
}

func (f *fetch) done(src *source, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	src.fails = 0
	for i, m := range f.missing {
		if m == n {
			f.missing[i] = f.missing[len(f.missing)-1]
			f.missing = f.missing[:len(f.missing)-1]
			break
		}
	}
	if len(f.missing) == 0 {
		f.stop(errComplete)
	}
}

func (f *fetch) failed(src *source, factor int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	wait := min(f.s.Aside*time.Duration(factor)<<min(src.fails, 6), 60*f.s.Aside)
	src.fails++
	src.until = time.Now().Add(wait)
	f.s.Log.Info("a peer is put aside", "peer", src.peer.Peer().Name, "for", wait, "because", err)
}

// aside is how long the neighbour stays aside.
func (f *fetch) aside(src *source) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Until(src.until)
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
