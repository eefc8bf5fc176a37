package pin

import (
	"fmt"
	"sort"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// Reason words; the catalogue in the API has the same.
const (
	reasonPayloadMissing    = "PayloadMissing"
	reasonInsufficientSpace = "InsufficientSpace"
)

// Needed is what a node needs of one bundle.
type Needed struct {
	// Images and Payloads of the bundle that the hold list names; of an image that was
	// made on the site its base.
	Images   []bundle.Image
	Payloads []bundle.Payload
	// Blobs they are made of, as indexes into Metadata.Blobs, ascending.
	Blobs []int
	// Bytes of these blobs.
	Bytes int64
	// Missing says what the list wants and the bundle does not have.
	Missing []model.Blocker
}

// SelectNeeded picks what a hold list wants of a bundle, for a platform such as
// linux/amd64. Entries of other bundles are passed over.
//
// Of an image for several platforms only this one's share is wanted; which
// blobs that is, its index and manifest say. read returns a blob that is here,
// nil otherwise (then more is wanted once it is here); read itself may be nil.
func SelectNeeded(h *bundle.Header, hold model.PinSet, platform string, read ReadBlob) Needed {
	var w Needed
	blobs := map[int]bool{}
	for _, img := range hold.Images {
		if img.Bundle != h.Digest {
			continue
		}
		have := h.ImageForPin(img)
		if have == nil {
			w.Missing = append(w.Missing, missingImage(h, img))
			continue
		}
		mine := *have
		mine.Blobs = PlatformBlobs(h, have, platform, read)
		w.Images = append(w.Images, mine)
		for _, b := range mine.Blobs {
			blobs[b] = true
		}
	}
	for _, p := range hold.Payloads {
		if p.Bundle != h.Digest {
			continue
		}
		have := h.PayloadByName(p.Name, platform)
		if have == nil || have.Digest != p.Digest {
			w.Missing = append(w.Missing, model.Blocker{
				Reason:  reasonPayloadMissing,
				Message: fmt.Sprintf("the hold list wants payload %s with digest %s of bundle %s, which does not have it for %s", p.Name, p.Digest, h.Digest, platform),
				Fix:     "bring a bundle with the payload for this platform",
			})
			continue
		}
		w.Payloads = append(w.Payloads, *have)
		blobs[have.Blob] = true
	}
	for b := range blobs {
		w.Blobs = append(w.Blobs, b)
		w.Bytes += h.Metadata.Blobs[b].Size
	}
	sort.Ints(w.Blobs)
	return w
}

func missingImage(h *bundle.Header, img model.PinSetImage) model.Blocker {
	v := model.Blocker{Reason: reasonImagesMissing, Fix: "correct the PinnedImageSet, or bring a bundle that has the image"}
	if v.Message = fmt.Sprintf("the hold list wants image %s with digest %s of bundle %s, which does not have it", img.Name, img.Digest, h.Digest); img.Base != "" {
		v.Message = fmt.Sprintf("image %s with digest %s was made of an image with digest %s of bundle %s, which does not have it", img.Name, img.Digest, img.Base, h.Digest)
	}
	return v
}

// Chunks are the chunks of these blobs, in the order of the file.
func (w Needed) Chunks(t *bundle.ChunkTable) []int {
	var out []int
	for _, b := range w.Blobs {
		first, n := t.OfBlob(b)
		for c := first; c < first+n; c++ {
			out = append(out, c)
		}
	}
	return out
}
