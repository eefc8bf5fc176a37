package bundledelta

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

// maxManifest bounds a manifest that is read to find the blobs below it, in bytes.
const maxManifest = 8 << 20

// Saving is what one bundle of an inventory has of a target.
type Saving struct {
	Bundle *InventoryBundle
	// Has tells for each blob of the target whether the bundle has it.
	Has []bool
	// Blobs and Bytes are their number and size.
	Blobs int
	Bytes int64
}

// Savings tells what each bundle has of a target, the one with the most bytes first. An error is
// that of a target which cannot be read, or of an inventory that contradicts it.
func (v *Inventory) Savings(target *bundlereader.File) ([]Saving, error) {
	m := target.Header().Metadata
	var out []Saving
	for i := range v.Bundles {
		b := &v.Bundles[i]
		has, err := b.blobsOf(target)
		if err != nil {
			return nil, err
		}
		s := Saving{Bundle: b, Has: has}
		for j, is := range has {
			if is {
				s.Blobs, s.Bytes = s.Blobs+1, s.Bytes+m.Blobs[j].Size
			}
		}
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(a, b Saving) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Blobs, a.Blobs))
	})
	return out, nil
}

// blobsOf tells for each blob of a target whether the bundle has it.
func (b *InventoryBundle) blobsOf(target *bundlereader.File) ([]bool, error) {
	m := target.Header().Metadata
	w := &known{b: b, target: target, place: make(map[string]int, len(m.Blobs)), has: make([]bool, len(m.Blobs))}
	for i, blob := range m.Blobs {
		w.place[blob.Digest] = i
	}
	for _, blob := range b.Blobs {
		i, ok := w.place[blob.Digest]
		if !ok {
			continue
		}
		if blob.Size != m.Blobs[i].Size {
			return nil, fmt.Errorf("the inventory is wrong: blob %s of bundle %s has %d bytes in it, and %d in the new bundle", blob.Digest, b.Digest, blob.Size, m.Blobs[i].Size)
		}
		w.has[i] = true
	}
	for _, p := range b.Payloads {
		if i, ok := w.place[string(p)]; ok {
			w.has[i] = true
		}
	}
	for _, d := range b.Images {
		if err := w.image(string(d)); err != nil {
			return nil, err
		}
	}
	return w.has, nil
}

// known collects the blobs that a bundle has for sure, if it has an image.
type known struct {
	b      *InventoryBundle
	target *bundlereader.File
	place  map[string]int
	has    []bool
	seen   map[string]bool
}

// node is what an index and a manifest have in common.
type node struct {
	Manifests []struct {
		Digest   string `json:"digest"`
		Platform *struct {
			OS           string `json:"os"`
			Architecture string `json:"architecture"`
			Variant      string `json:"variant"`
		} `json:"platform"`
	} `json:"manifests"`
	Config *struct {
		Digest string `json:"digest"`
	} `json:"config"`
	Layers []struct {
		Digest string `json:"digest"`
	} `json:"layers"`
}

// image marks the blobs of an image or of one platform of it. Of an index a bundle has the platforms
// that it was made for; others, and attestations, may be in the target only.
func (w *known) image(digest string) error {
	i, ok := w.place[digest]
	if !ok || w.seen[digest] {
		return nil
	}
	if w.seen == nil {
		w.seen = map[string]bool{}
	}
	w.seen[digest], w.has[i] = true, true
	n, err := w.read(i)
	if err != nil {
		return err
	}
	for _, m := range n.Manifests {
		p := m.Platform
		if p == nil || !slices.Contains(w.b.Platforms, strings.TrimSuffix(p.OS+"/"+p.Architecture+"/"+p.Variant, "/")) {
			continue
		}
		if err := w.image(m.Digest); err != nil {
			return err
		}
	}
	if n.Config == nil {
		return nil
	}
	w.mark(n.Config.Digest)
	for _, l := range n.Layers {
		w.mark(l.Digest)
	}
	return nil
}

func (w *known) mark(digest string) {
	if i, ok := w.place[digest]; ok {
		w.has[i] = true
	}
}

// read reads a manifest of the target. An inventory may name any blob as an image: one that is no
// manifest has nothing below it.
func (w *known) read(i int) (node, error) {
	var n node
	if w.target.Header().Metadata.Blobs[i].Size > maxManifest {
		return n, nil
	}
	b, err := io.ReadAll(w.target.Blob(i))
	if err == nil && json.Unmarshal(b, &n) != nil {
		n = node{}
	}
	return n, err
}

// Parts names the images and payloads of the target that the bundle has whole, and those of which it
// has a part.
func (s *Saving) Parts(h *bundle.Header) (whole, partly []string) {
	add := func(name string, blobs ...int) {
		n := 0
		for _, b := range blobs {
			if s.Has[b] {
				n++
			}
		}
		switch {
		case n == len(blobs) && n > 0:
			whole = append(whole, name)
		case n > 0:
			partly = append(partly, name)
		}
	}
	for _, i := range h.Metadata.Images {
		add(i.Name, i.Blobs...)
	}
	for _, p := range h.Metadata.Payloads {
		add(strings.TrimSpace(p.Name+" "+p.Platform), p.Blob)
	}
	return whole, partly
}
