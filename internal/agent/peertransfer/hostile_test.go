package peertransfer

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/peerapi"
)

// bigLibrary has one bundle of a few large chunks: more than a socket buffers.
type bigLibrary struct{ chunk []byte }

var bigDigest = "sha256:" + string(bytes.Repeat([]byte("a"), 64))

func (l bigLibrary) Header(string) ([]byte, error)             { return []byte("header"), nil }
func (l bigLibrary) Have(string) ([]byte, error)               { return []byte{0xff}, nil }
func (l bigLibrary) Chunk(string, int, []byte) ([]byte, error) { return l.chunk, nil }
func (l bigLibrary) Chunks(string) int                         { return 8 }
func (l bigLibrary) Has(string, int) bool                      { return true }
func (l bigLibrary) Changed(string) <-chan struct{}            { return nil }
func (l bigLibrary) accepts(ids ...*peerapi.Identity) func(string) bool {
	return func(key string) bool {
		for _, id := range ids {
			if id.PublicKey() == key {
				return true
			}
		}
		return false
	}
}

// hostileSite is a server with an honest and a hostile peer.
type hostileSite struct {
	addr            string
	server          *peerapi.Identity
	honest, hostile *peerapi.Identity
	chunk           []byte
}

func newHostileSite(t *testing.T) *hostileSite {
	t.Helper()
	lib := bigLibrary{bytes.Repeat([]byte("c"), 16<<20)}
	s := &hostileSite{server: identity(t, 21), honest: identity(t, 22), hostile: identity(t, 23), chunk: lib.chunk}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, l, lib, peerapi.Alive{Node: "n"}, s.server, lib.accepts(s.honest, s.hostile), nil)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// ask sends a request over a connection of its own and reads nothing.
func (s *hostileSite) ask(t *testing.T, path string) {
	t.Helper()
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", s.addr, s.hostile.ServerTLS(func(string) bool { return true }))
	if err != nil {
		return // refused is fine
	}
	t.Cleanup(func() { _ = c.NetConn().Close() })
	_, _ = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: n\r\n\r\n", path) // closed is fine
}

// honestly fetches a chunk and a word of news as a peer does.
func (s *hostileSite) honestly(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c := peerapi.NewClient(s.honest, peerapi.Peer{Name: "n", Address: s.addr, PublicKey: s.server.PublicKey()})
	defer c.Close()
	got, err := c.Chunk(ctx, bigDigest, 0, int64(len(s.chunk)))
	if err != nil || len(got) != len(s.chunk) {
		t.Fatalf("an honest peer got %d bytes: %v", len(got), err)
	}
	heard := false
	err = c.News(ctx, bigDigest, 8, func([]byte) { heard = true; cancel() }, func(int) {})
	if !heard {
		t.Fatalf("an honest peer hears no news: %v", err)
	}
}

// settled waits until at most this many goroutines are left.
func settled(t *testing.T, most int) {
	t.Helper()
	for range 80 {
		if runtime.NumGoroutine() <= most {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("%d goroutines, want at most %d", runtime.NumGoroutine(), most)
}

// One peer that asks much and reads nothing takes nothing from the others.
func TestAPeerThatDoesNotReadStarvesNoOther(t *testing.T) {
	s := newHostileSite(t)
	for range 64 {
		s.ask(t, "/v1/bundles/"+bigDigest[7:]+"/chunks/1")
	}
	s.honestly(t)
}

// However many talks of news a peer starts, what they cost is bounded.
func TestTalksOfNewsAreBounded(t *testing.T) {
	s := newHostileSite(t)
	before := runtime.NumGoroutine()
	for range 1500 {
		s.ask(t, "/v1/bundles/"+bigDigest[7:]+"/news")
	}
	settled(t, before+100)
	s.honestly(t)
}

// Connections without a key, and with one, are bounded, and a peer still gets in.
func TestConnectionsAreBounded(t *testing.T) {
	s := newHostileSite(t)
	before := runtime.NumGoroutine()
	for range 600 {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	settled(t, before+100)
	s.honestly(t)
	for range 300 {
		s.ask(t, "/v1/alive")
	}
	settled(t, before+100)
	s.honestly(t)
}
