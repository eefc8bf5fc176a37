package peertransfer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/transfer"
	"github.com/refit-dev/refit/internal/registry"
)

// RegistryConfig says where a bundle is in registries.
type RegistryConfig struct {
	// Bundle is its digest.
	Bundle string
	// Places are repositories with it, in the order in which they are asked; Name is its tag
	// or its digest there.
	Places []registry.Place
	Name   string
	// Logins returns the node's credentials, nil for none. It is called for every request, so
	// that new ones count at once. May be nil.
	Logins func() (*registry.Keys, error)
	// Transport connects to the registries; nil is the default one.
	Transport http.RoundTripper
	// ChunkTime is how long one chunk may take. Default 60 s.
	ChunkTime time.Duration
	// Retry is the pause after the first failure. It doubles up to 60 times that. Default 2 s.
	Retry time.Duration
}

// Registry is a bundle in registries as a peer that has all chunks: Fetch takes from it what no
// other peer has. It compares every chunk itself, and asks the next place for one that does not
// match. Chunks that follow each other come by one request, so that an interruption costs the
// chunk that was under way. Safe for concurrent use.
type Registry struct {
	conf   RegistryConfig
	poller *registry.Poller

	mu     sync.Mutex
	header *bundle.Header
	// has reports the chunks that are on this node.
	has func(n int) bool
	// own are the chunks that this node stores for itself; nil before that is known.
	own transfer.Bitmap
	// streams are the requests under way, and those that wait for the next chunk.
	streams []*chunkStream
	// faults are what fails, by the digest of a blob; "" is all of the bundle.
	faults map[string]*fault
	// avoided are places that failed for a blob, or "" for all, and until when.
	avoided map[avoidance]time.Time
}

type avoidance struct {
	place int
	blob  string
}

const (
	// streamBytes is how much of a blob one request brings at most: a request is slow, and
	// what a closed one has sent already is lost.
	streamBytes = 8 << 20
	// maxIdleStreams and idleTime bound the streams that wait for the next chunk.
	maxIdleStreams = 4
	idleTime       = 15 * time.Second
	// avoidTime is how long a place is not asked after it refused this node, or sent wrong
	// content.
	avoidTime = 5 * time.Minute
)

// NewRegistry makes it; it does not connect yet.
func NewRegistry(conf RegistryConfig) *Registry {
	if conf.ChunkTime <= 0 {
		conf.ChunkTime = defaultChunkTime
	}
	if conf.Retry <= 0 {
		conf.Retry = 2 * time.Second
	}
	return &Registry{conf: conf, poller: registry.NewPoller(conf.Transport, time.Now), faults: map[string]*fault{}, avoided: map[avoidance]time.Time{}}
}

// Use tells which chunks the bundle has, which of them are on this node, and which this node
// stores for itself. The others are read for peers only.
func (r *Registry) Use(h *bundle.Header, has func(n int) bool, own transfer.Bitmap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.header, r.has, r.own = h, has, own
}

// Peer names the registry as a source.
func (r *Registry) Peer() peerapi.Peer { return peerapi.Peer{Name: r.Where()} }

// Where names the place that the reference names, for people.
func (r *Registry) Where() string {
	return "registry " + r.conf.Places[len(r.conf.Places)-1].Repository
}

// Header fetches the header of the bundle. A header of another bundle is refused: someone may
// have moved the tag.
func (r *Registry) Header(ctx context.Context, digest string) ([]byte, error) {
	return r.ask(ctx, "", func(_ int, at registry.Place) ([]byte, error) {
		raw, err := r.poller.Config(ctx, at, r.conf.Name, bundle.ArtifactType, bundle.MaxHeaderSize)
		if err != nil {
			return nil, err
		}
		if _, err = bundle.ParseHeaderOf(digest, raw); err != nil {
			return nil, &WrongContentError{Where: at.Repository, What: fmt.Sprintf("%.200s is not bundle %s: %v", r.conf.Name, digest, err)}
		}
		return raw, nil
	})
}

// Have reports all chunks.
func (r *Registry) Have(_ context.Context, _ string, chunks int) ([]byte, error) {
	all := transfer.NewBitmap(chunks)
	for n := range chunks {
		all.Set(n)
	}
	return all, nil
}

// News reports all chunks, again and again: Fetch forgets those that were not there, and they may
// have been pushed meanwhile.
func (r *Registry) News(ctx context.Context, digest string, chunks int, all func(have []byte), _ func(n int)) error {
	have, err := r.Have(ctx, digest, chunks)
	if err != nil {
		return err
	}
	for {
		all(have)
		if !sleep(ctx, 5*r.conf.Retry) {
			return ctx.Err()
		}
	}
}

