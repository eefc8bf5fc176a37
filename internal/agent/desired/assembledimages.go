package desired

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/model"
)

// Shelve puts what images that were made on the site have of their own into the store,
// beside the blobs of their bases. What is there and whole is not written again; what
// has rotted is. It says, by name, which image cannot be put together, and why.
func (w *State) Shelve(lib *bundlestore.Library) map[string]error {
	failed := map[string]error{}
	for _, img := range w.Hold.Images {
		if img.Made == "" {
			continue
		}
		if err := w.shelve(img, lib); err != nil {
			failed[img.Name] = err
		}
	}
	return failed
}

func (w *State) shelve(img model.HeldImage, lib *bundlestore.Library) error {
	if !strings.HasPrefix(img.Name, model.NoRegistry+"/") {
		// Only an OS image is put together on a node: no pod's image comes so.
		return fmt.Errorf("it is put together on this node, and its name does not begin with %s/", model.NoRegistry)
	}
	data := w.Made[img.Made]
	if data == "" {
		return fmt.Errorf("there is no Content %s with its parts", img.Made)
	}
	m, err := model.OpenMadeImage(data)
	if err != nil {
		return err
	}
	if m.Digest != img.Digest || m.Base != img.Base || !m.Has(img.Digest) {
		return fmt.Errorf("its parts are another image's (%.19s on %.19s)", m.Digest, m.Base)
	}
	var errs []error
	for _, b := range m.Blobs {
		if b.Size > model.MaxMadeBlob {
			return fmt.Errorf("blob %.19s is said to have %d bytes, at most %d are taken", b.Digest, b.Size, model.MaxMadeBlob)
		}
		errs = append(errs, lib.Shelve(b.Digest, b.Size, b.Open))
	}
	return errors.Join(errs...)
}

// OwnBlobs are the blobs of images that were made on the site, which no bundle brings.
func (w *State) OwnBlobs() (out []string) {
	for _, img := range w.Hold.Images {
		if img.Made == "" {
			continue
		}
		m, err := model.OpenMadeImage(w.Made[img.Made])
		if err != nil {
			continue // said when it is shelved
		}
		for _, b := range m.Blobs {
			if !slices.Contains(out, b.Digest) {
				out = append(out, b.Digest)
			}
		}
	}
	return out
}
