package peerapi

import (
	"sync"

	"github.com/refit-dev/refit/internal/pipeline/transfer"
)

// offers recommends the next chunk to each peer. The node with the medium is the only source
// of many chunks. While some of them were never sent, it sends each to one peer only: the
// peers exchange them, and its own link is no bottleneck. An offer is a recommendation: the
// node sends every chunk that a peer requests. Offers are in memory only.
type offers struct {
	mu     sync.Mutex
	rounds map[string]*bundleOffers
}

// bundleOffers has the chunks of one bundle that were sent or offered, and the next to offer.
type bundleOffers struct {
	offered transfer.Bitmap
	next    int
}

// nextOffer records that chunk n is sent and returns the one to request next, -1 for none.
func (o *offers) nextOffer(lib Notifier, digest string, n int) int {
	chunks := lib.Chunks(digest)
	if n < 0 || n >= chunks {
		return -1
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.rounds == nil {
		o.rounds = map[string]*bundleOffers{}
	}
	r := o.rounds[digest]
	if r == nil {
		r = &bundleOffers{offered: transfer.NewBitmap(chunks)}
		o.rounds[digest] = r
	}
	r.offered.Set(n)
	for range chunks {
		c := r.next
		r.next = (r.next + 1) % chunks
		if !r.offered.Has(c) && lib.Has(digest, c) {
			r.offered.Set(c)
			return c
		}
	}
	return -1
}
