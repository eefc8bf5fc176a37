package peertransfer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/transfer"
)

// Shelf is what this node has of one bundle.
type Shelf interface {
	// Digest of the bundle.
	Digest() string
	// Chunks is how many the bundle has; ChunkSize the bytes of one.
	Chunks() int
	ChunkSize(n int) int64
	Has(n int) bool
	// Put compares and keeps a chunk; bundlestore.ErrBadChunk if it is not right.
	// kept is false if it was here already.
	Put(n int, data []byte) (kept bool, err error)
}

// Peer is a neighbour; peerapi.Client is one.
type Peer interface {
	Peer() peerapi.Peer
	Have(ctx context.Context, digest string, chunks int) ([]byte, error)
	News(ctx context.Context, digest string, chunks int, all func(have []byte), came func(n int)) error
	Take(ctx context.Context, digest string, n int, size int64) (data []byte, next int, err error)
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
	// First are chunks that come before all others, in this order.
	First []int
	// Got is told the bytes of every chunk that was kept. May be nil.
	Got func(bytes int64)
	// Lied is told of a neighbour that sent another chunk than it was asked for,
	// and which. May be nil.
	Lied func(peer peerapi.Peer, n int)
	Log  *slog.Logger
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
	if s.Lied == nil {
		s.Lied = func(peerapi.Peer, int) {}
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
	f := newFetch(shelf, wanted, s)
	f.stop = stop
	if len(f.missing) == 0 {
		return nil
	}
	var wg sync.WaitGroup
	for _, p := range peers {
		src := &source{peer: p}
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
	first map[int]int

	mu sync.Mutex
	// missing are the chunks that are to come, in no order; at says where one is.
	missing  []int
	at       map[int]int
	underWay map[int]asked
	// holders counts the neighbours that have a chunk.
	holders []uint16
	// pace is how long a chunk takes, on an average of the last ones.
	pace time.Duration
	// changed is closed when a stream that found nothing to do may find something.
	changed chan struct{}
}

// asked is a chunk that is under way: of how many, and since when.
type asked struct {
	of    int
	since time.Time
}

// source is a neighbour and what is thought of it; guarded by fetch.mu.
type source struct {
	peer   Peer
	have   transfer.Bitmap
	offers []int
	fails  int
	until  time.Time
}

func newFetch(shelf Shelf, wanted []int, s Settings) *fetch {
	f := &fetch{shelf: shelf, s: s, first: map[int]int{}, at: map[int]int{}, underWay: map[int]asked{},
		holders: make([]uint16, shelf.Chunks()), changed: make(chan struct{})}
	for _, n := range wanted {
		if _, twice := f.at[n]; !twice && !shelf.Has(n) {
			f.at[n] = len(f.missing)
			f.missing = append(f.missing, n)
		}
	}
	for i, n := range s.First {
		if _, twice := f.first[n]; !twice {
			f.first[n] = i
		}
	}
	return f
}

// wake lets streams look again; with the lock.
func (f *fetch) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// stream asks one neighbour for one chunk after the other.
func (f *fetch) stream(ctx context.Context, src *source) {
	for ctx.Err() == nil {
		n, changed, wait := f.take(src)
		if n >= 0 {
			f.one(ctx, src, n)
			continue
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-t.C:
		}
		t.Stop()
	}
}

// take chooses a chunk to ask for. Without one it says what to wait for.
func (f *fetch) take(src *source) (n int, changed <-chan struct{}, wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if wait = time.Until(src.until); wait > 0 {
		return -1, nil, wait
	}
	n = f.pick(src)
	if n < 0 {
		return -1, f.changed, f.s.Poll / 4
	}
	a := f.underWay[n]
	f.underWay[n] = asked{of: a.of + 1, since: time.Now()}
	return n, nil, 0
}

func (f *fetch) pick(src *source) int {
	offers := src.offers[:0]
	for _, n := range src.offers {
		if _, lacks := f.at[n]; lacks && f.underWay[n].of == 0 {
			offers = append(offers, n)
		}
	}
	src.offers = offers
	end := len(f.underWay) == len(f.missing)
	return transfer.Pick(transfer.Question{Missing: f.missing, Theirs: src.have, First: f.first, Offers: offers, Lot: rand.IntN,
		Waits: func(n int) int {
			a := f.underWay[n]
			if a.of == 0 {
				return 0
			}
			return f.again(a, end)
		},
		Holders: func(n int) int { return int(f.holders[n]) }})
}

// again says whether a chunk that is under way may be asked of another neighbour:
// one at the end of it all that takes longer than chunks do, so that nobody slow or
// dead holds up the end, and few come twice.
func (f *fetch) again(a asked, end bool) int {
	if !end || a.of >= 2 || time.Since(a.since) < 2*f.pace {
		return -1
	}
	return a.of
}

func (f *fetch) one(ctx context.Context, src *source, n int) {
	began := time.Now()
	size := f.shelf.ChunkSize(n)
	cctx, cancel := context.WithTimeout(ctx, f.s.ChunkTime)
	data, next, err := src.peer.Take(cctx, f.shelf.Digest(), n, size)
	cancel()
	if err != nil {
		f.release(n)
		f.lost(ctx, src, n, err)
		return
	}
	kept, err := f.shelf.Put(n, data)
	switch {
	case errors.Is(err, bundlestore.ErrBadChunk):
		f.release(n)
		f.s.Lied(src.peer.Peer(), n)
		f.failed(src, lieFactor, fmt.Errorf("sent a wrong chunk %d: %w", n, err))
	case err != nil:
		f.release(n)
		f.stop(err) // this node's own disk: no neighbour can help
	default:
		if kept {
			f.s.Got(size)
		}
		failpoint.Here(failpoint.PeerFetch)
		f.done(src, n, next, time.Since(began))
	}
}

// release notes that a chunk is under way no more; it may be asked for anew.
func (f *fetch) release(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unask(n)
	f.wake()
}

func (f *fetch) unask(n int) {
	a := f.underWay[n]
	if a.of--; a.of <= 0 {
		delete(f.underWay, n)
		return
	}
	f.underWay[n] = a
}

// lost notes a chunk that did not come. A neighbour that does not have what it
// said it had is not asked for it again.
func (f *fetch) lost(ctx context.Context, src *source, n int, err error) {
	if ctx.Err() != nil {
		return
	}
	if errors.Is(err, peerapi.ErrNotHere) {
		f.mu.Lock()
		if src.have.Has(n) {
			src.have.Clear(n)
			f.holders[n]--
		}
		f.mu.Unlock()
		return
	}
	f.failed(src, 1, err)
}

func (f *fetch) done(src *source, n, next int, took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	src.fails = 0
	if next >= 0 {
		src.offers = append(src.offers, next)
	}
	f.pace += (took - f.pace) / 8
	delete(f.underWay, n) // others that were asked for it are no matter any more
	if i, lacks := f.at[n]; lacks {
		last := f.missing[len(f.missing)-1]
		f.missing[i], f.at[last] = last, i
		f.missing = f.missing[:len(f.missing)-1]
		delete(f.at, n)
	}
	if len(f.missing) == 0 {
		f.stop(errComplete)
	}
	if len(f.underWay) == len(f.missing) {
		f.wake() // the end: who has nothing to do may help
	}
}

func (f *fetch) failed(src *source, factor int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	wait := min(f.s.Aside*time.Duration(factor)<<min(src.fails, 6), 60*f.s.Aside)
	src.fails++
	src.until = time.Now().Add(wait)
	f.s.Log.Info("a peer is put aside", "peer", src.peer.Peer().Name, "for", wait, "error", err)
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
