package peerapi

import (
	"sync"

	"github.com/refit-dev/refit/internal/pipeline/transfer"
)

// offers recommends the next chunk to each peer. The node with the stick has many chunks
// alone. It sends each of them to one peer only while others were never sent: the peers
// exchange them, and its own link is no bottleneck. An offer is a recommendation: the
// node sends every chunk that a peer requests. Offers live in memory only.
type offers struct {
	mu sync.Mutex
	of map[string]*round
}

// round is one bundle: the chunks that were sent or offered, and the next to offer.
type round struct {
	given transfer.Bitmap
	next  int
}

// after notes that chunk n goes out and says which one to ask for next, -1 for none.
func (o *offers) after(lib Teller, digest string, n int) int {
	chunks := lib.Chunks(digest)
	if n < 0 || n >= chunks {
		return -1
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == nil {
		o.of = map[string]*round{}
	}
	r := o.of[digest]
	if r == nil {
		r = &round{given: transfer.NewBitmap(chunks)}
		o.of[digest] = r
	}
	r.given.Set(n)
	for range chunks {
		c := r.next
		r.next = (r.next + 1) % chunks
		if !r.given.Has(c) && lib.Has(digest, c) {
			r.given.Set(c)
			return c
		}
	}
	return -1
}