// FetchChunk reads chunk n and compares it. next is the chunk that this request brings next.
// ErrNotHere if the registries answer, and do not have the chunk as it was pushed.
func (r *Registry) FetchChunk(ctx context.Context, _ string, n int, _ int64, buf []byte) (data []byte, next int, err error) {
	return r.fetchChunk(ctx, n, buf, streamBytes)
}

// ReadChunk is FetchChunk for a single chunk that this node reads for a peer.
func (r *Registry) ReadChunk(n int, buf []byte) ([]byte, error) {
	if !r.Offers(n) {
		return nil, peerapi.ErrNotHere
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), r.conf.ChunkTime, errSlow)
	defer cancel()
	data, _, err := r.fetchChunk(ctx, n, buf, 0)
	return data, err
}

// Offers reports whether this node reads chunk n for peers: it does not want the chunk itself,
// so no peer will get it from its store. A chunk that it wants comes once, into the store.
func (r *Registry) Offers(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.header == nil || r.own == nil || n < 0 || n >= r.header.Chunks.Len() || r.own.Has(n) || r.faults[""] != nil {
		return false
	}
	return r.faults[r.header.Metadata.Blobs[r.header.Chunks.Chunk(n).Blob].Digest] == nil
}

func (r *Registry) fetchChunk(ctx context.Context, n int, buf []byte, most int64) (data []byte, next int, err error) {
	r.mu.Lock()
	h := r.header
	r.mu.Unlock()
	if h == nil || n < 0 || n >= h.Chunks.Len() {
		return nil, -1, peerapi.ErrNotHere
	}
	c := h.Chunks.Chunk(n)
	if int64(cap(buf)) < c.Size {
		buf = make([]byte, c.Size)
	}
	next = -1
	data, err = r.ask(ctx, h.Metadata.Blobs[c.Blob].Digest, func(i int, at registry.Place) ([]byte, error) {
		s, err := r.streamAt(ctx, h, i, at, n, most)
		if err != nil {
			return nil, err
		}
		if err := s.read(ctx, buf[:c.Size]); err != nil {
			r.remove(s)
			return nil, err
		}
		if sha256.Sum256(buf[:c.Size]) != c.Digest {
			r.remove(s)
			return nil, &WrongContentError{Where: at.Repository, What: fmt.Sprintf("blob %s has wrong bytes at offset %d", h.Metadata.Blobs[c.Blob].Digest, c.Offset)}
		}
		next = r.keep(s)
		return buf[:c.Size], nil
	})
	return data, next, err
}

// ask asks one place after another, and records what failed at all of them.
func (r *Registry) ask(ctx context.Context, blob string, request func(i int, at registry.Place) ([]byte, error)) ([]byte, error) {
	if err := r.paused(blob); err != nil {
		return nil, err
	}
	var keys *registry.Keys
	if r.conf.Logins != nil {
		var err error
		if keys, err = r.conf.Logins(); err != nil {
			return nil, r.fail("", []error{&registry.Failure{Kind: registry.Unauthorized, Where: r.conf.Places[0].Repository, Err: err}})
		}
	}
	var failed []error
	for _, i := range r.order(blob) {
		at := r.conf.Places[i]
		at.Keys = keys
		data, err := request(i, at)
		if err == nil {
			r.succeed(blob)
			return data, nil
		}
		if cause := context.Cause(ctx); errors.Is(cause, errSlow) {
			err = &registry.Failure{Kind: registry.Unreachable, Where: at.Repository, Err: errSlow}
		} else if cause != nil { // the caller gave up
			return nil, ctx.Err()
		}
		r.avoid(i, blob, err)
		failed = append(failed, err)
	}
	return nil, r.fail(blob, failed)
}

// order are the places to ask for a blob: those to avoid come last, because the others may
// fail too.
func (r *Registry) order(blob string) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out, last []int
	now := time.Now()
	for i := range r.conf.Places {
		if now.Before(r.avoided[avoidance{i, ""}]) || now.Before(r.avoided[avoidance{i, blob}]) {
			last = append(last, i)
			continue
		}
		out = append(out, i)
	}
	return append(out, last...)
}

