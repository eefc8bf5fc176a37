package transfer

// Bitmap has the chunks of a node: one bit for each chunk, least significant bit first.
type Bitmap []byte

// NewBitmap makes an empty one for n chunks.
func NewBitmap(n int) Bitmap { return make(Bitmap, (n+7)/8) }

// Has reports chunk n; beyond the end nothing is there.
func (b Bitmap) Has(n int) bool {
	return n >= 0 && n/8 < len(b) && b[n/8]&(1<<(n%8)) != 0
}

// Set marks chunk n, which must be within the bitmap.
func (b Bitmap) Set(n int) { b[n/8] |= 1 << (n % 8) }

// Clear takes the mark off chunk n; beyond the end there is none.
func (b Bitmap) Clear(n int) {
	if b.Has(n) {
		b[n/8] &^= 1 << (n % 8)
	}
}

// Question has the facts for one request to one peer.
type Question struct {
	// Missing are the chunks that are wanted and not here.
	Missing []int
	// Waits is the number of peers that were asked for chunk n already; negative if it
	// must not be requested now.
	Waits func(n int) int
	// Theirs are the chunks of the peer.
	Theirs Bitmap
	// Holders is how many peers have chunk n.
	Holders func(n int) int
	// First are chunks that come before all others, and their order.
	First map[int]int
	// Offers are the chunks of Missing that the peer has promised to no other node.
	Offers []int
	// Lot returns a number in [0,n).
	Lot func(n int) int
}

// Pick chooses the chunk to request from the peer, among the missing chunks that it has.
// Chunks that are needed now come first, in their order, then one that the fewest peers
// have. Of equals it is one that the peer offers, else a random one. Chunks in flight come
// only when nothing else is left, those with the fewest requests first. -1 if the peer has
// no missing chunk.
func Pick(q Question) int {
	best, bestKey, ties := -1, 0, 0
	for _, n := range q.Missing {
		if !q.Theirs.Has(n) {
			continue
		}
		key, ok := q.key(n)
		switch {
		case !ok:
		case best < 0 || key < bestKey:
			best, bestKey, ties = n, key, 1
		case key == bestKey:
			ties++
			if q.Lot(ties) == 0 {
				best = n
			}
		}
	}
	return q.offered(best, bestKey)
}

// key orders chunks; a smaller one is asked for earlier.
func (q Question) key(n int) (key int, ok bool) {
	waits := q.Waits(n)
	if waits < 0 {
		return 0, false
	}
	// Two bits for the requests in flight, one for "not needed now", the rest for the
	// order.
	if at, first := q.First[n]; first {
		return waits<<40 | at, true
	}
	return waits<<40 | 1<<39 | q.Holders(n), true
}

// offered is a chunk of the offers that is as good as the best, else the best.
func (q Question) offered(best, bestKey int) int {
	if best < 0 || len(q.Offers) == 0 {
		return best
	}
	for _, n := range q.Offers {
		if key, ok := q.key(n); ok && key == bestKey && q.Theirs.Has(n) {
			return n
		}
	}
	return best
}
