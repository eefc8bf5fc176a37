package desired

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/model"
)

// StoreOverlays writes the blobs that images assembled on the site add to their bases into the
// store. It rewrites corrupt blobs and skips whole ones. It returns the images that it cannot
// assemble, by name, with the reason.
func (w *State) StoreOverlays(lib *bundlestore.Library) map[string]error {
	failed := map[string]error{}
	for _, img := range w.Pins.Images {
		if img.Overlay == "" {
			continue
		}
		if err := w.storeOverlay(img, lib); err != nil {
			failed[img.Name] = err
		}
	}
	return failed
}

func (w *State) storeOverlay(img model.PinSetImage, lib *bundlestore.Library) error {
	if !strings.HasPrefix(img.Name, model.NoRegistry+"/") {
		// Only OS images are assembled on a node, never images of pods.
		return fmt.Errorf("assembled images must have a name below %s/", model.NoRegistry)
	}
	data := w.Overlays[img.Overlay]
	if data == "" {
		return fmt.Errorf("find Content %s with the overlay of an image: not found", img.Overlay)
	}
	m, err := model.ParseImageOverlay(data)
	if err != nil {
		return err
	}
	if m.Digest != img.Digest || m.Base != img.Base || !m.HasBlob(img.Digest) {
		return fmt.Errorf("overlay belongs to another image (%.19s on %.19s)", m.Digest, m.Base)
	}
	var errs []error
	for _, b := range m.Blobs {
		if b.Size > model.MaxOverlayBlob {
			return fmt.Errorf("blob %.19s has %d bytes, at most %d are allowed", b.Digest, b.Size, model.MaxOverlayBlob)
		}
		errs = append(errs, lib.StoreBlob(b.Digest, b.Size, b.Decompress))
	}
	return errors.Join(errs...)
}

// OwnBlobs returns the overlay blobs of images assembled on the site, which are in no bundle.
func (w *State) OwnBlobs() (out []string) {
	for _, img := range w.Pins.Images {
		if img.Overlay == "" {
			continue
		}
		m, err := model.ParseImageOverlay(w.Overlays[img.Overlay])
		if err != nil {
			continue // StoreOverlays reports it
		}
		for _, b := range m.Blobs {
			if !slices.Contains(out, b.Digest) {
				out = append(out, b.Digest)
			}
		}
	}
	return out
}
