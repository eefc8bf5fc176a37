package agent

import (
	"github.com/refit-dev/refit/internal/agent/bundlestore"

	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// first are the chunks that come before all others, in order: those of images that
// this node held and that went, with their blobs. A pod may be waiting for them, what
// is for the next update is not.
func (a *Agent) first(s *bundlestore.Shelf) []int {
	w := a.wanted()
	if w == nil {
		return nil
	}
	var out []int
	known := a.keeper.Known()
	for _, img := range w.Hold.Images {
		own, was := known[pin.Key(img)]
		if !was || own || img.Bundle != s.Digest() {
			continue
		}
		have := s.Bundle().Held(img)
		if have == nil {
			continue
		}
		for _, b := range pin.Share(s.Bundle(), have, platform(), s.ReadSmall) {
			begin, n := s.Bundle().Chunks.OfBlob(b)
			for c := begin; c < begin+n; c++ {
				if !s.Has(c) {
					out = append(out, c)
				}
			}
		}
	}
	return out
}
