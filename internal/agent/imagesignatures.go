package agent

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/imageproof"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/pin"
	"github.com/refit-dev/refit/internal/text"
)

// signatureCheck verifies signatures of images by the rules of TrustPolicies, from the archive
// that their bundle carries. An image that this node pinned before needs no signature any more: a
// later rule does not take away what runs.
type signatureCheck struct {
	mu sync.Mutex
	// rules is the text of the rules that demands were made of.
	rules   string
	demands imageproof.Demands
	// verdicts of bundles under these rules.
	verdicts map[string]signatureVerdict
}

// signatureVerdict is the result for the images of one bundle.
type signatureVerdict struct {
	// asked are the images that were verified, refused those without a valid signature.
	asked   string
	refused map[string]imageproof.Refusal
}

// update takes new rules.
func (c *signatureCheck) update(rules []imageproof.NamedRules) imageproof.Demands {
	c.mu.Lock()
	defer c.mu.Unlock()
	raw, err := json.Marshal(rules)
	if err != nil || string(raw) != c.rules || c.verdicts == nil {
		c.rules, c.demands, c.verdicts = string(raw), imageproof.NewDemands(rules), map[string]signatureVerdict{}
	}
	return c.demands
}

// signedImage is an image of the pin set that needs a signature.
type signedImage struct {
	pinned model.PinSetImage
	// image is nil while the header of its bundle is missing.
	image *imageproof.Image
	// known: this node pinned it before.
	known bool
}

// needSignatures are the images of the pin set that a rule is for, with those that were pinned
// before.
func (sh *shared) needSignatures(w *desired.State) (out []signedImage) {
	d := sh.signatures.update(sh.authority.ImageRules())
	known := sh.keeper.Known()
	for _, img := range w.Pins.Images {
		if img.Bundle == "" {
			continue // a registry has it, and its kubelet could pull it too
		}
		_, was := known[pin.Key(img)]
		s := signedImage{pinned: img, known: was}
		name := img.Name
		shelf := sh.library.Shelf(img.Bundle)
		if shelf != nil {
			have := shelf.Bundle().ImageForPin(img)
			if have == nil {
				continue // the bundle loop reports it
			}
			name = have.Name
			s.image = &imageproof.Image{Name: name, Repository: pin.Repository(name), Digest: have.Digest}
		}
		// Before the first read of TrustPolicies any image may have a rule. The last read may be older
		// than the approval of a bundle that is not here yet, and so without a rule made before it.
		if !sh.authority.Known() || shelf == nil || d.For(pin.Repository(name)) {
			out = append(out, s)
		}
	}
	return out
}

// proofsToStore adds the signatures of images to what the store keeps, for bundles with images
// that a rule is for.
func (sh *shared) proofsToStore(w *desired.State, list model.PinSet) model.PinSet {
	done := map[string]bool{}
	for _, s := range sh.needSignatures(w) {
		digest := s.pinned.Bundle
		shelf := sh.library.Shelf(digest)
		if done[digest] || shelf == nil {
			continue
		}
		p := shelf.Bundle().PayloadByName(imageproof.PayloadName, platform())
		// Without the archive here, what was pinned before needs none.
		if p == nil || s.known && !shelf.HasBlob(p.Blob) {
			continue
		}
		done[digest] = true
		list.Payloads = append(slices.Clip(list.Payloads), model.PinSetPayload{Name: p.Name, Digest: p.Digest, Bundle: digest})
	}
	return list
}

// refusedImages are the images of the pin set, by key, that must not be loaded or pinned: those
// without a valid signature, with a verdict, and those that cannot be verified yet.
func (l *imageLoop) refusedImages(w *desired.State, now time.Time) (keys map[string]bool, verdicts []model.Blocker) {
	keys = map[string]bool{}
	byBundle := map[string][]signedImage{}
	for _, s := range l.needSignatures(w) {
		if !s.known {
			keys[pin.Key(s.pinned)] = true // until it is verified
			byBundle[s.pinned.Bundle] = append(byBundle[s.pinned.Bundle], s)
		}
	}
	if !l.authority.Known() {
		return keys, nil
	}
	var refused []imageproof.Refusal
	for _, digest := range w.Bundles() {
		shelf, images := l.library.Shelf(digest), byBundle[digest]
		if shelf == nil || len(images) == 0 || !l.completeImages(shelf, images) {
			continue
		}
		found, ok := l.verify(shelf, images, now)
		if !ok {
			continue
		}
		for _, s := range images {
			r, bad := found[s.image.Name]
			if !bad {
				delete(keys, pin.Key(s.pinned))
				continue
			}
			refused = append(refused, r)
		}
	}
	return keys, refusedVerdicts(l.conf.Node, refused)
}

