package peertransfer

import (
	"context"
	"errors"
	"time"

	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/transfer"
)

// followPeer keeps the state of a peer fresh while this node misses chunks: by the peer's
// news, or by repeated requests to a peer that sends none.
func (f *fetch) followPeer(ctx context.Context, src *peerState) {
	for {
		if f.backoffLeft(src) <= 0 {
			f.readNews(ctx, src)
		}
		if !sleep(ctx, f.s.Poll) {
			return
		}
	}
}

// readNews returns when the peer ends its news.
func (f *fetch) readNews(ctx context.Context, src *peerState) {
	err := src.peer.News(ctx, f.shelf.Digest(), f.shelf.Chunks(),
		func(have []byte) { f.setBitmap(src, have) },
		func(n int) { f.addChunk(src, n) })
	if errors.Is(err, peerapi.ErrNotHere) {
		f.refreshBitmap(ctx, src)
		return
	}
	if ctx.Err() == nil { // not only because all chunks are here
		f.backOff(src, 1, err)
	}
}

func (f *fetch) refreshBitmap(parent context.Context, src *peerState) {
	ctx, cancel := context.WithTimeout(parent, f.s.ChunkTime)
	defer cancel()
	have, err := src.peer.Have(ctx, f.shelf.Digest(), f.shelf.Chunks())
	switch {
	case errors.Is(err, peerapi.ErrNotHere):
		have = nil // it will have the bundle later
	case err != nil:
		if parent.Err() == nil {
			f.backOff(src, 1, err)
		}
		return
	}
	f.setBitmap(src, have)
}

// setBitmap sets all chunks that a peer has.
func (f *fetch) setBitmap(src *peerState, have transfer.Bitmap) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for n := range f.holders {
		switch was, is := src.have.Has(n), have.Has(n); {
		case is && !was:
			f.holders[n]++
		case was && !is:
			f.holders[n]--
		}
	}
	src.have = make(transfer.Bitmap, (len(f.holders)+7)/8)
	copy(src.have, have)
	f.wake()
}

// addChunk adds one chunk that a peer has.
func (f *fetch) addChunk(src *peerState, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if src.have.Has(n) {
		return
	}
	src.have.Set(n)
	f.holders[n]++
	if _, isMissing := f.position[n]; isMissing {
		f.wake()
	}
}

// backoffLeft is how long no request goes to the peer.
func (f *fetch) backoffLeft(src *peerState) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Until(src.retryAt)
}
