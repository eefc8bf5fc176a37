// Package cloudtest cuts the line between an uploader and its cloud, as the death of its process
// does: nothing is sent any more, no answer is received, and nothing is cleaned up. It also starts
// a simulated vCenter.
//
// Inputs: where to cut. Outputs: an http.RoundTripper, and what went over the line; a vCenter and
// an OVA. Callers: tests of the clouds and of refit-providers.
package cloudtest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"testing"
)

// ErrCut is the error of every request after the cut.
var ErrCut = errors.New("the line is cut")

// Cut is a place to cut; the zero value never cuts.
type Cut struct {
	// Request is the number of the request to cut at, from 1: before it is sent, or with
	// Answered after the server handled it.
	Request  int
	Answered bool
	// Bytes of bodies after which to cut.
	Bytes int64
}

func (c Cut) String() string {
	if c.Bytes > 0 {
		return fmt.Sprintf("after %d bytes", c.Bytes)
	}
	if c.Answered {
		return fmt.Sprintf("request %d answered", c.Request)
	}
	return fmt.Sprintf("request %d not sent", c.Request)
}

// Line is a line to a cloud.
type Line struct {
	Cut Cut
	// Flip changes the byte with this number of all bodies; 0 for none.
	Flip int64

	next http.RoundTripper
	mu   sync.Mutex
	dead bool
	// Requests and Bytes are how much was sent.
	Requests int
	Bytes    int64
}

// Wrap makes the line a part of a transport.
func (l *Line) Wrap(next http.RoundTripper) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	l.next = next
	return l
}

// RoundTrip sends a request.
func (l *Line) RoundTrip(req *http.Request) (*http.Response, error) {
	l.mu.Lock()
	l.Requests++
	at := l.Cut.Request > 0 && l.Requests == l.Cut.Request
	l.dead = l.dead || at && !l.Cut.Answered
	dead := l.dead
	l.mu.Unlock()
	if dead {
		return nil, ErrCut
	}
	if req.Body != nil {
		req = req.Clone(req.Context())
		req.Body = &body{req.Body, l}
	}
	resp, err := l.next.RoundTrip(req)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = l.dead || at
	if l.dead && err == nil {
		_ = resp.Body.Close()
		return nil, ErrCut
	}
	return resp, err
}

type body struct {
	io.ReadCloser
	l *Line
}

func (b *body) Read(p []byte) (int, error) {
	l := b.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Cut.Bytes > 0 {
		if l.Bytes >= l.Cut.Bytes {
			l.dead = true
		}
		if left := l.Cut.Bytes - l.Bytes; left > 0 && int64(len(p)) > left {
			p = p[:left]
		}
	}
	if l.dead {
		return 0, ErrCut
	}
	n, err := b.ReadCloser.Read(p)
	if at := l.Flip - l.Bytes - 1; l.Flip > 0 && at >= 0 && at < int64(n) {
		p[at] ^= 1
	}
	l.Bytes += int64(n)
	return n, err
}

// Cuts returns cuts all over an upload that a whole run measured: at requests, before and after
// the server handled them, and at ten places within the bytes. At most about thirty requests are
// cut at, unless every is set.
func Cuts(whole *Line, every bool) []Cut {
	step := 1
	if !every {
		step = max(1, 2*whole.Requests/30)
	}
	var out []Cut
	for n := 0; n < 2*whole.Requests; n += step {
		out = append(out, Cut{Request: n/2 + 1, Answered: n%2 == 1})
	}
	for n := int64(1); n <= 10; n++ {
		out = append(out, Cut{Bytes: whole.Bytes * n / 11})
	}
	return out
}

// Killed is an upload that was cut, and continued by another process.
type Killed struct {
	Upload func(l *Line) error
	// AfterCut and AfterEnd report whether the image exists, after the cut and after the
	// second upload. They fail the test if something else is wrong.
	AfterCut func(t *testing.T) bool
	AfterEnd func(t *testing.T, second *Line) bool
}

// RunKilled cuts an upload everywhere. fresh makes an empty cloud for each cut. With REFIT_E2E=1
// it cuts at every request.
func RunKilled(t *testing.T, fresh func(t *testing.T) Killed) {
	t.Helper()
	whole := &Line{}
	if err := fresh(t).Upload(whole); err != nil {
		t.Fatal("without a cut:", err)
	}
	cuts := Cuts(whole, os.Getenv("REFIT_E2E") != "")
	if len(cuts) < 20 || whole.Bytes < 1000 {
		t.Fatalf("only %d cuts, %d bytes", len(cuts), whole.Bytes)
	}
	for _, cut := range cuts {
		t.Run(cut.String(), func(t *testing.T) {
			k := fresh(t)
			err := k.Upload(&Line{Cut: cut})
			switch exists := k.AfterCut(t); {
			case err == nil && !exists:
				t.Fatal("the upload did not notice the cut")
			case exists && cut.Bytes > 0:
				t.Error("an image exists before all bytes were sent")
			}
			second := &Line{}
			if err := k.Upload(second); err != nil {
				t.Fatal("the second upload:", err)
			}
			if !k.AfterEnd(t, second) {
				t.Error("the image does not exist after the second upload")
			}
		})
	}
}
