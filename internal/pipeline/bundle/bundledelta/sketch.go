package bundledelta

import (
	"container/heap"
	"slices"
)

const (
	// maxFeatures of a sketch; all sketches together have at most allFeatures.
	maxFeatures = 1024
	minFeatures = 64
	allFeatures = 1 << 21
	// leastShare of the features that one more old blob must add, as 1/leastShare.
	leastShare = 25
)

// gear mixes the bytes of a rolling hash over 32 bytes.
var gear = func() (g [256]uint64) {
	for i := range g {
		g[i] = mix(uint64(i) + 1)
	}
	return g
}()

func mix(x uint64) uint64 {
	x *= 0x9E3779B97F4A7C15
	x = (x ^ x>>32) * 0xD6E8FEB86659FD93
	x = (x ^ x>>32) * 0xD6E8FEB86659FD93
	return x ^ x>>32
}

// sketch has the smallest hashes of short ranges of a content, ascending. Sketches of contents
// that have much in common have many hashes in common.
type sketch []uint64

// sketcher makes a sketch of what is written to it.
type sketcher struct {
	hash  uint64
	limit int
	top   maxHeap
	in    map[uint64]bool
}

func newSketcher(limit int) *sketcher { return &sketcher{limit: limit, in: map[uint64]bool{}} }

func (s *sketcher) Write(p []byte) (int, error) {
	h := s.hash
	for _, c := range p {
		h = h<<2 + gear[c]
		if h>>60 == 0 { // one place of sixteen
			s.add(mix(h))
		}
	}
	s.hash = h
	return len(p), nil
}

func (s *sketcher) add(f uint64) {
	switch {
	case len(s.top) == s.limit && f >= s.top[0], s.in[f]:
		return
	case len(s.top) == s.limit:
		delete(s.in, s.top[0])
		s.top[0] = f
		heap.Fix(&s.top, 0)
	default:
		heap.Push(&s.top, f)
	}
	s.in[f] = true
}

func (s *sketcher) sketch() sketch {
	out := slices.Clone(s.top)
	slices.Sort(out)
	return sketch(out)
}

type maxHeap []uint64

func (h maxHeap) Len() int           { return len(h) }
func (h maxHeap) Less(i, j int) bool { return h[i] > h[j] }
func (h maxHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *maxHeap) Push(x any)        { *h = append(*h, x.(uint64)) }
func (h *maxHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// catalog finds contents by their sketches.
type catalog map[uint64][]int32

func (c catalog) add(blob int, s sketch) {
	for _, f := range s {
		c[f] = append(c[f], int32(blob))
	}
}

// similar returns the contents that together have most of the new one, the best first.
func (c catalog) similar(of sketch) []int {
	left := slices.Clone(of)
	var out []int
	for len(out) < maxRefs {
		common := map[int32]int{}
		best, most := int32(-1), len(of)/leastShare
		for _, f := range left {
			for _, blob := range c[f] {
				common[blob]++
				if n := common[blob]; n > most || n == most && best >= 0 && blob < best {
					best, most = blob, n
				}
			}
		}
		if best < 0 {
			break
		}
		left = slices.DeleteFunc(left, func(f uint64) bool { return slices.Contains(c[f], best) })
		out = append(out, int(best))
	}
	return out
}
