package bundlefiles

import (
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

func TestChunksOf(t *testing.T) {
	m := &bundle.Metadata{ChunkSize: 10, Blobs: []bundle.Blob{{Size: 25}, {Size: 0}, {Size: 10}, {Size: 11}}}
	for blob, want := range []string{"0 [10 10 5]", "3 []", "3 [10]", "4 [10 1]"} {
		first, sizes := chunksOf(m, blob)
		if got := fmt.Sprint(first, " ", sizes); got != want {
			t.Errorf("blob %d: %s, want %s", blob, got, want)
		}
	}
}

// chunkShelf serves chunks until one that it does not have.
type chunkShelf struct {
	shelf
	chunks []string
}

func (s chunkShelf) Chunk(_ string, n int, buf []byte) ([]byte, error) {
	if n >= len(s.chunks) || s.chunks[n] == "" {
		return nil, peerapi.ErrNotHere
	}
	return append(buf[:0], s.chunks[n]...), nil
}

// A stream goes on with the next node where one has no more, and fails where none has.
func TestStream(t *testing.T) {
	t.Parallel()
	peer := func(name string, chunks ...string) peerapi.Peer {
		id := newID(t)
		srv := httptest.NewUnstartedServer(peerapi.Handler(chunkShelf{chunks: chunks}, peerapi.Alive{Node: name}))
		srv.TLS = id.ServerTLS(func(string) bool { return true })
		srv.StartTLS()
		t.Cleanup(srv.Close)
		return peerapi.Peer{Name: name, Address: srv.Listener.Addr().String(), PublicKey: id.PublicKey()}
	}
	r := &Reader{Identity: newID(t)}
	digest := "sha256:" + strings.Repeat("a", 64)
	stream := func(peers ...peerapi.Peer) *blobStream {
		return &blobStream{ctx: t.Context(), from: r, h: &bundle.Header{Digest: digest}, next: 1, sizes: []int64{4, 4, 2}, peers: peers}
	}
	all, half, none := peer("n1", "", "abcd", "efgh", "ij"), peer("n2", "", "abcd"), peer("n3")
	for name, peers := range map[string][]peerapi.Peer{"one node": {all}, "the second one": {none, all}, "the other half": {half, all}} {
		got, err := io.ReadAll(stream(peers...))
		if err != nil || string(got) != "abcdefghij" {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	for name, peers := range map[string][]peerapi.Peer{"half of it": {half, none}, "no node": nil} {
		if got, err := io.ReadAll(stream(peers...)); err == nil || !strings.Contains(err.Error(), "of bundle "+digest[:19]) {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	s := stream(all)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
