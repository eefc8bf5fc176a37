package peertransfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/transfer"
)

const testChunk = 1 << 10

// oneBlob is a shelf over a real store with a bundle of a single blob.
type oneBlob struct {
	digest string
	blob   bundlestore.Blob
	st     *bundlestore.BlobStore
}

func (o *oneBlob) Digest() string { return o.digest }
func (o *oneBlob) Chunks() int    { return o.blob.Chunks() }
func (o *oneBlob) ChunkSize(n int) int64 {
	return min(o.blob.ChunkSize, o.blob.Size-int64(n)*o.blob.ChunkSize)
}
func (o *oneBlob) Has(n int) bool {
	have, err := o.st.Have(o.blob)
	return err == nil && have[n]
}
func (o *oneBlob) Put(n int, data []byte) (bool, error) { return o.st.Put(o.blob, n, data) }

// node is one in-process agent: a store, a real server, a key.
type node struct {
	name    string
	shelf   *oneBlob
	id      *peerapi.Identity
	addr    string
	allowed map[string]bool
	serve   func(n int, b []byte) []byte // may send wrong bytes or be slow
	asked   atomic.Int64
}

func (n *node) Header(d string) ([]byte, error) {
	if d != n.shelf.digest {
		return nil, peerapi.ErrNotHere
	}
	return []byte("header of " + d), nil
}

func (n *node) Have(d string) ([]byte, error) {
	if d != n.shelf.digest {
		return nil, peerapi.ErrNotHere
	}
	have, err := n.shelf.st.Have(n.shelf.blob)
	bm := transfer.NewBitmap(len(have))
	for i, h := range have {
		if h {
			bm.Set(i)
		}
	}
	return bm, err
}

func (n *node) Chunk(d string, c int, _ []byte) ([]byte, error) {
	n.asked.Add(1)
	b, err := n.shelf.st.Get(n.shelf.blob, c, make([]byte, testChunk))
	if errors.Is(err, bundlestore.ErrAbsent) {
		return nil, peerapi.ErrNotHere
	}
	if n.serve != nil {
		b = n.serve(c, b)
	}
	return b, err
}

func startNode(t *testing.T, name string, blob bundlestore.Blob) *node {
	t.Helper()
	st := bundlestore.BlobsAt(t.TempDir())
	key, _, err := peerapi.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	id, err := peerapi.NewIdentity(key)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{name: name, id: id, allowed: map[string]bool{}, shelf: &oneBlob{digest: "sha256:" + hex.EncodeToString(make([]byte, 32)), blob: blob, st: st}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.addr = l.Addr().String()
	srv := peerapi.NewServer(peerapi.Handler(n, peerapi.Alive{Node: name, Version: "test"}))
	go func() {
		_ = srv.Serve(tls.NewListener(l, id.ServerTLS(func(pub string) bool { return n.allowed[pub] })))
	}()
	t.Cleanup(func() { _ = srv.Close() })
	return n
}

func testBlob(chunks int) ([]byte, bundlestore.Blob) {
	data := make([]byte, chunks*testChunk-7)
	for i := range data {
		data[i] = byte(rand.IntN(256))
	}
	sum := sha256.Sum256(data)
	b := bundlestore.Blob{Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(data)), ChunkSize: testChunk}
	for off := 0; off < len(data); off += testChunk {
		b.Sums = append(b.Sums, sha256.Sum256(data[off:min(off+testChunk, len(data))]))
	}
	return data, b
}

func (n *node) fill(t *testing.T, data []byte) {
	t.Helper()
	for c := range n.shelf.Chunks() {
		if _, err := n.shelf.Put(c, data[c*testChunk:min((c+1)*testChunk, len(data))]); err != nil {
			t.Fatal(err)
		}
	}
}

func fast() Settings {
	return Settings{Poll: 10 * time.Millisecond, ChunkTime: 2 * time.Second, Backoff: 20 * time.Millisecond}
}

func seq(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}

