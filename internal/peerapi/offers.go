package peerapi

import (
	"sync"

	"github.com/refit-dev/refit/internal/pipeline/transfer"
)

// offers are what a node lets each of its neighbours ask for next. A node that
// alone has many chunks, the one with the stick, so gives each of them to one
// neighbour only while there is another that nobody got yet: the neighbours pass
// them on among themselves, and its own wire is no bottleneck. It is a
// recommendation: whatever is asked for is sent. Nothing of it outlives the
// process or has to.
type offers struct {
	mu sync.Mutex
	of map[string]*round
}

// round is one bundle: what was sent or offered to anybody, and where to look on.
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
