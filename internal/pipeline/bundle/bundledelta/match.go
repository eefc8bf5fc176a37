package bundledelta

import (
	"encoding/binary"
	"math/bits"
)

const (
	// seedSize is how many equal bytes are found at least.
	seedSize = 16
	// maxSlots bounds the index of the old bytes: four bytes each.
	maxSlots = 1 << 24
	// leastStep is the distance of indexed positions in small inputs.
	leastStep = 4
	// opCost is about how many bytes an operation takes in the delta: changes to another place
	// must give more.
	opCost = 8
	// patience is how many bytes after its best end a segment is given up.
	patience = 512
	// maxBack bounds how far a new segment is extended to the front.
	maxBack = 64 << 10
)

// op is a step of a patch: extra new bytes, then diff bytes that are a sum of bytes and those of
// the old at old.
type op struct{ extra, diff, old int }

// index finds places in the old bytes.
type index struct {
	old   []byte
	slots []uint32 // one more than position/step; 0 is none
	shift uint
	step  int
}

func newIndex(old []byte) *index {
	step := leastStep
	for len(old)/step > maxSlots {
		step *= 2
	}
	size := max(8, min(bits.Len(maxSlots-1), bits.Len(uint(len(old)/step))))
	ix := &index{old: old, slots: make([]uint32, 1<<size), shift: uint(64 - size), step: step}
	for i := 0; i+seedSize <= len(old); i += step {
		ix.slots[ix.slot(old[i:])] = uint32(i/step) + 1
	}
	return ix
}

func (ix *index) slot(b []byte) uint64 {
	x, y := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	h := x*0x9E3779B97F4A7C15 + bits.RotateLeft64(y*0xC2B2AE3D27D4EB4F, 29)
	return (h * 0x165667B19E3779F9) >> ix.shift
}

// find returns a place of the beginning of b, and how many bytes are equal, 0 if none is known.
func (ix *index) find(b []byte) (at, n int) {
	if len(b) < seedSize {
		return 0, 0
	}
	slot := ix.slots[ix.slot(b)]
	if slot == 0 {
		return 0, 0
	}
	at = int(slot-1) * ix.step
	if n = equalRun(ix.old[at:], b); n < seedSize {
		return 0, 0
	}
	return at, n
}

// equalRun is how many bytes at the beginning of a and b are equal.
func equalRun(a, b []byte) int {
	n, i := min(len(a), len(b)), 0
	for ; i+8 <= n; i += 8 {
		if x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// equalBytes counts the places at which a and b are equal.
func equalBytes(a, b []byte) int {
	same := 0
	for i := range min(len(a), len(b)) {
		if a[i] == b[i] {
			same++
		}
	}
	return same
}

// matcher walks over the new bytes along segments: ranges that resemble the old bytes at a fixed
// distance. Equal bytes add to the score of a segment, others take from it; the segment ends
// where its score was best.
type matcher struct {
	*index
	b    []byte // the new bytes
	emit func(op) error

	at      int // next byte to compare
	done    int // bytes before it are emitted
	inside  bool
	from    int // where the segment begins
	delta   int // place in the old bytes minus place in the new ones
	score   int
	best    int
	bestEnd int
}

// match calls emit for operations that make b of the old bytes.
func (ix *index) match(b []byte, emit func(op) error) error {
	m := &matcher{index: ix, b: b, emit: emit}
	for m.at < len(b) {
		if !m.inside {
			m.search()
		} else if err := m.along(); err != nil {
			return err
		}
	}
	if err := m.end(); err != nil {
		return err
	}
	if m.done < len(b) {
		return emit(op{extra: len(b) - m.done})
	}
	return nil
}

// search goes on to the next place that is in the old bytes.
func (m *matcher) search() {
	for ; m.at < len(m.b); m.at++ {
		if at, n := m.find(m.b[m.at:]); n > 0 {
			m.begin(at)
			return
		}
	}
}

// along compares the rest of a run, and decides what follows the first byte that differs.
func (m *matcher) along() error {
	n := equalRun(m.old[m.at+m.delta:], m.b[m.at:])
	m.at += n
	if m.score += n; m.score > m.best {
		m.best, m.bestEnd = m.score, m.at
	}
	switch {
	case m.at == len(m.b):
		return nil
	case m.at+m.delta >= len(m.old), m.at-m.bestEnd > patience:
		return m.end()
	}
	if at, n := m.find(m.b[m.at:]); n > 0 && at-m.at != m.delta {
		old := m.old[m.at+m.delta:]
		if n > equalBytes(old[:min(n, len(old))], m.b[m.at:])+opCost {
			return m.change(at)
		}
	}
	m.score--
	m.at++
	if m.at+m.delta >= len(m.old) {
		return m.end()
	}
	return nil
}

// begin begins a segment at the place at of the old bytes.
func (m *matcher) begin(at int) {
	m.inside, m.delta = true, at-m.at
	m.from = m.at - m.back(m.done, at)
	m.score, m.best, m.bestEnd = 0, 0, m.at
}

// back is how many bytes before the next one belong to a segment at the place at, not before low.
func (m *matcher) back(low, at int) int {
	score, best, n := 0, 0, 0
	for i := 1; i <= min(m.at-low, at, maxBack); i++ {
		if m.b[m.at-i] == m.old[at-i] {
			score++
		} else {
			score--
		}
		if score > best {
			best, n = score, i
		}
		if best-score > patience {
			break
		}
	}
	return n
}

// change ends the segment and begins one at the place at. Where both could be, the border is where
// most bytes are equal.
func (m *matcher) change(at int) error {
	start := m.at - m.back(m.from, at)
	if start < m.bestEnd {
		delta, score, best, split := at-m.at, 0, 0, start
		for i := start; i < m.bestEnd; i++ {
			if m.b[i] == m.old[i+m.delta] {
				score++
			}
			if m.b[i] == m.old[i+delta] {
				score--
			}
			if score > best {
				best, split = score, i+1
			}
		}
		m.bestEnd, start = split, split
	}
	if err := m.end(); err != nil {
		return err
	}
	m.inside, m.delta, m.from = true, at-m.at, start
	m.score, m.best, m.bestEnd = 0, 0, m.at
	return nil
}

// end emits the segment up to its best end.
func (m *matcher) end() error {
	if !m.inside {
		return nil
	}
	m.inside = false
	if m.bestEnd <= m.from {
		return nil
	}
	o := op{extra: m.from - m.done, diff: m.bestEnd - m.from, old: m.from + m.delta}
	m.done = m.bestEnd
	return m.emit(o)
}
