package bundlecmd

import (
	"io"
	"strings"

	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/pin"
	"github.com/refit-dev/refit/internal/text"
)

// Roles of nodes.
const (
	roleControlPlane = "control-plane"
	roleWorker       = "worker"
)

// roleView is what a node of a role and platform stores of a bundle. Sizes are bytes.
type roleView struct {
	Role     string `json:"role"`
	Platform string `json:"platform,omitempty"`
	Images   int    `json:"images"`
	Payloads int    `json:"payloads"`
	// Size reaches the node; UnpackedSize are the files of the image layers.
	Size         int64       `json:"size"`
	UnpackedSize int64       `json:"unpackedSize"`
	Groups       []groupView `json:"groups"`
	// AtMost: the indexes of the images could not be read, so the sizes have all platforms.
	AtMost bool `json:"atMost,omitempty"`
}

type groupView struct {
	Name         string `json:"name"`
	Images       int    `json:"images"`
	Size         int64  `json:"size"`
	UnpackedSize int64  `json:"unpackedSize"`
}

// viewRoles is the view of the shares. Without read, those of a bundle for several platforms
// are upper bounds.
func viewRoles(h *bundle.Header, read pin.ReadBlob) []roleView {
	out := []roleView{}
	for _, s := range pin.RoleShares(h, read) {
		v := roleView{Role: roleWorker, Platform: s.Platform, Images: s.Images, Payloads: s.Payloads, Size: s.Size, UnpackedSize: s.UnpackedSize,
			Groups: []groupView{}, AtMost: read == nil && len(h.Metadata.Platforms) > 1}
		if s.ControlPlane {
			v.Role = roleControlPlane
		}
		for _, g := range s.Groups {
			v.Groups = append(v.Groups, groupView(g))
		}
		out = append(out, v)
	}
	return out
}

// rolesAt reads which blobs belong to which platform from the bundle itself. If that cannot be
// read, because the medium is damaged or has the header only, sizes are upper bounds.
func rolesAt(path string, h *bundle.Header) []roleView {
	if len(h.Metadata.Platforms) < 2 {
		return viewRoles(h, nil)
	}
	f, err := openBundle(path)
	if err != nil {
		return viewRoles(h, nil)
	}
	defer f.Close()
	b := smallBlobs{f: f, index: map[string]int{}}
	for _, img := range h.Metadata.Images {
		for _, i := range img.Blobs {
			b.index[h.Metadata.Blobs[i].Digest] = i
		}
	}
	out := viewRoles(h, b.read)
	if b.failed {
		return viewRoles(h, nil)
	}
	return out
}

// smallBlobs reads indexes and manifests.
type smallBlobs struct {
	f      *bundlereader.File
	index  map[string]int
	failed bool
}

func (b *smallBlobs) read(digest string) []byte {
	i, ok := b.index[digest]
	if !ok || b.f.Header().Metadata.Blobs[i].Size > maxManifest || b.f.Header().Metadata.Blobs[i].UnpackedSize > 0 {
		return nil // a layer
	}
	raw, err := io.ReadAll(b.f.Blob(i))
	b.failed = b.failed || err != nil
	return raw
}

// roleRows prints the shares for people.
func roleRows(row func(cells ...string), roles []roleView) {
	row("")
	row("STORED ON", "PLATFORM", "IMAGES", "SIZE", "UNPACKED", "OF GROUPS")
	for _, r := range roles {
		var groups []string
		for _, g := range r.Groups {
			groups = append(groups, g.Name+" "+explain.Bytes(g.Size))
		}
		atMost := ""
		if r.AtMost {
			atMost = "at most "
		}
		row(r.Role, orDash(r.Platform), text.Count(r.Images, "image"), atMost+explain.Bytes(r.Size), atMost+explain.Bytes(r.UnpackedSize), orDash(strings.Join(groups, ", ")))
	}
}

// largestOf is what the largest node of a role stores.
func largestOf(roles []roleView, role string) (size int64) {
	for _, r := range roles {
		if r.Role == role {
			size = max(size, r.Size)
		}
	}
	return size
}
