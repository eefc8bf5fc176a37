package peerapi

import (
	"bufio"
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
)

// hostile answers every question with the same bytes.
type hostile []byte

func (h hostile) RoundTrip(r *http.Request) (*http.Response, error) {
	return http.ReadResponse(bufio.NewReader(bytes.NewReader(h)), r)
}

// For any answers of a peer, no caller gets more than it requested: headers, bitmaps, chunks
// and news, with an error or within the promised size.
func FuzzClient(f *testing.F) {
	answer := func(head, body string) []byte {
		return []byte("HTTP/1.1 200 OK\r\n" + head + "\r\n" + body)
	}
	f.Add(answer("Content-Length: 4\r\n", "abcd"), 9)
	f.Add(answer("Content-Length: 99999999999\r\n", "abcd"), 9)
	f.Add(answer("Transfer-Encoding: chunked\r\n"+nextHeader+": 7\r\n", "4\r\nabcd\r\n0\r\n\r\n"), 32)
	f.Add(answer("", "\x01\xff\x00\x00\x00\x01\xff\xff\xff\xff\x00\x00\x00\x7f"), 9)
	f.Add([]byte("HTTP/1.1 404 Not Found\r\n\r\n"), 9)
	f.Add([]byte("HTTP/1.1 500 x\r\n\r\n"+strings.Repeat("x", 300)), 0)
	f.Fuzz(func(t *testing.T, raw []byte, chunks int) {
		if chunks < 0 || chunks > 1<<16 {
			return
		}
		c := &Client{peer: Peer{Name: "p", Address: "192.0.2.1:1"}, http: &http.Client{Transport: hostile(raw)}}
		ctx := context.Background()
		_, _ = c.Alive(ctx)
		if b, err := c.Header(ctx, "sha256:a"); err == nil && len(b) > MaxHeader {
			t.Fatalf("a header of %d bytes", len(b))
		}
		if b, err := c.Have(ctx, "sha256:a", chunks); err == nil && len(b) > (chunks+7)/8 {
			t.Fatalf("a bitmap of %d bytes for %d chunks", len(b), chunks)
		}
		if b, _, err := c.FetchChunk(ctx, "sha256:a", 0, 64, nil); err == nil && len(b) > 64 {
			t.Fatalf("a chunk of %d bytes", len(b))
		}
		bitmaps := 0
		err := c.News(ctx, "sha256:a", chunks, func(have []byte) {
			if bitmaps++; len(have) != (chunks+7)/8 {
				t.Fatalf("a bitmap of %d bytes for %d chunks", len(have), chunks)
			}
		}, func(n int) {
			if n < 0 || n >= chunks {
				t.Fatalf("chunk %d of %d", n, chunks)
			}
		})
		if err == nil || bitmaps > 1 {
			t.Fatalf("news ended without an error, or had %d beginnings", bitmaps)
		}
	})
}
