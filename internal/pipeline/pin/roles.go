package pin

import (
	"cmp"
	"maps"
	"slices"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// RoleShare is what a node of a role and platform stores of a bundle.
type RoleShare struct {
	Needs
	// Groups of images, sorted by name. Layers that groups share count in each of them.
	Groups []GroupShare
	// Images and Payloads are counts.
	Images, Payloads int
	// Size is what reaches the node, UnpackedSize the files of its layers, both in bytes and
	// without duplicates. A runtime stores its images packed and unpacked.
	Size, UnpackedSize int64
}

// GroupShare is the part of one group of images.
type GroupShare struct {
	Name               string
	Images             int
	Size, UnpackedSize int64
}

// RoleShares are the shares of control-plane nodes and workers, for each platform of a
// bundle, by the rule that nodes follow. read is that of SelectNeeded. A bundle without
// platforms has shares for nodes of any platform.
func RoleShares(h *bundle.Header, read ReadBlob) []RoleShare {
	platforms := h.Metadata.Platforms
	if len(platforms) == 0 {
		platforms = []string{""}
	}
	var out []RoleShare
	for _, p := range platforms {
		for _, controlPlane := range []bool{true, false} {
			out = append(out, roleShare(h, Needs{Platform: p, ControlPlane: controlPlane}, read))
		}
	}
	return out
}

func roleShare(h *bundle.Header, n Needs, read ReadBlob) RoleShare {
	w := SelectNeeded(h, FromBundle(h, n), n.Platform, read)
	s := RoleShare{Needs: n, Images: len(w.Images), Payloads: len(w.Payloads), Size: w.Bytes, UnpackedSize: unpackedSize(h, w.Blobs)}
	groups, blobs := map[string]*GroupShare{}, map[string][]int{}
	for _, img := range w.Images {
		if groups[img.Group] == nil {
			groups[img.Group] = &GroupShare{Name: img.Group}
		}
		groups[img.Group].Images++
		blobs[img.Group] = append(blobs[img.Group], img.Blobs...)
	}
	for name, g := range groups {
		own := blobs[name]
		slices.Sort(own)
		own = slices.Compact(own)
		for _, b := range own {
			g.Size += h.Metadata.Blobs[b].Size
		}
		g.UnpackedSize = unpackedSize(h, own)
	}
	for g := range maps.Values(groups) {
		s.Groups = append(s.Groups, *g)
	}
	slices.SortFunc(s.Groups, func(a, b GroupShare) int { return cmp.Compare(a.Name, b.Name) })
	return s
}

func unpackedSize(h *bundle.Header, blobs []int) (sum int64) {
	for _, b := range blobs {
		sum += h.Metadata.Blobs[b].UnpackedSize
	}
	return sum
}
