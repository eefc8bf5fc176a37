package peertransfer

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/transfer"
)

// Serve answers peers until the context ends. It refuses every key that accepts does not
// know. lib is Shelves, except in tests.
func Serve(ctx context.Context, l net.Listener, lib peerapi.Library, who peerapi.Alive, id *peerapi.Identity, accepts func(publicKey string) bool, limit *peerapi.Limit) error {
	srv := peerapi.NewServer(peerapi.OnlyPeers(peerapi.Handler(lib, who), accepts))
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
	// Medium is a plugged-in bundle, nil if none has this digest. May be nil.
	Medium func(digest string) bundlestore.ChunkReader
	// RawHeader is the header of a plugged-in bundle, approved or not, so that the
	// controller itself reads what people are asked to approve; nil if there is none.
	// May be nil. Chunks of the bundle are served only after approval.
	RawHeader func(digest string) []byte
}

func (s Shelves) mediumReader(digest string) bundlestore.ChunkReader {
	if s.Medium == nil {
		return nil
	}
	return s.Medium(digest)
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

// Have implements peerapi.Library.
func (s Shelves) Have(digest string) ([]byte, error) {
	sh := s.Library.Served(digest)
	if sh == nil {
		return nil, peerapi.ErrNotHere
	}
	if s.mediumReader(digest) == nil {
		return sh.Bitmap()
	}
	all := transfer.NewBitmap(sh.Chunks())
	for n := range sh.Chunks() {
		all.Set(n)
	}
	return all, nil
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
	if m := s.mediumReader(digest); m != nil && n >= 0 && n < sh.Chunks() {
		if b, err := m.ReadChunk(n, buf); err == nil {
			return b, nil
		}
		// A bad sector, or the medium was pulled: other nodes may have the chunk.
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
	return sh != nil && (sh.Has(n) || n >= 0 && n < sh.Chunks() && s.mediumReader(digest) != nil)
}

// Changed implements peerapi.Notifier.
func (s Shelves) Changed(digest string) <-chan struct{} {
	if sh := s.Library.Served(digest); sh != nil {
		return sh.Changed()
	}
	return nil // never closed: the bundle is not served any more, and the stream ends at its next heartbeat
}