// avoid has other places asked first for a while. The poller itself knows who does not answer.
func (r *Registry) avoid(place int, blob string, err error) {
	var f *registry.Failure
	if errors.As(err, &f) && (f.Kind == registry.Unreachable || f.Kind == registry.RateLimited) {
		return
	}
	if f != nil && f.Kind == registry.Unauthorized {
		blob = ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.avoided[avoidance{place, blob}] = time.Now().Add(avoidTime)
}

// chunkStream is the answer to a request for chunks that follow each other.
type chunkStream struct {
	body  io.ReadCloser
	place int
	// next is the chunk that comes next, end the one after the last that is wanted.
	next, end int
	// expire is set while the stream waits for the next chunk to be wanted.
	expire *time.Timer
}

// covers reports whether chunk n is to come by this stream.
func (s *chunkStream) covers(n int) bool { return s.next <= n && n < s.end }

// streamAt returns a stream that stands at chunk n: one that waits, or a new request.
func (r *Registry) streamAt(ctx context.Context, h *bundle.Header, place int, at registry.Place, n int, most int64) (*chunkStream, error) {
	if s := r.take(place, n); s != nil {
		return s, nil
	}
	c := h.Chunks.Chunk(n)
	s, size := r.reserve(h, place, n, most)
	// The stream outlives the request for its first chunk.
	opening, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	body, err := r.poller.OpenPart(opening, at, registry.Part{Digest: h.Metadata.Blobs[c.Blob].Digest, Offset: c.Offset, Length: size})
	if err != nil {
		cancel()
		r.remove(s)
		return nil, err
	}
	s.body = &cancelingBody{body, cancel}
	return s, nil
}

// reserve plans a stream: chunk n and those of the same blob that follow it, up to most bytes.
// It ends before a chunk that is here or comes by another stream, and other streams end before
// chunk n.
func (r *Registry) reserve(h *bundle.Header, place, n int, most int64) (s *chunkStream, size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.streams {
		if other.covers(n) {
			other.end = n
		}
	}
	first, count := h.Chunks.OfBlob(h.Chunks.Chunk(n).Blob)
	s, size = &chunkStream{place: place, next: n, end: n + 1}, h.Chunks.Chunk(n).Size
	comes := func(n int) bool {
		return r.has(n) || slices.ContainsFunc(r.streams, func(other *chunkStream) bool { return other.covers(n) })
	}
	for s.end < first+count && size+h.Chunks.Chunk(s.end).Size <= most && !comes(s.end) {
		size += h.Chunks.Chunk(s.end).Size
		s.end++
	}
	r.streams = append(r.streams, s)
	return s, size
}

// read reads one chunk, until the context ends.
func (s *chunkStream) read(ctx context.Context, into []byte) error {
	stop := context.AfterFunc(ctx, func() { _ = s.body.Close() })
	_, err := io.ReadFull(s.body, into)
	if !stop() { // it is closed
		return ctx.Err()
	}
	return err
}

// take returns the waiting stream that stands at chunk n, nil if there is none.
func (r *Registry) take(place, n int) *chunkStream {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.streams, func(s *chunkStream) bool { return s.expire != nil && s.place == place && s.next == n })
	if i < 0 {
		return nil
	}
	s := r.streams[i]
	s.expire.Stop()
	s.expire = nil
	return s
}

// keep has a stream wait for its next chunk, and returns which that is; -1 at the end.
func (r *Registry) keep(s *chunkStream) (next int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.next++; s.next >= s.end {
		r.drop(s)
		return -1
	}
	s.expire = time.AfterFunc(idleTime, func() { r.expired(s) })
	waiting := 0
	for _, other := range slices.Backward(slices.Clone(r.streams)) {
		if other.expire == nil {
			continue
		}
		if waiting++; waiting > maxIdleStreams {
			r.drop(other)
		}
	}
	return s.next
}

// expired ends a stream whose next chunk was not wanted.
func (r *Registry) expired(s *chunkStream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.expire != nil { // else it was taken at that moment
		r.drop(s)
	}
}

// remove ends a stream that failed.
func (r *Registry) remove(s *chunkStream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(s)
}

// drop ends a stream; with the lock.
func (r *Registry) drop(s *chunkStream) {
	r.streams = slices.DeleteFunc(r.streams, func(x *chunkStream) bool { return x == s })
	if s.expire != nil {
		s.expire.Stop()
	}
	if s.body != nil {
		_ = s.body.Close() // it was only read
	}
}

// Close ends the requests that wait.
func (r *Registry) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range slices.Clone(r.streams) {
		if s.expire != nil {
			r.drop(s)
		}
	}
}

// cancelingBody ends the context of its request when it is closed.
type cancelingBody struct {
	io.ReadCloser
	cancel func()
}

func (b *cancelingBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
