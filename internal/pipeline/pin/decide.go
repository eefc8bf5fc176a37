package pin

import (
	"slices"
	"sort"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// Present is an image as the runtime reports it.
type Present struct {
	// ID is the runtime's own name of it.
	ID string
	// Tags are names with tag, Digests names with digest.
	Tags, Digests []string
	Pinned        bool
}

// Own is the record of the pins that refit made: for every held image (see Key)
// the names in the runtime that carry its pin.
type Own map[string][]string

// Key of an image in Own.
func Key(img model.HeldImage) string { return img.Name + "@" + img.Digest }

// Decision is what must be done.
type Decision struct {
	// Load: not there under tag and digest.
	Load []model.HeldImage
	// Pin: there and not pinned, or pinned by somebody else only, so that the pin
	// could go with them.
	Pin []model.HeldImage
	// Release: keys of Own that are wanted no more.
	Release []string
	// Unpin: names in the runtime whose pin refit made and nobody needs now.
	Unpin []string
	// Held and Pinned count the wanted images of bundles, Fetched those of
	// registries that are held and pinned.
	Held, Pinned, Fetched int
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
func Decide(want []model.HeldImage, have []Present, own Own) Decision {
	var d Decision
	byTag := index(have)
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
		d.count(img, p)
		if !p.Pinned || len(own[Key(img)]) == 0 {
			d.Pin = append(d.Pin, img)
		}
	}
	d.release(own, wanted, needed)
	return d
}

func (d *Decision) count(img model.HeldImage, p Present) {
	switch {
	case img.Registry && p.Pinned:
		d.Fetched++
	case img.Registry:
	default:
		d.Held++
		if p.Pinned {
			d.Pinned++
		}
	}
}

func index(have []Present) map[string]Present {
	byTag := map[string]Present{}
	for _, p := range have {
		for _, t := range p.Tags {
			byTag[t] = p
		}
	}
	return byTag
}

// release lets go of own pins that are not wanted, except of names that a
// wanted image needs too.
func (d *Decision) release(own Own, wanted, needed map[string]bool) {
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
