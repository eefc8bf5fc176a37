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

// Teller is a Library that says at once what is new in it. A library that is none
// is asked for its bitmap from time to time.
type Teller interface {
	// Chunks is how many the bundle has, 0 if it is not served.
	Chunks(digest string) int
	// Has reports chunk n of a bundle that is served.
	Has(digest string, n int) bool
	// Changed is closed when another chunk has come since it was asked for.
	Changed(digest string) <-chan struct{}
}

const (
	// gather is how long news is gathered before it is sent: one message for the
	// chunks of some milliseconds, and still long before one of them is sent.
	gather = 10 * time.Millisecond
	// heartbeat is how often a peer without news sends a heartbeat; deaf is the longest
	// silence.
	heartbeat = 10 * time.Second
	deaf      = 3 * heartbeat
	// nothingNew is the heartbeat; no chunk has this number.
	nothingNew = 1<<32 - 1
)

// tellNews answers GET /v1/bundles/{hex}/news: the bitmap of what is here, then the
// number of every chunk that comes, four bytes, most significant first.
func tellNews(lib Library, w http.ResponseWriter, r *http.Request) {
	digest := "sha256:" + r.PathValue("hex")
	tell, ok := lib.(Teller)
	if !ok {
		fail(w, ErrNotHere)
		return
	}
	changed := tell.Changed(digest) // before the look: what comes in between is seen
	have, err := lib.Have(digest)
	if err != nil {
		fail(w, err)
		return
	}
	n := teller{w: w, rc: http.NewResponseController(w), chunks: tell.Chunks(digest), told: have}
	// The limits of a question are none of a talk.
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

type teller struct {
	w      io.Writer
	rc     *http.ResponseController
	chunks int
	told   transfer.Bitmap
}

// wait returns when there is news, or when a heartbeat is due.
func (n *teller) wait(ctx context.Context, changed <-chan struct{}) bool {
	t := time.NewTimer(heartbeat)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	case <-changed:
	}
	t.Reset(gather)
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// fresh returns the message about chunks that were not sent yet.
func (n *teller) fresh(have transfer.Bitmap) []byte {
	var out []byte
	for c := range n.chunks {
		if have.Has(c) && !n.told.Has(c) {
			out = binary.BigEndian.AppendUint32(out, uint32(c))
		}
	}
	n.told = have
	if out == nil {
		out = binary.BigEndian.AppendUint32(out, nothingNew)
	}
	return out
}

func (n *teller) send(message []byte) bool {
	_ = n.rc.SetWriteDeadline(time.Now().Add(sendTime))
	if _, err := n.w.Write(message); err != nil {
		return false
	}
	return n.rc.Flush() == nil
}

// News tells what a peer has, and what comes to it, until the context or the
// connection ends: all once, then came for every chunk. ErrNotHere if the peer has
// not got the bundle, or does not tell news (then Have is the question).
func (c *Client) News(ctx context.Context, digest string, chunks int, all func(have []byte), came func(n int)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.AfterFunc(deaf, cancel)
	defer quiet.Stop()
	resp, err := c.ask(ctx, "/v1/bundles/"+strings.TrimPrefix(digest, "sha256:")+"/news")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	have := make([]byte, (chunks+7)/8)
	if _, err := io.ReadFull(resp.Body, have); err != nil {
		return c.where(err)
	}
	all(have)
	var word [4]byte
	for {
		if _, err := io.ReadFull(resp.Body, word[:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return c.where(err)
		}
		quiet.Reset(deaf)
		switch n := binary.BigEndian.Uint32(word[:]); {
		case n == nothingNew:
		case int64(n) >= int64(chunks):
			return c.where(fmt.Errorf("says that it has chunk %d of %d", n, chunks))
		default:
			came(int(n))
		}
	}
}
