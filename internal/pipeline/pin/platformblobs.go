package pin

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// ReadBlob returns the content of a small blob that is here, nil otherwise. What
// it returns was compared with its digest.
type ReadBlob func(digest string) []byte

// imageNode is what an index and a manifest have in common, as far as their children
// go.
type imageNode struct {
	Manifests []struct {
		Digest   string `json:"digest"`
		Platform *struct {
			OS           string `json:"os"`
			Architecture string `json:"architecture"`
		} `json:"platform"`
	} `json:"manifests"`
	Config *struct {
		Digest string `json:"digest"`
	} `json:"config"`
	Layers []struct {
		Digest string `json:"digest"`
	} `json:"layers"`
}

// PlatformBlobs is the blobs of an image that a platform needs, ascending: all of them
// in a bundle for one platform. What the bundle's metadata does not count among
// the image's blobs is never part of it.
func PlatformBlobs(h *bundle.Header, img *bundle.Image, platform string, read ReadBlob) []int {
	if len(h.Metadata.Platforms) < 2 || read == nil {
		return img.Blobs
	}
	byDigest := map[string]int{}
	for _, b := range img.Blobs {
		byDigest[h.Metadata.Blobs[b].Digest] = b
	}
	var out []int
	walkImage(img.Digest, platform, read, func(digest string) bool {
		b, ok := byDigest[digest]
		if ok {
			out = append(out, b)
		}
		return ok
	})
	slices.Sort(out)
	return out
}

// ImageDigests are the digests of an image for a platform, itself first, as far as its
// indexes and manifests can be read.
func ImageDigests(digest, platform string, read ReadBlob) (out []string) {
	walkImage(digest, platform, read, func(d string) bool {
		if d != "" { // a configuration has a "config" too
			out = append(out, d)
		}
		return d != ""
	})
	return out
}

// walkImage goes down an image, each digest once, and no further where enter says no.
func walkImage(digest, platform string, read ReadBlob, enter func(digest string) bool) {
	seen := map[string]bool{}
	for ahead := []string{digest}; len(ahead) > 0; {
		d := ahead[0]
		if ahead = ahead[1:]; seen[d] {
			continue
		}
		seen[d] = true
		if !enter(d) {
			continue
		}
		if raw := read(d); raw != nil {
			ahead = append(ahead, children(raw, platform)...)
		}
	}
}

// children of an index or a manifest, for a platform. A layer or a
// configuration has none: only JSON with the right fields counts.
func children(raw []byte, platform string) (out []string) {
	var n imageNode
	if json.Unmarshal(raw, &n) != nil {
		return nil
	}
	os, rest, _ := strings.Cut(platform, "/")
	arch, _, _ := strings.Cut(rest, "/")
	for _, m := range n.Manifests {
		if m.Platform == nil || m.Platform.OS == os && m.Platform.Architecture == arch {
			out = append(out, m.Digest)
		}
	}
	if n.Config == nil {
		return out
	}
	out = append(out, n.Config.Digest)
	for _, l := range n.Layers {
		out = append(out, l.Digest)
	}
	return out
}