// fetchInto runs Fetch on n from the others, and reports bytes kept.
func fetchInto(ctx context.Context, n *node, from []*node, s Settings) (int64, error) {
	var got atomic.Int64
	s.OnChunk = func(_ peerapi.Peer, _ int, b int64) { got.Add(b) }
	var peers []Peer
	for _, o := range from {
		c := peerapi.NewClient(n.id, peerapi.Peer{Name: o.name, Address: o.addr, PublicKey: o.id.PublicKey()})
		defer c.Close()
		peers = append(peers, c)
	}
	err := Fetch(ctx, n.shelf, seq(n.shelf.Chunks()), peers, s)
	return got.Load(), err
}

func know(nodes ...*node) {
	for _, a := range nodes {
		for _, b := range nodes {
			a.allowed[b.id.PublicKey()] = true
		}
	}
}

// One node has the file and all nodes get it, though each knows only a few peers; and the
// first does not have to send everything to every node.
func TestSwarm(t *testing.T) {
	data, blob := testBlob(64)
	var nodes []*node
	byName := map[string]*node{}
	var names []string
	for i := range 9 {
		n := startNode(t, fmt.Sprint("n", i), blob)
		nodes, byName[n.name], names = append(nodes, n), n, append(names, n.name)
	}
	know(nodes...)
	nodes[0].fill(t, data)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	g := transfer.Peers(names)
	errs := make(chan error, len(nodes))
	for _, n := range nodes[1:] {
		go func() {
			var from []*node
			for _, p := range g[n.name] {
				from = append(from, byName[p])
			}
			got, err := fetchInto(ctx, n, from, fast())
			if err == nil && got != int64(len(data)) {
				err = fmt.Errorf("%s says it fetched %d bytes of %d", n.name, got, len(data))
			}
			errs <- err
		}()
	}
	for range nodes[1:] {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range nodes[1:] {
		if !n.shelf.st.Has(blob.Digest) {
			t.Errorf("%s does not have the blob", n.name)
		}
	}
	if all := int64(8 * 64); nodes[0].asked.Load() >= all {
		t.Errorf("the first node sent %d chunks, that is everything to everyone: the others did not help", nodes[0].asked.Load())
	}
}

// A peer that sends wrong chunks delays only its own requests.
func TestBadPeersCostOnlyThemselves(t *testing.T) {
	data, blob := testBlob(32)
	for name, spoil := range map[string]func(*node){
		"one sends wrong bytes": func(n *node) {
			n.serve = func(_ int, b []byte) []byte { b = bytes.Clone(b); b[0] ^= 1; return b }
		},
		"one sends too few bytes": func(n *node) { n.serve = func(_ int, b []byte) []byte { return b[:len(b)-1] } },
		"one sends too many bytes": func(n *node) {
			n.serve = func(_ int, b []byte) []byte { return append(bytes.Clone(b), make([]byte, 2<<20)...) }
		},
		"one never answers": func(n *node) {
			n.serve = func(_ int, b []byte) []byte { time.Sleep(500 * time.Millisecond); return b }
		},
		"one is not there":            func(n *node) { n.addr = "127.0.0.1:1" },
		"one shows another key":       func(n *node) { k, _, _ := peerapi.NewKey(); n.id, _ = peerapi.NewIdentity(k) },
		"one says it has all but has": func(n *node) { n.serve = func(int, []byte) []byte { return nil } },
	} {
		t.Run(name, func(t *testing.T) {
			a, good, bad := startNode(t, "a", blob), startNode(t, "good", blob), startNode(t, "bad", blob)
			good.fill(t, data)
			bad.fill(t, data)
			know(a, good, bad)
			spoil(bad)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			s := fast()
			s.ChunkTime = 100 * time.Millisecond
			if _, err := fetchInto(ctx, a, []*node{bad, good}, s); err != nil {
				t.Fatal(err)
			}
			if !a.shelf.st.Has(blob.Digest) {
				t.Fatal("not complete")
			}
		})
	}
}

// Chunks that the node waits for come first, in their order, even if others are rarer.
func TestWhatIsNeededNowComesFirst(t *testing.T) {
	data, blob := testBlob(64)
	a, b := startNode(t, "a", blob), startNode(t, "b", blob)
	know(a, b)
	b.fill(t, data)
	var mu sync.Mutex
	var order []int
	b.serve = func(n int, chunk []byte) []byte {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, n)
		return chunk
	}
	s := fast()
	s.Streams, s.First = 1, []int{40, 7, 41, 12}
	if _, err := fetchInto(t.Context(), a, []*node{b}, s); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(order[:4], s.First) {
		t.Fatalf("asked for %v first, needed are %v", order[:4], s.First)
	}
}

