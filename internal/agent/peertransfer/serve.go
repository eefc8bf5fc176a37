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

// Serve answers peers until the context ends: whoever accepts does not know is
// refused. lib is Shelves, but in tests.
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

// Shelves is a library as peers see it, and what is on media in this node: others may
// need what this node does not.
type Shelves struct {
	Library *bundlestore.Library
	// Medium is a plugged-in bundle, nil if there is none with this digest. May be nil.
	Medium func(digest string) bundlestore.ChunkReader
	// Found is the header of a plugged-in bundle, approved or not, so that the
	// controller reads itself what people are asked to approve; nil if there is none.
	// May be nil. Chunks of it are served once it is approved.
	Found func(digest string) []byte
}

func (s Shelves) medium(digest string) bundlestore.ChunkReader {
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
	if s.Found != nil {
		if raw := s.Found(digest); raw != nil {
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
	if s.medium(digest) == nil {
		return sh.Bitmap()
	}
	all := transfer.NewBitmap(sh.Chunks())
	for n := range sh.Chunks() {
		all.Set(n)
	}
	return all, nil
}

// Chunk implements peerapi.Library.
func (s Shelves) Chunk(digest string, n int) ([]byte, error) {
	sh := s.Library.Served(digest)
	if sh == nil {
		return nil, peerapi.ErrNotHere
	}
	b, err := sh.Get(n)
	if !errors.Is(err, bundlestore.ErrAbsent) {
		return b, err
	}
	if m := s.medium(digest); m != nil && n >= 0 && n < sh.Chunks() {
		if b, err := m.ReadChunk(n, nil); err == nil {
			return b, nil
		}
		// A bad place, or it was pulled: others may have it.
	}
	return nil, peerapi.ErrNotHere
}

// Chunks implements peerapi.Teller.
func (s Shelves) Chunks(digest string) int {
	if sh := s.Library.Served(digest); sh != nil {
		return sh.Chunks()
	}
	return 0
}

// Has implements peerapi.Teller.
func (s Shelves) Has(digest string, n int) bool {
	sh := s.Library.Served(digest)
	return sh != nil && (sh.Has(n) || n >= 0 && n < sh.Chunks() && s.medium(digest) != nil)
}

// Changed implements peerapi.Teller.
func (s Shelves) Changed(digest string) <-chan struct{} {
	if sh := s.Library.Served(digest); sh != nil {
		return sh.Changed()
	}
	return nil // never: it is not served any more, and the talk ends with its next word
}
