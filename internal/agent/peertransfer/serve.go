package peertransfer

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/transfer"
)

// Serve answers peers until the context ends. It refuses every key that accepts does not
// know. lib is Shelves, except in tests.
func Serve(ctx context.Context, l net.Listener, lib peerapi.Library, who peerapi.Alive, id *peerapi.Identity, accepts func(publicKey string) bool, limit *peerapi.Limit) error {
	return ServeHandler(ctx, l, peerapi.Handler(lib, who), id, accepts, limit)
}

// ServeHandler is Serve with a handler, which gets only requests of accepted keys.
func ServeHandler(ctx context.Context, l net.Listener, h http.Handler, id *peerapi.Identity, accepts func(publicKey string) bool, limit *peerapi.Limit) error {
	srv := peerapi.NewServer(peerapi.OnlyPeers(h, accepts))
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	err := srv.Serve(id.Listen(l, limit, accepts))
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shelves is a library as peers see it, and the media in this node: other nodes may need
// what this node does not.
type Shelves struct {
	Library *bundlestore.Library
	// Medium is a plugged-in bundle with a header, nil if none has its digest. May be nil.
	Medium func(h *bundle.Header) bundlestore.ChunkReader
	// RawHeader is the header of a plugged-in bundle, approved or not, so that the
	// controller itself reads what people are asked to approve; nil if there is none.
	// May be nil. Chunks of the bundle are served only after approval.
	RawHeader func(digest string) []byte
	// Relay reads for other nodes what this node does not store, from the registry that
	// it fetches the bundle from; nil if it fetches none. May be nil.
	Relay func(digest string) *Registry
}

func (s Shelves) relay(digest string) *Registry {
	if s.Relay == nil {
		return nil
	}
	return s.Relay(digest)
}

func (s Shelves) mediumReader(sh *bundlestore.Shelf) bundlestore.ChunkReader {
	if s.Medium == nil {
		return nil
	}
	return s.Medium(sh.Bundle())
}

// Header implements peerapi.Library.
func (s Shelves) Header(digest string) ([]byte, error) {
	if sh := s.Library.Served(digest); sh != nil {
		return sh.Bundle().Raw, nil
	}
	if s.RawHeader != nil {
		if raw := s.RawHeader(digest); raw != nil {
			return raw, nil
		}
	}
	return nil, peerapi.ErrNotHere
}

// Have implements peerapi.Library: the chunks that are here, those on the media, and those that the
// registry offers.
func (s Shelves) Have(digest string) ([]byte, error) {
	sh := s.Library.Served(digest)
	if sh == nil {
		return nil, peerapi.ErrNotHere
	}
	b, err := sh.Bitmap()
	have, m := transfer.Bitmap(b), s.mediumReader(sh)
	if err != nil {
		if m == nil {
			return nil, err
		}
		have = transfer.NewBitmap(sh.Chunks()) // the disk does not answer, and the medium does
	}
	r := s.relay(digest)
	for n := range sh.Chunks() {
		if m != nil && m.Covers(n) || r != nil && r.Offers(n) {
			have.Set(n)
		}
	}
	return have, nil
}

// Chunk implements peerapi.Library.
func (s Shelves) Chunk(digest string, n int, buf []byte) ([]byte, error) {
	sh := s.Library.Served(digest)
	if sh == nil {
		return nil, peerapi.ErrNotHere
	}
	b, err := sh.GetRecent(n, buf)
	if !errors.Is(err, bundlestore.ErrAbsent) {
		return b, err
	}
	if m := s.mediumReader(sh); m != nil && n >= 0 && n < sh.Chunks() {
		if b, err := m.ReadChunk(n, buf); err == nil {
			return b, nil
		}
		// A bad sector, or the medium was pulled: other nodes may have the chunk.
	}
	if r := s.relay(digest); r != nil {
		if b, err := r.ReadChunk(n, buf); err == nil {
			return b, nil
		}
		// The registry's fault is in this node's status.
	}
	return nil, peerapi.ErrNotHere
}

// Chunks implements peerapi.Notifier.
func (s Shelves) Chunks(digest string) int {
	if sh := s.Library.Served(digest); sh != nil {
		return sh.Chunks()
	}
	return 0
}

// Has implements peerapi.Notifier.
func (s Shelves) Has(digest string, n int) bool {
	sh := s.Library.Served(digest)
	if sh == nil || n < 0 || n >= sh.Chunks() {
		return false
	}
	m, r := s.mediumReader(sh), s.relay(digest)
	return sh.Has(n) || m != nil && m.Covers(n) || r != nil && r.Offers(n)
}

// Changed implements peerapi.Notifier.
func (s Shelves) Changed(digest string) <-chan struct{} {
	if sh := s.Library.Served(digest); sh != nil {
		return sh.Changed()
	}
	return nil // never closed: the bundle is not served any more, and the stream ends at its next heartbeat
}
