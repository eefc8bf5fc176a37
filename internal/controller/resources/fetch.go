package resources

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/fleet"
	"github.com/refit-dev/refit/internal/controller/headers"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/distribute/exchange"
)

// fetchTime bounds one fetch, mostAsked how many agents are asked.
const (
	fetchTime = 30 * time.Second
	mostAsked = 5
)

// Fetcher reads the payload of a bundle from the nodes that hold it. It remembers
// the last one: it is named by its digest.
type Fetcher struct {
	Client   client.Client
	Headers  *headers.Cache
	Identity *exchange.Identity

	mu     sync.Mutex
	digest string
	data   []byte
}

// ErrNotYet says that nothing is known of a bundle yet.
var ErrNotYet = errors.New("the bundle's header is not here yet")

// Payload is the resources of a bundle; nil if it has none, ErrNotYet while that is
// not known: after a restart the header is asked of the nodes again.
func (f *Fetcher) Payload(ctx context.Context, digest string) (*Payload, error) {
	h, err := f.Headers.Get(digest, func() []exchange.Peer { return f.peers(ctx, digest) })
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotYet, err)
	}
	p := Of(h)
	if p == nil {
		return nil, nil
	}
	if p.Size > maxBytes {
		return nil, fmt.Errorf("the payload resources is larger than %d bytes", maxBytes)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.digest != p.Digest {
		if f.data, err = f.fetch(ctx, h, p, f.peers(ctx, digest)); err != nil {
			f.digest = ""
			return nil, err
		}
		f.digest = p.Digest
	}
	return &Payload{Bundle: h.Metadata.Name, Data: f.data}, nil
}

// Of is a bundle's payload with resources, nil if it brings none.
func Of(h *bundle.Header) *bundle.Payload { return h.PayloadByName(bundle.PayloadResources, "") }

// peers are the agents that have something of a bundle; none if that cannot be
// read.
func (f *Fetcher) peers(ctx context.Context, digest string) []exchange.Peer {
	var list v1alpha1.NodeUpdateList
	if f.Client.List(ctx, &list) != nil {
		return nil
	}
	updates := make(map[string]*v1alpha1.NodeUpdate, len(list.Items))
	for i := range list.Items {
		updates[list.Items[i].Name] = &list.Items[i]
	}
	return fleet.Sources(updates, digest)
}

func (f *Fetcher) fetch(ctx context.Context, h *bundle.Header, p *bundle.Payload, peers []exchange.Peer) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	var errs []error
	for _, peer := range peers[:min(len(peers), mostAsked)] {
		data, err := f.fetchFrom(ctx, h, p, peer)
		if err == nil {
			return data, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return nil, errors.New("no node has the payload resources")
	}
	return nil, errors.Join(errs...)
}

// fetchFrom asks one agent; whatever it sends has the digest, or is an error.
func (f *Fetcher) fetchFrom(ctx context.Context, h *bundle.Header, p *bundle.Payload, peer exchange.Peer) ([]byte, error) {
	c := exchange.NewClient(f.Identity, peer)
	defer c.Close()
	first, sizes := chunksOf(h.Metadata, p.Blob)
	var out bytes.Buffer
	for i, size := range sizes {
		b, err := c.Chunk(ctx, h.Digest, first+i, size)
		if err != nil {
			return nil, err
		}
		out.Write(b)
	}
	if got := model.DigestOf(out.Bytes()); got != p.Digest {
		return nil, fmt.Errorf("node %s sent other bytes for the payload resources: %s, not %s", peer.Name, got, p.Digest)
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
