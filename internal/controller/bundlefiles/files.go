package bundlefiles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// fileTimeout bounds one fetch, maxAgents the number of agents that it tries.
const (
	fileTimeout = 30 * time.Second
	maxAgents   = 5
)

// File is a file of a bundle.
type File struct {
	// Bundle is the bundle's metadata. Do not change it.
	Bundle *bundle.Metadata
	Data   []byte
}

// Reader reads files of bundles. It caches the last file of each name by digest. It is safe for
// concurrent use.
type Reader struct {
	Client   client.Client
	Headers  *Headers
	Identity *peerapi.Identity

	mu   sync.Mutex
	last map[string]cachedFile
}

type cachedFile struct {
	digest string
	data   []byte
}

// ErrNotYet means that the bundle's header is not known yet.
var ErrNotYet = errors.New("the bundle's header is not fetched yet")

// File returns a file of a bundle, nil if the bundle has none of that name, and an error if it
// is larger than maxSize. It returns ErrNotYet while the header is unknown: after a restart the
// controller fetches it from the nodes again.
func (r *Reader) File(ctx context.Context, digest, name string, maxSize int64) (*File, error) {
	h, err := r.Header(ctx, digest)
	if err != nil {
		return nil, err
	}
	p := h.PayloadByName(name, "")
	if p == nil {
		return nil, nil
	}
	if p.Size > maxSize {
		return nil, fmt.Errorf("the payload %s has %d bytes, more than %d", name, p.Size, maxSize)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if have, ok := r.last[name]; ok && have.digest == p.Digest {
		return &File{Bundle: h.Metadata, Data: have.data}, nil
	}
	data, err := r.fetch(ctx, h, p.Blob, "the payload "+p.Name, r.peers(ctx, digest))
	if err != nil {
		return nil, err
	}
	if r.last == nil {
		r.last = map[string]cachedFile{}
	}
	r.last[name] = cachedFile{p.Digest, data}
	return &File{Bundle: h.Metadata, Data: data}, nil
}

// peers returns the agents that serve a bundle, none if NodeUpdates cannot be listed.
func (r *Reader) peers(ctx context.Context, digest string) []peerapi.Peer {
	var list v1alpha1.NodeUpdateList
	if r.Client.List(ctx, &list) != nil {
		return nil
	}
	return AgentsIn(&list, digest)
}

// Header returns a bundle's header, ErrNotYet while it is unknown. Do not change it.
func (r *Reader) Header(ctx context.Context, digest string) (*bundle.Header, error) {
	h, err := r.Headers.Get(digest, func() []peerapi.Peer { return r.peers(ctx, digest) })
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotYet, err)
	}
	return h, nil
}

// Blob returns a blob of a bundle by its number. The caller must check its size first.
func (r *Reader) Blob(ctx context.Context, h *bundle.Header, blob int) ([]byte, error) {
	return r.fetch(ctx, h, blob, "the blob "+h.Metadata.Blobs[blob].Digest, r.peers(ctx, h.Digest))
}

// Stream reads a blob of any size chunk by chunk. A node that does not answer is replaced by the
// next one. The caller compares the bytes with the blob's digest, and asks again if they differ:
// it gets them from any node.
func (r *Reader) Stream(ctx context.Context, h *bundle.Header, blob int) io.ReadCloser {
	first, sizes := chunksOf(h.Metadata, blob)
	peers := r.peers(ctx, h.Digest)
	rand.Shuffle(len(peers), func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
	return &blobStream{ctx: ctx, from: r, h: h, next: first, sizes: sizes, peers: peers}
}

// blobStream has one chunk in memory, and one connection.
type blobStream struct {
	ctx   context.Context
	from  *Reader
	h     *bundle.Header
	next  int
	sizes []int64
	peers []peerapi.Peer
	// client is connected to the first of peers, nil before its first chunk.
	client *peerapi.Client
	rest   []byte
}

func (s *blobStream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		if len(s.sizes) == 0 {
			return 0, io.EOF
		}
		if err := s.fetchNext(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// fetchNext fetches the next chunk; a node that fails is not asked again.
func (s *blobStream) fetchNext() error {
	err := errors.New("no node has it")
	for len(s.peers) > 0 {
		if s.rest, err = s.chunk(); err == nil {
			s.next, s.sizes = s.next+1, s.sizes[1:]
			return nil
		}
		s.disconnect()
		s.peers = s.peers[1:]
	}
	return fmt.Errorf("chunk %d of bundle %.19s: %w", s.next, s.h.Digest, err)
}

func (s *blobStream) chunk() ([]byte, error) {
	ctx, cancel := context.WithTimeout(s.ctx, fileTimeout)
	defer cancel()
	if s.client == nil {
		s.client = peerapi.NewClient(s.from.Identity, s.peers[0])
	}
	return s.client.Chunk(ctx, s.h.Digest, s.next, s.sizes[0])
}

func (s *blobStream) disconnect() {
	if s.client != nil {
		s.client.Close()
		s.client = nil
	}
}

// Close ends the reading.
func (s *blobStream) Close() error {
	s.disconnect()
	s.sizes, s.rest = nil, nil
	return nil
}

// fetch fetches a blob; what names it in errors.
func (r *Reader) fetch(ctx context.Context, h *bundle.Header, blob int, what string, peers []peerapi.Peer) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fileTimeout)
	defer cancel()
	var errs []error
	for _, peer := range peers[:min(len(peers), maxAgents)] {
		data, err := r.fetchFrom(ctx, h, blob, what, peer)
		if err == nil {
			return data, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return nil, fmt.Errorf("no node has %s", what)
	}
	return nil, errors.Join(errs...)
}

// fetchFrom fetches a blob from one agent and verifies its digest.
func (r *Reader) fetchFrom(ctx context.Context, h *bundle.Header, blob int, what string, peer peerapi.Peer) ([]byte, error) {
	c := peerapi.NewClient(r.Identity, peer)
	defer c.Close()
	first, sizes := chunksOf(h.Metadata, blob)
	var out bytes.Buffer
	for i, size := range sizes {
		b, err := c.Chunk(ctx, h.Digest, first+i, size)
		if err != nil {
			return nil, err
		}
		out.Write(b)
	}
	if got, want := model.DigestOf(out.Bytes()), h.Metadata.Blobs[blob].Digest; got != want {
		return nil, fmt.Errorf("node %s sent wrong bytes for %s: digest %s, not %s", peer.Name, what, got, want)
	}
	return out.Bytes(), nil
}

// chunksOf returns the number of a blob's first chunk and the sizes of all its chunks.
func chunksOf(m *bundle.Metadata, blob int) (first int, sizes []int64) {
	for _, b := range m.Blobs[:blob] {
		first += int(bundle.ChunkCount(b.Size, m.ChunkSize))
	}
	for left := m.Blobs[blob].Size; left > 0; left -= m.ChunkSize {
		sizes = append(sizes, min(left, m.ChunkSize))
	}
	return first, sizes
}
