package peerapi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/pipeline/transfer"
)

// Notifier is a Library that reports new chunks at once. Peers poll the bitmap of any other
// library.
type Notifier interface {
	// Chunks is how many the bundle has, 0 if it is not served.
	Chunks(digest string) int
	// Has reports whether chunk n of a served bundle is here.
	Has(digest string, n int) bool
	// Changed is closed when another chunk has come since the call.
	Changed(digest string) <-chan struct{}
}

const (
	// batchTime is how long news is collected before it is sent: one message for the
	// chunks of some milliseconds, much faster than one of them is sent.
	batchTime = 10 * time.Millisecond
	// heartbeat is how often a peer without news sends a heartbeat; maxSilence is when
	// the client gives up without one.
	heartbeat  = 10 * time.Second
	maxSilence = 3 * heartbeat
	// heartbeatWord is the heartbeat; no chunk has this number.
	heartbeatWord = 1<<32 - 1
)

// serveNews answers GET /v1/bundles/{hex}/news: the bitmap of what is here, then the number
// of every chunk that comes, four bytes, most significant first.
func serveNews(lib Library, w http.ResponseWriter, r *http.Request) {
	digest := "sha256:" + r.PathValue("hex")
	tell, ok := lib.(Notifier)
	if !ok {
		writeError(w, ErrNotHere)
		return
	}
	changed := tell.Changed(digest) // before Have: a chunk that comes in between is not missed
	have, err := lib.Have(digest)
	if err != nil {
		writeError(w, err)
		return
	}
	n := newsStream{w: w, rc: http.NewResponseController(w), chunks: tell.Chunks(digest), sent: have}
	// The deadline of a request does not apply to a stream.
	_ = n.rc.SetReadDeadline(time.Time{})
	w.Header().Set("Content-Type", "application/octet-stream")
	if !n.send(have) {
		return
	}
	for n.wait(r.Context(), changed) {
		changed = tell.Changed(digest)
		if have, err = lib.Have(digest); err != nil || !n.send(n.fresh(have)) {
			return // it is not served any more, or the peer has gone
		}
	}
}

type newsStream struct {
	w      io.Writer
	rc     *http.ResponseController
	chunks int
	sent   transfer.Bitmap
}

// wait returns when there is news, or when a heartbeat is due.
func (n *newsStream) wait(ctx context.Context, changed <-chan struct{}) bool {
	t := time.NewTimer(heartbeat)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	case <-changed:
	}
	t.Reset(batchTime)
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// fresh returns the message about chunks that were not sent yet.
func (n *newsStream) fresh(have transfer.Bitmap) []byte {
	var out []byte
	for c := range n.chunks {
		if have.Has(c) && !n.sent.Has(c) {
			out = binary.BigEndian.AppendUint32(out, uint32(c))
		}
	}
	n.sent = have
	if out == nil {
		out = binary.BigEndian.AppendUint32(out, heartbeatWord)
	}
	return out
}

func (n *newsStream) send(message []byte) bool {
	_ = n.rc.SetWriteDeadline(time.Now().Add(sendTime))
	if _, err := n.w.Write(message); err != nil {
		return false
	}
	return n.rc.Flush() == nil
}

// News reads what a peer has, and what comes to it, until the context or the connection
// ends: it calls all once, then came for every chunk. ErrNotHere if the peer does not have
// the bundle, or sends no news (then call Have).
func (c *Client) News(ctx context.Context, digest string, chunks int, all func(have []byte), came func(n int)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.AfterFunc(maxSilence, cancel)
	defer quiet.Stop()
	resp, err := c.request(ctx, "/v1/bundles/"+strings.TrimPrefix(digest, "sha256:")+"/news")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	have := make([]byte, (chunks+7)/8)
	if _, err := io.ReadFull(resp.Body, have); err != nil {
		return c.wrapError(err)
	}
	all(have)
	var word [4]byte
	for {
		if _, err := io.ReadFull(resp.Body, word[:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return c.wrapError(err)
		}
		quiet.Reset(maxSilence)
		switch n := binary.BigEndian.Uint32(word[:]); {
		case n == heartbeatWord:
		case int64(n) >= int64(chunks):
			return c.wrapError(fmt.Errorf("says that it has chunk %d of %d", n, chunks))
		default:
			came(int(n))
		}
	}
}
