package peertransfer

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/peerapi"
)

// A reader that sleeps until 64 KiB have come gets every chunk whole, on one connection.
func TestChunksOfEverySize(t *testing.T) {
	server, peer := identity(t, 31), identity(t, 32)
	for _, size := range []int{1, 64 << 10, 192 << 10, 192<<10 + 1, 200_000, 512 << 10, 1<<20 + 7} {
		lib := bigLibrary{bytes.Repeat([]byte{byte(size)}, size)}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		go func() { _ = Serve(ctx, l, lib, peerapi.Alive{}, server, lib.accepts(peer), nil) }()
		c := peerapi.NewClient(peer, peerapi.Peer{Name: "n", Address: l.Addr().String(), PublicKey: server.PublicKey()})
		var buf []byte
		for range 5 {
			got, _, err := c.FetchChunk(ctx, bigDigest, 0, int64(size), buf)
			if err != nil || !bytes.Equal(got, lib.chunk) {
				t.Fatalf("a chunk of %d bytes came as %d: %v", size, len(got), err)
			}
			buf = got
		}
		c.Close()
		stop()
	}
}

// A peer that stops in the middle of a chunk holds its reader no longer than the reader wants.
func TestAChunkThatStops(t *testing.T) {
	server, peer := identity(t, 33), identity(t, 34)
	l, err := tls.Listen("tcp", "127.0.0.1:0", server.ServerTLS(func(key string) bool { return key == peer.PublicKey() }))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	sent := make(chan struct{})
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Read(make([]byte, 4096))
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\nfirst bytes", 512<<10)
		close(sent)
		<-t.Context().Done()
	}()
	c := peerapi.NewClient(peer, peerapi.Peer{Name: "n", Address: l.Addr().String(), PublicKey: server.PublicKey()})
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-sent
		time.Sleep(100 * time.Millisecond)
		cancel()
	}()
	if _, _, err := c.FetchChunk(ctx, bigDigest, 0, 512<<10, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want that it was cancelled", err)
	}
}
