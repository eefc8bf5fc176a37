package peertransfer

import (
	"context"
	"errors"
	"time"

	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/transfer"
)

// follow keeps what is known of a neighbour fresh while this node lacks something:
// by its news, or by asking again and again one that tells none.
func (f *fetch) follow(ctx context.Context, src *source) {
	for {
		if f.aside(src) <= 0 {
			f.listen(ctx, src)
		}
		if !sleep(ctx, f.s.Poll) {
			return
		}
	}
}

// listen returns when the neighbour says nothing any more.
func (f *fetch) listen(ctx context.Context, src *source) {
	err := src.peer.News(ctx, f.shelf.Digest(), f.shelf.Chunks(),
		func(have []byte) { f.knows(src, have) },
		func(n int) { f.came(src, n) })
	if errors.Is(err, peerapi.ErrNotHere) {
		f.refresh(ctx, src)
		return
	}
	if ctx.Err() == nil { // not merely because all is here
		f.failed(src, 1, err)
	}
}

func (f *fetch) refresh(parent context.Context, src *source) {
	ctx, cancel := context.WithTimeout(parent, f.s.ChunkTime)
	defer cancel()
	have, err := src.peer.Have(ctx, f.shelf.Digest(), f.shelf.Chunks())
	switch {
	case errors.Is(err, peerapi.ErrNotHere):
		have = nil // it will have the bundle later
	case err != nil:
		if parent.Err() == nil {
			f.failed(src, 1, err)
		}
		return
	}
	f.knows(src, have)
}

// knows takes over all that a neighbour has.
func (f *fetch) knows(src *source, have transfer.Bitmap) {
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

// came takes over one chunk more.
func (f *fetch) came(src *source, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if src.have.Has(n) {
		return
	}
	src.have.Set(n)
	f.holders[n]++
	if _, lacks := f.at[n]; lacks {
		f.wake()
	}
}

// aside is how long the neighbour stays aside.
func (f *fetch) aside(src *source) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Until(src.until)
}