// completeImages fills the platforms of images. It is false while an index is missing here.
func (l *imageLoop) completeImages(shelf *bundlestore.Shelf, images []signedImage) bool {
	m := shelf.Bundle().Metadata
	for _, s := range images {
		if s.image == nil {
			return false // the header came after the list of images was made
		}
		raw := shelf.ReadSmall(s.image.Digest)
		if raw == nil {
			return false
		}
		s.image.Platforms = imageproof.PlatformManifests(raw)
		have := shelf.Bundle().ImageForPin(s.pinned)
		s.image.Platforms = slices.DeleteFunc(s.image.Platforms, func(d string) bool {
			return !slices.ContainsFunc(have.Blobs, func(b int) bool { return m.Blobs[b].Digest == d })
		})
	}
	return true
}

// verify returns which of the images of a bundle are refused; ok is false while the archive of
// signatures is on its way.
func (l *imageLoop) verify(shelf *bundlestore.Shelf, images []signedImage, now time.Time) (refused map[string]imageproof.Refusal, ok bool) {
	var all []imageproof.Image
	var names []string
	for _, s := range images {
		all, names = append(all, *s.image), append(names, s.image.Name)
	}
	asked := strings.Join(names, " ")
	c := &l.signatures
	c.mu.Lock()
	rules := c.rules
	v, have := c.verdicts[shelf.Digest()]
	c.mu.Unlock()
	if have && v.asked == asked {
		return v.refused, true
	}
	found, lasting, ok := l.verifyArchive(shelf, all, now)
	if !ok {
		return nil, false
	}
	v = signatureVerdict{asked: asked, refused: map[string]imageproof.Refusal{}}
	for _, r := range found {
		v.refused[r.Image] = r
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rules != rules {
		return nil, false // the rules changed meanwhile: the next round verifies by the new ones
	}
	if lasting {
		c.verdicts[shelf.Digest()] = v
	}
	return v.refused, true
}

// verifyArchive reads the archive. lasting is false for a verdict that depends on the clock, or on
// a disk.
func (l *imageLoop) verifyArchive(shelf *bundlestore.Shelf, images []imageproof.Image, now time.Time) (refused []imageproof.Refusal, lasting, ok bool) {
	p := shelf.Bundle().PayloadByName(imageproof.PayloadName, platform())
	if p == nil {
		return imageproof.RefuseAll(images, imageproof.Missing, "the bundle carries no signatures of images"), true, true
	}
	if !shelf.HasBlob(p.Blob) {
		return nil, false, false
	}
	names := map[string]bool{}
	for _, img := range images {
		names[img.Name] = true
	}
	entries, err := l.readSignatures(p.Digest, names)
	if err != nil {
		return imageproof.RefuseAll(images, imageproof.Damaged, "the signatures in the bundle cannot be read: "+err.Error()), false, true
	}
	refused = l.signatures.update(l.authority.ImageRules()).Check(images, entries, now)
	return refused, !slices.ContainsFunc(refused, func(r imageproof.Refusal) bool { return r.Reason == imageproof.Expired }), true
}

func (l *imageLoop) readSignatures(digest string, images map[string]bool) ([]imageproof.Entry, error) {
	f, err := l.library.Open(digest)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return imageproof.ReadSignatures(io.Reader(f), images)
}

// maxRefused is how many refused images the status names.
const maxRefused = 5

func refusedVerdicts(node string, all []imageproof.Refusal) (out []model.Blocker) {
	sorted := make([]*imageproof.Refusal, 0, len(all)) // pointers: see bundlestore.ranked
	for i := range all {
		sorted = append(sorted, &all[i])
	}
	slices.SortFunc(sorted, func(a, b *imageproof.Refusal) int { return strings.Compare(a.Image, b.Image) })
	for i, r := range sorted {
		// The word comes first: conditions leave out the middle of a long message.
		v := model.Blocker{Reason: v1alpha1.ReasonImageRefused, Object: "Node/" + node, Fix: r.Fix,
			Message: fmt.Sprintf("%s: node %s refuses image %s (%s): %s", r.Reason, node, r.Image, text.ShortDigest(r.Digest), r.Message)}
		if i == maxRefused-1 && len(all) > maxRefused {
			v.Message += fmt.Sprintf("; and %d more images", len(all)-maxRefused)
			return append(out, v)
		}
		out = append(out, v)
	}
	return out
}
