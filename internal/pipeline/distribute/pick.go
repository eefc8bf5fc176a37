package distribute

// Bitmap says which chunks somebody has: one bit a chunk, least significant
// bit first.
type Bitmap []byte

// NewBitmap makes an empty one for n chunks.
func NewBitmap(n int) Bitmap { return make(Bitmap, (n+7)/8) }

// Has reports chunk n; beyond the end nothing is there.
func (b Bitmap) Has(n int) bool {
	return n >= 0 && n/8 < len(b) && b[n/8]&(1<<(n%8)) != 0
}

// Set marks chunk n, which must be within the bitmap.
func (b Bitmap) Set(n int) { b[n/8] |= 1 << (n % 8) }

// Pick chooses the chunk to ask one neighbour for: of those that are missing
// here and that the neighbour has, one that the fewest neighbours have; ties
// are decided by lot. Chunks that are already under way come only when nothing
// else is left (so that one slow neighbour does not hold up the end), and those
// with the fewest askers first.
//
// lot(n) returns a number in [0,n). all are the bitmaps of all neighbours,
// theirs among them. It returns -1 if the neighbour has nothing that is wanted.
func Pick(missing []int, underWay map[int]int, theirs Bitmap, all []Bitmap, lot func(int) int) int {
	best, bestKey, ties := -1, 0, 0
	for _, n := range missing {
		if !theirs.Has(n) {
			continue
		}
		key := underWay[n] << 16
		for _, b := range all {
			if b.Has(n) {
				key++
			}
		}
		switch {
		case best < 0 || key < bestKey:
			best, bestKey, ties = n, key, 1
		case key == bestKey:
			ties++
			if lot(ties) == 0 {
				best = n
			}
		}
	}
	return best
}
