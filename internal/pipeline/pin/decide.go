package pin

import (
	"slices"
	"sort"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// RuntimeImage is an image as the runtime reports it.
type RuntimeImage struct {
	// ID is the runtime's own name of it.
	ID string
	// Tags are names with tag, Digests names with digest.
	Tags, Digests []string
	Pinned        bool
}

// OwnPins is the record of the pins that refit made: for every held image (see Key)
// the names in the runtime that carry its pin.
type OwnPins map[string][]string

// Key of an image in Own.
func Key(img model.PinSetImage) string { return img.Name + "@" + img.Digest }

// Decision is what must be done.
type Decision struct {
	// Load: not there under tag and digest.
	Load []model.PinSetImage
	// Pin: there and not pinned, or pinned only by another component, which may remove
	// that pin.
	Pin []model.PinSetImage
	// Release: keys of Own that are wanted no more.
	Release []string
	// Unpin: names in the runtime whose pin refit made and no image needs now.
	Unpin []string
	// Loaded and Pinned count the wanted images of bundles, Fetched those of
	// registries that are held and pinned.
	Loaded, Pinned, Fetched int
}

// Done reports that nothing is left to do.
func (d Decision) Done() bool { return len(d.Load)+len(d.Pin)+len(d.Release) == 0 }

// Repository is a name without tag or digest.
func Repository(name string) string {
	if i := strings.IndexByte(name, '@'); i >= 0 {
		return name[:i]
	}
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		return name[:i]
	}
	return name
}

// Decide compares what is wanted with what is there.
func Decide(want []model.PinSetImage, have []RuntimeImage, own OwnPins) Decision {
	var d Decision
	byTag := indexByTag(have)
	needed := map[string]bool{}
	wanted := map[string]bool{}
	for _, img := range want {
		wanted[Key(img)] = true
		for _, n := range own[Key(img)] {
			needed[n] = true
		}
		p, ok := byTag[img.Name]
		if !ok || !slices.Contains(p.Digests, Repository(img.Name)+"@"+img.Digest) {
			d.Load = append(d.Load, img)
			continue
		}
		d.countImage(img, p)
		if !p.Pinned || len(own[Key(img)]) == 0 {
			d.Pin = append(d.Pin, img)
		}
	}
	d.releasePins(own, wanted, needed)
	return d
}

func (d *Decision) countImage(img model.PinSetImage, p RuntimeImage) {
	switch {
	case img.Registry && p.Pinned:
		d.Fetched++
	case img.Registry:
	default:
		d.Loaded++
		if p.Pinned {
			d.Pinned++
		}
	}
}

func indexByTag(have []RuntimeImage) map[string]RuntimeImage {
	byTag := map[string]RuntimeImage{}
	for _, p := range have {
		for _, t := range p.Tags {
			byTag[t] = p
		}
	}
	return byTag
}

// releasePins lets go of own pins that are not wanted, except of names that a
// wanted image needs too.
func (d *Decision) releasePins(own OwnPins, wanted, needed map[string]bool) {
	for key, names := range own {
		if wanted[key] {
			continue
		}
		d.Release = append(d.Release, key)
		for _, n := range names {
			if !needed[n] {
				d.Unpin = append(d.Unpin, n)
			}
		}
	}
	sort.Strings(d.Release)
	sort.Strings(d.Unpin)
	d.Unpin = slices.Compact(d.Unpin)
}
