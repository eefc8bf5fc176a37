package agent

import (
	"github.com/refit-dev/refit/internal/agent/bundlestore"

	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// restoreFirst returns the chunks to fetch before all others, in order: those of images that
// were pinned and that the runtime and the store lost. A pod may be waiting for these images;
// none waits for the next update.
func (l *bundleLoop) restoreFirst(s *bundlestore.Shelf) []int {
	w := l.desiredState()
	if w == nil {
		return nil
	}
	var out []int
	known := l.keeper.Known()
	for _, img := range w.Pins.Images {
		own, was := known[pin.Key(img)]
		if !was || own || img.Bundle != s.Digest() {
			continue
		}
		have := s.Bundle().ImageForPin(img)
		if have == nil {
			continue
		}
		for _, b := range pin.PlatformBlobs(s.Bundle(), have, platform(), s.ReadSmall) {
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