// A bad peer is named, once for every wrong chunk that it sent, and no other is.
func TestABadPeerIsNamed(t *testing.T) {
	data, blob := testBlob(32)
	a, good, bad := startNode(t, "a", blob), startNode(t, "good", blob), startNode(t, "bad", blob)
	good.fill(t, data)
	bad.fill(t, data)
	know(a, good, bad)
	bad.serve = func(_ int, b []byte) []byte { b = bytes.Clone(b); b[0] ^= 1; return b }
	var mu sync.Mutex
	named := map[string]int{}
	s := fast()
	s.OnBadChunk = func(p peerapi.Peer, _ int) {
		mu.Lock()
		defer mu.Unlock()
		named[p.Name]++
	}
	good.serve = func(_ int, b []byte) []byte { // it has the time to be asked
		for range 1000 {
			mu.Lock()
			n := named["bad"]
			mu.Unlock()
			if n > 0 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		return b
	}
	if _, err := fetchInto(t.Context(), a, []*node{bad, good}, s); err != nil {
		t.Fatal(err)
	}
	if named["bad"] == 0 || len(named) != 1 {
		t.Fatalf("named as bad peers: %v", named)
	}
}

func TestFetch(t *testing.T) {
	data, blob := testBlob(16)
	t.Run("a node that is not a peer is not served", func(t *testing.T) {
		a, b := startNode(t, "a", blob), startNode(t, "b", blob)
		b.fill(t, data)
		c := peerapi.NewClient(a.id, peerapi.Peer{Name: "b", Address: b.addr, PublicKey: b.id.PublicKey()})
		defer c.Close()
		if _, err := c.Header(t.Context(), b.shelf.digest); err == nil {
			t.Fatal("a stranger was served")
		}
		know(a, b)
		if _, err := c.Header(t.Context(), b.shelf.digest); err != nil {
			t.Fatalf("a peer was not served: %v", err)
		}
		if _, err := c.Header(t.Context(), "sha256:"+hex.EncodeToString(bytes.Repeat([]byte{1}, 32))); !errors.Is(err, peerapi.ErrNotHere) {
			t.Fatalf("a bundle that is not approved was answered with %v", err)
		}
	})
	t.Run("what is here is not fetched again", func(t *testing.T) {
		a, b := startNode(t, "a", blob), startNode(t, "b", blob)
		know(a, b)
		b.fill(t, data)
		for c := range 10 {
			if _, err := a.shelf.Put(c, data[c*testChunk:(c+1)*testChunk]); err != nil {
				t.Fatal(err)
			}
		}
		got, err := fetchInto(t.Context(), a, []*node{b}, fast())
		if err != nil || b.asked.Load() > 12 || got != int64(len(data)-10*testChunk) {
			t.Fatalf("err %v, asked %d times, kept %d bytes", err, b.asked.Load(), got)
		}
	})
	t.Run("no peer has it: it waits until the context ends and nothing leaks", func(t *testing.T) {
		a, b := startNode(t, "a", blob), startNode(t, "b", blob)
		know(a, b)
		before := goleak.IgnoreCurrent()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		if _, err := fetchInto(ctx, a, []*node{b}, fast()); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
		goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("net/http.(*conn).serve"), goleak.IgnoreAnyFunction("net/http.(*connReader).backgroundRead"))
	})
	t.Run("a header that is not that of the digest is passed over", func(t *testing.T) {
		a, b := startNode(t, "a", blob), startNode(t, "b", blob)
		know(a, b)
		c := peerapi.NewClient(a.id, peerapi.Peer{Name: "b", Address: b.addr, PublicKey: b.id.PublicKey()})
		defer c.Close()
		tries := 0
		raw, err := FetchHeader(t.Context(), b.shelf.digest, []HeaderPeer{c, c}, func(raw []byte) error {
			if tries++; tries == 1 {
				return errors.New("another digest")
			}
			return nil
		})
		if err != nil || !slices.Equal(raw, []byte("header of "+b.shelf.digest)) {
			t.Fatalf("got %q, %v", raw, err)
		}
	})
}
