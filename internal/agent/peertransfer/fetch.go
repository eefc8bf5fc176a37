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
	// Put compares and stores a chunk; bundlestore.ErrBadChunk if it does not match.
	// kept is false if it was here already. The memory of data is used again after it.
	Put(n int, data []byte) (kept bool, err error)
}

// Peer is a source of chunks; peerapi.Client is another node, Registry is one too.
type Peer interface {
	Peer() peerapi.Peer
	Have(ctx context.Context, digest string, chunks int) ([]byte, error)
	News(ctx context.Context, digest string, chunks int, all func(have []byte), came func(n int)) error
	FetchChunk(ctx context.Context, digest string, n int, size int64, buf []byte) (data []byte, next int, err error)
}

// Settings of Fetch; zero values are the defaults.
type Settings struct {
	// Streams is how many chunks are requested from one peer at once. Default 2.
	Streams int
	// Poll is how often a peer without news is asked again. Default 1 s.
	Poll time.Duration
	// ChunkTime is how long one chunk may take. Default 60 s.
	ChunkTime time.Duration
	// Backoff is how long Fetch makes no request to a peer after its first failure. It
	// doubles with every further failure, up to 60 times that. Default 1 s.
	Backoff time.Duration
	// First are chunks that come before all others, in this order.
	First []int
	// OnChunk is called for every stored chunk, with who sent it, its number and its
	// bytes. May be nil.
	OnChunk func(from peerapi.Peer, n int, bytes int64)
	// OnBadChunk is called with a peer that sent other bytes than the requested chunk,
	// and the chunk's number. May be nil.
	OnBadChunk func(peer peerapi.Peer, n int)
	Log        *slog.Logger
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
	if s.Backoff <= 0 {
		s.Backoff = time.Second
	}
	if s.OnChunk == nil {
		s.OnChunk = func(peerapi.Peer, int, int64) {}
	}
	if s.OnBadChunk == nil {
		s.OnBadChunk = func(peerapi.Peer, int) {}
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
}

// badChunkFactor makes the backoff after wrong bytes longer than that after an unreachable
// peer.
const badChunkFactor = 30

// Fetch gets the wanted chunks from peers. It returns nil when all are here, the context's
// error, or the error of this node's own store.
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
		src := &peerState{peer: p}
		wg.Go(func() { f.followPeer(ctx, src) })
		for i := range s.Streams {
			wg.Go(func() { f.stream(ctx, src, i) })
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
	shelf    Shelf
	s        Settings
	stop     context.CancelCauseFunc
	priority map[int]int

	mu sync.Mutex
	// missing are the chunks that are to come, in no order; position is where one is in it.
	missing  []int
	position map[int]int
	underWay map[int]requested
	// holders counts the peers that have a chunk.
	holders []uint16
	// chunkTime is how long a chunk takes, as a moving average.
	chunkTime time.Duration
	// changed is closed when an idle stream may find a chunk to request.
	changed chan struct{}
}

// requested is a chunk in transit: from how many peers, and since when.
type requested struct {
	count int
	since time.Time
}

// peerState is a peer with its chunks and failures; guarded by fetch.mu.
type peerState struct {
	peer     Peer
	have     transfer.Bitmap
	received int // chunks
	offers   []int
	failures int
	retryAt  time.Time
}

func newFetch(shelf Shelf, wanted []int, s Settings) *fetch {
	f := &fetch{shelf: shelf, s: s, priority: map[int]int{}, position: map[int]int{}, underWay: map[int]requested{},
		holders: make([]uint16, shelf.Chunks()), changed: make(chan struct{})}
	for _, n := range wanted {
		if _, twice := f.position[n]; !twice && !shelf.Has(n) {
			f.position[n] = len(f.missing)
			f.missing = append(f.missing, n)
		}
	}
	for i, n := range s.First {
		if _, twice := f.priority[n]; !twice {
			f.priority[n] = i
		}
	}
	return f
}

// wake makes streams choose again; with the lock.
func (f *fetch) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// stream requests one chunk after another from one peer.
func (f *fetch) stream(ctx context.Context, src *peerState, number int) {
	var buf []byte
	for ctx.Err() == nil {
		n, changed, wait := f.reserveChunk(src, number)
		if n >= 0 {
			buf = f.fetchChunk(ctx, src, n, buf)
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

// reserveChunk chooses a chunk to request. Without one it returns what to wait for. Only the
// first stream requests the first chunk of a peer. All nodes request of the one with the
// medium at once, and the sooner it has sent some chunks, the sooner they exchange them.
func (f *fetch) reserveChunk(src *peerState, stream int) (n int, changed <-chan struct{}, wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if wait = time.Until(src.retryAt); wait > 0 {
		return -1, nil, wait
	}
	if n = -1; stream == 0 || src.received > 0 {
		n = f.pickChunk(src)
	}
	if n < 0 {
		return -1, f.changed, f.s.Poll / 4
	}
	a := f.underWay[n]
	f.underWay[n] = requested{count: a.count + 1, since: time.Now()}
	return n, nil, 0
}

func (f *fetch) pickChunk(src *peerState) int {
	offers := src.offers[:0]
	for _, n := range src.offers {
		if _, isMissing := f.position[n]; isMissing && f.underWay[n].count == 0 {
			offers = append(offers, n)
		}
	}
	src.offers = offers
	end := len(f.underWay) == len(f.missing)
	return transfer.Pick(transfer.Question{Missing: f.missing, Theirs: src.have, First: f.priority, Offers: offers, Lot: rand.IntN,
		Waits: func(n int) int {
			a := f.underWay[n]
			if a.count == 0 {
				return 0
			}
			return f.mayRequestTwice(a, end)
		},
		Holders: func(n int) int { return int(f.holders[n]) }})
}

// mayRequestTwice says whether a chunk in transit may be requested from another peer too.
// That is only for the last chunks, and for one that takes longer than chunks usually do. So
// a slow or dead peer does not delay the end, and few chunks come twice.
func (f *fetch) mayRequestTwice(a requested, end bool) int {
	if !end || a.count >= 2 || time.Since(a.since) < 2*f.chunkTime {
		return -1
	}
	return a.count
}

// errSlow is the cause of a context that ended because a chunk took too long.
var errSlow = errors.New("no chunk came in time")

// fetchChunk fetches and stores one chunk. It returns the memory for the next one.
func (f *fetch) fetchChunk(ctx context.Context, src *peerState, n int, buf []byte) []byte {
	began := time.Now()
	size := f.shelf.ChunkSize(n)
	cctx, cancel := context.WithTimeoutCause(ctx, f.s.ChunkTime, errSlow)
	data, next, err := src.peer.FetchChunk(cctx, f.shelf.Digest(), n, size, buf)
	cancel()
	if err != nil {
		f.returnChunk(n)
		f.handleError(ctx, src, n, err)
		return buf
	}
	kept, err := f.shelf.Put(n, data)
	switch {
	case errors.Is(err, bundlestore.ErrBadChunk):
		f.returnChunk(n)
		f.s.OnBadChunk(src.peer.Peer(), n)
		f.backOff(src, badChunkFactor, fmt.Errorf("sent a wrong chunk %d: %w", n, err))
	case err != nil:
		f.returnChunk(n)
		f.stop(err) // this node's own disk: no peer can help
	default:
		if kept {
			f.s.OnChunk(src.peer.Peer(), n, size)
		}
		failpoint.Here(failpoint.PeerFetch)
		f.recordChunk(src, n, next, time.Since(began))
	}
	return data[:cap(data)]
}

// returnChunk ends a request for a chunk, which may be requested again.
func (f *fetch) returnChunk(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.countReturned(n)
	f.wake()
}

func (f *fetch) countReturned(n int) {
	a := f.underWay[n]
	if a.count--; a.count <= 0 {
		delete(f.underWay, n)
		return
	}
	f.underWay[n] = a
}

// handleError handles a chunk that did not come. A peer that does not have what it announced
// is not asked for it again.
func (f *fetch) handleError(ctx context.Context, src *peerState, n int, err error) {
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
	f.backOff(src, 1, err)
}

func (f *fetch) recordChunk(src *peerState, n, next int, took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	src.failures = 0
	if src.received++; src.received == 1 {
		f.wake()
	}
	if next >= 0 {
		src.offers = append(src.offers, next)
	}
	f.chunkTime += (took - f.chunkTime) / 8
	delete(f.underWay, n) // other requests for it do not matter any more
	if i, isMissing := f.position[n]; isMissing {
		last := f.missing[len(f.missing)-1]
		f.missing[i], f.position[last] = last, i
		f.missing = f.missing[:len(f.missing)-1]
		delete(f.position, n)
	}
	if len(f.missing) == 0 {
		f.stop(errComplete)
	}
	if len(f.underWay) == len(f.missing) {
		f.wake() // the end: idle streams may help
	}
}

func (f *fetch) backOff(src *peerState, factor int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	wait := min(f.s.Backoff*time.Duration(factor)<<min(src.failures, 6), 60*f.s.Backoff)
	src.failures++
	src.retryAt = time.Now().Add(wait)
	f.s.Log.Info("peer failed; backing off", "peer", src.peer.Peer().Name, "for", wait, "error", err)
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
