package bundlefiles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// fetchTime bounds one fetch, mostAsked how many agents are asked.
const (
	fetchTime = 30 * time.Second
	mostAsked = 5
)

// File of a bundle.
type File struct {
	// Bundle is what the bundle says of itself. Do not change it.
	Bundle *bundle.Metadata
	Data   []byte
}

// Reader reads files of bundles. It remembers the last one of each name: it is
// named by its digest. Safe for concurrent use.
type Reader struct {
	Client   client.Client
	Headers  *Headers
	Identity *peerapi.Identity

	mu   sync.Mutex
	last map[string]kept
}

type kept struct {
	digest string
	data   []byte
}

// ErrNotYet says that nothing is known of a bundle yet.
var ErrNotYet = errors.New("the bundle's header is not here yet")

// File of a bundle, of at most so many bytes; nil if it has none of that name,
// ErrNotYet while that is not known: after a restart the header is asked of the
// nodes again.
func (r *Reader) File(ctx context.Context, digest, name string, most int64) (*File, error) {
	h, err := r.Header(ctx, digest)
	if err != nil {
		return nil, err
	}
	p := h.PayloadByName(name, "")
	if p == nil {
		return nil, nil
	}
	if p.Size > most {
		return nil, fmt.Errorf("the payload %s has %d bytes, more than %d", name, p.Size, most)
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
		r.last = map[string]kept{}
	}
	r.last[name] = kept{p.Digest, data}
	return &File{Bundle: h.Metadata, Data: data}, nil
}

// peers are the agents that have something of a bundle; none if that cannot be
// read.
func (r *Reader) peers(ctx context.Context, digest string) []peerapi.Peer {
	var list v1alpha1.NodeUpdateList
	if r.Client.List(ctx, &list) != nil {
		return nil
	}
	updates := make(map[string]*v1alpha1.NodeUpdate, len(list.Items))
	for i := range list.Items {
		updates[list.Items[i].Name] = &list.Items[i]
	}
	return AgentsWith(updates, digest)
}

// Header of a bundle, which says what it has. Do not change it. ErrNotYet while it is
// not known.
func (r *Reader) Header(ctx context.Context, digest string) (*bundle.Header, error) {
	h, err := r.Headers.Get(digest, func() []peerapi.Peer { return r.peers(ctx, digest) })
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotYet, err)
	}
	return h, nil
}

// Blob of a bundle by its number. The caller bounds its size beforehand.
func (r *Reader) Blob(ctx context.Context, h *bundle.Header, blob int) ([]byte, error) {
	return r.fetch(ctx, h, blob, "the blob "+h.Metadata.Blobs[blob].Digest, r.peers(ctx, h.Digest))
}

// fetch a blob, which messages call what.
func (r *Reader) fetch(ctx context.Context, h *bundle.Header, blob int, what string, peers []peerapi.Peer) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	var errs []error
	for _, peer := range peers[:min(len(peers), mostAsked)] {
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

// fetchFrom asks one agent; whatever it sends has the digest, or is an error.
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
		return nil, fmt.Errorf("node %s sent other bytes for %s: %s, not %s", peer.Name, what, got, want)
	}
	return out.Bytes(), nil
}

// chunksOf is the number of a blob's first chunk and the sizes of all of them.
func chunksOf(m *bundle.Metadata, blob int) (first int, sizes []int64) {
	for _, b := range m.Blobs[:blob] {
		first += int(bundle.ChunkCount(b.Size, m.ChunkSize))
	}
	for left := m.Blobs[blob].Size; left > 0; left -= m.ChunkSize {
		sizes = append(sizes, min(left, m.ChunkSize))
	}
	return first, sizes
}
