package agent

import (
	"context"
	"runtime"
	"slices"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/imageproof"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

func platform() string { return "linux/" + runtime.GOARCH }

// pinsToStore returns the part of the pin set whose blobs belong into this node's store: all but
// images that need no copy and that the runtime has. If the runtime does not answer, the agent
// fetches nothing for such images, and known is false so that it removes nothing either.
func (sh *shared) pinsToStore(ctx context.Context, w *desired.State) (list model.PinSet, known bool) {
	list = sh.proofsToStore(w, w.Pins)
	if !slices.ContainsFunc(list.Images, func(i model.PinSetImage) bool { return i.NoCopy }) {
		return list, true
	}
	have, err := sh.runtime.Present(ctx)
	missing := map[string]bool{}
	if err == nil {
		for _, i := range pin.Decide(list.Images, have, nil).Load {
			missing[pin.Key(i)] = true
		}
	}
	for _, s := range sh.needSignatures(w) {
		if !s.known { // its index is needed to verify it
			missing[pin.Key(s.pinned)] = true
		}
	}
	list.Images = slices.DeleteFunc(slices.Clone(list.Images), func(i model.PinSetImage) bool { return i.NoCopy && !missing[pin.Key(i)] })
	return list, err == nil
}

// missing returns how many of the bytes that this node needs of a bundle are not here.
func (sh *shared) missing(s *bundlestore.Shelf, hold model.PinSet) (missing, total int64) {
	x := s.Wanted(hold, platform())
	return x.Bytes - s.BytesHere(x.Blobs), x.Bytes
}

// missingChunks returns the chunks of needed content that are not here.
func missingChunks(s *bundlestore.Shelf, x pin.Needed) []int {
	var out []int
	for _, n := range x.Chunks(s.Bundle().Chunks) {
		if !s.Has(n) {
			out = append(out, n)
		}
	}
	return out
}

// full reports whether every byte of a bundle is here.
func full(s *bundlestore.Shelf) bool {
	var all []int
	var bytes int64
	for i, b := range s.Bundle().Metadata.Blobs {
		all, bytes = append(all, i), bytes+b.Size
	}
	return s.BytesHere(all) == bytes
}

// countStore counts how much of the pin set is in the store, and returns a function that
// stores the counts in a status.
func (sh *shared) countStore(ctx context.Context, w *desired.State) func(*v1alpha1.PinStatus) {
	var total, done int64
	payloads := 0
	hold, _ := sh.pinsToStore(ctx, w)
	for _, d := range w.Bundles() {
		s := sh.library.Shelf(d)
		if s == nil {
			continue
		}
		x := s.Wanted(hold, platform())
		total += x.Bytes
		done += s.BytesHere(x.Blobs)
		for _, p := range x.Payloads {
			if p.Name != imageproof.PayloadName && s.HasBlob(p.Blob) {
				payloads++
			}
		}
	}
	return func(h *v1alpha1.PinStatus) {
		h.BytesTotal, h.BytesDone = total, done
		h.PayloadsTotal, h.PayloadsReady = int32(len(w.Pins.Payloads)), int32(payloads)
	}
}

// blobsOf returns the digests of an image's blobs that this node needs.
func (sh *shared) blobsOf(img model.PinSetImage) (out []string) {
	shelf := sh.library.Shelf(img.Bundle)
	if shelf == nil {
		return nil
	}
	b := shelf.Bundle()
	have := b.ImageForPin(img)
	if have == nil {
		return nil
	}
	for _, n := range pin.PlatformBlobs(b, have, platform(), shelf.ReadSmall) {
		out = append(out, b.Metadata.Blobs[n].Digest)
	}
	return out
}

// baseOf returns the name of an assembled image's base in its bundle, empty if there is none.
func (sh *shared) baseOf(img model.PinSetImage) string {
	if img.Base == "" {
		return ""
	}
	shelf := sh.library.Shelf(img.Bundle)
	if shelf == nil {
		return ""
	}
	if base := shelf.Bundle().ImageByDigest(img.Base); base != nil {
		return base.Name
	}
	return ""
}
