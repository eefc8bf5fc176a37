package peertransfer

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// servingNode is a library on the wire, with a bundle of one file.
type servingNode struct {
	lib   *bundlestore.Library
	shelf *bundlestore.Shelf
	id    *peerapi.Identity
	addr  string
}

func identity(t *testing.T, seed byte) *peerapi.Identity {
	t.Helper()
	id, err := peerapi.NewIdentity(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// start makes a node that has the bundle's header, and if full all of its chunks.
func start(t *testing.T, seed byte, file []byte, full bool, limit *peerapi.Limit) *servingNode {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "bundle.tar")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := bundlereader.OpenPath(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := &servingNode{id: identity(t, seed)}
	n.lib = bundlestore.OpenLibrary(dir, slog.New(slog.DiscardHandler), statefile.Ignore)
	if n.shelf, err = n.lib.Add(f.Header()); err != nil {
		t.Fatal(err)
	}
	if full {
		if err := bundlestore.Copy(t.Context(), f, n.shelf, chunks(n.shelf), func(int64) {}); err != nil {
			t.Fatal(err)
		}
	}
	n.lib.Serve([]string{n.shelf.Digest()})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.addr = l.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, l, Shelves{Library: n.lib}, peerapi.Alive{Node: fmt.Sprint(seed)}, n.id, func(string) bool { return true }, limit)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return n
}

func chunks(s *bundlestore.Shelf) (out []int) {
	for n := range s.Chunks() {
		out = append(out, n)
	}
	return out
}

func testBundle(t *testing.T, size int) []byte {
	return bundletest.Bytes(t, bundletest.Spec{Name: "b", Version: "1.0.0", ChunkSize: bundle.MinChunkSize,
		Payloads: []bundletest.Payload{{Name: "blob", Version: "v1.0.0", Content: bytes.Repeat([]byte("missing on the site "), size/20)}}})
}

func (n *servingNode) client(to *servingNode, limit *peerapi.Limit) *peerapi.Client {
	return peerapi.NewLimited(n.id, peerapi.Peer{Name: "p", Address: to.addr, PublicKey: to.id.PublicKey()}, limit)
}

// A node passes on what it has got within the limits of both; what was under way when
// it was cut off is not fetched twice.
func TestChunksPassThroughANodeWithinLimits(t *testing.T) {
	file := testBundle(t, 100<<10)
	limit := &peerapi.Limit{}
	limit.Set(8 << 20)
	a, b, c := start(t, 1, file, true, limit), start(t, 2, file, false, limit), start(t, 3, file, false, limit)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got atomic.Int64
	fetch := func(to *servingNode, from *servingNode, count *atomic.Int64) error {
		cl := to.client(from, limit)
		defer cl.Close()
		return Fetch(ctx, to.shelf, chunks(to.shelf), []Peer{cl}, Settings{
			Poll: 20 * time.Millisecond, ChunkTime: ChunkTime(limit, bundle.MinChunkSize), OnChunk: func(_ peerapi.Peer, _ int, n int64) { count.Add(n) }})
	}
	var passed atomic.Int64
	end := make(chan error, 1)
	go func() { end <- fetch(c, b, &passed) }() // before b has anything: it hears of every chunk
	if err := fetch(b, a, &got); err != nil {
		t.Fatal(err)
	}
	if err := <-end; err != nil {
		t.Fatal(err)
	}
	if got.Load() != passed.Load() || got.Load() == 0 {
		t.Fatalf("%d bytes came and %d went on", got.Load(), passed.Load())
	}
}

// After a restart only what is not here is fetched.
func TestARestartGoesOn(t *testing.T) {
	file := testBundle(t, 100<<10)
	a, b := start(t, 1, file, true, nil), start(t, 2, file, false, nil)
	cl := b.client(a, nil)
	defer cl.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var before, after atomic.Int64
	err := Fetch(ctx, b.shelf, chunks(b.shelf), []Peer{cl}, Settings{OnChunk: func(_ peerapi.Peer, _ int, n int64) {
		if before.Add(n) > 50<<10 {
			cancel() // the agent ends in the middle
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	here := int64(0)
	again := bundlestore.OpenLibrary(filepath.Dir(filepath.Dir(b.lib.Blobs().Dir())), slog.New(slog.DiscardHandler), statefile.Ignore)
	shelf := again.Shelf(b.shelf.Digest())
	for n := range shelf.Chunks() {
		if shelf.Has(n) {
			here += shelf.ChunkSize(n)
		}
	}
	if here < 50<<10 {
		t.Fatalf("%d bytes had come, after the restart %d are here", before.Load(), here)
	}
	if err := Fetch(t.Context(), shelf, chunks(shelf), []Peer{cl}, Settings{OnChunk: func(_ peerapi.Peer, _ int, n int64) { after.Add(n) }}); err != nil {
		t.Fatal(err)
	}
	var all int64
	for n := range shelf.Chunks() {
		all += shelf.ChunkSize(n)
	}
	if here+after.Load() != all {
		t.Fatalf("%d bytes were here, %d came, the bundle has %d", here, after.Load(), all)
	}
}

// A node with a stick gives others what it does not keep itself, from the stick; when
// that is pulled, it has it no more and says so.
func TestAMediumIsReadForOthers(t *testing.T) {
	file := testBundle(t, 20<<10)
	path := filepath.Join(t.TempDir(), "stick.tar")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	medium, err := bundlereader.OpenPath(path)
	if err != nil {
		t.Fatal(err)
	}
	defer medium.Close()
	a := start(t, 1, file, false, nil)
	var plugged bundlestore.ChunkReader = medium
	s := Shelves{Library: a.lib, Medium: func(*bundle.Header) bundlestore.ChunkReader { return plugged }}
	digest := a.shelf.Digest()
	for n := range a.shelf.Chunks() {
		b, err := s.Chunk(digest, n, nil)
		if err != nil || !s.Has(digest, n) || int64(len(b)) != a.shelf.ChunkSize(n) {
			t.Fatalf("chunk %d: %d bytes, %v", n, len(b), err)
		}
	}
	have, err := s.Have(digest)
	if err != nil || have[0] != 0xff {
		t.Fatalf("it says it has %x, %v", have, err)
	}
	if _, err := s.Chunk(digest, a.shelf.Chunks(), nil); !errors.Is(err, peerapi.ErrNotHere) {
		t.Fatalf("a chunk beyond the end: %v", err)
	}
	plugged = nil
	if _, err := s.Chunk(digest, 0, nil); !errors.Is(err, peerapi.ErrNotHere) || s.Has(digest, 0) {
		t.Fatalf("pulled, and still answered: %v", err)
	}
	a.lib.Serve(nil)
	plugged = medium
	if _, err := s.Chunk(digest, 0, nil); !errors.Is(err, peerapi.ErrNotHere) {
		t.Fatalf("a bundle that is not approved is read to others: %v", err)
	}
}

func TestChunkTime(t *testing.T) {
	l := &peerapi.Limit{}
	if got := ChunkTime(l, 512<<10); got != time.Minute {
		t.Errorf("without a limit: %s", got)
	}
	l.Set(128 << 10)
	if got := ChunkTime(l, 512<<10); got < 2*time.Minute {
		t.Errorf("sixteen chunks of 512 KiB at 128 KiB/s are a minute at the least, a chunk gets %s", got)
	}
}
