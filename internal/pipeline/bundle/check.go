package bundle

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// Bounds of a chunk's size in bytes.
const (
	MinChunkSize = 512
	MaxChunkSize = 64 << 20
)

// maxContentSize bounds the sum of all blobs in bytes, so that no sum of sizes
// overflows.
const maxContentSize = 1 << 50

var (
	nameForm     = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$`)
	platformForm = regexp.MustCompile(`^[a-z0-9]+/[a-z0-9_]+(/[a-z0-9.]+)?$`)
	imageForm    = regexp.MustCompile(`^[a-zA-Z0-9.:_\[\]-]+(/[a-z0-9._-]+)*(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(@sha256:[0-9a-f]{64})?$`)
	mediaForm    = regexp.MustCompile(`^[a-zA-Z0-9.+/_-]{1,127}$`)
)

// ValidName reports whether s may name a bundle, a group or a payload: lower
// case letters, digits, dot, dash and underscore, at most 63.
func ValidName(s string) bool { return nameForm.MatchString(s) }

func digestOfPath(name string) string { return digestPrefix + strings.TrimPrefix(name, blobPrefix) }

// Check says whether a bundle of this metadata may be written.
func (m *Metadata) Check() error {
	found := m.check()
	references := 0
	for _, img := range m.Images {
		references += len(img.Blobs)
	}
	for _, l := range []struct {
		n, most int
		what    string
	}{
		{len(m.Images), maxImages, "images"}, {len(m.Payloads), maxPayloads, "payloads"}, {len(m.Platforms), maxPlatforms, "platforms"}, {len(m.Constraints), maxConstraint, "constraints"},
		{len(m.Blobs), maxBlobs, "blobs"}, {references, maxReferences, "blobs of images"},
	} {
		if l.n > l.most {
			found = fmt.Sprintf("%d %s are more than the %d allowed: make two bundles", l.n, l.what, l.most)
		}
	}
	if found != "" {
		return errors.New(found)
	}
	return nil
}

// check says what is wrong with the metadata in itself, "" if nothing. It is
// written for hostile input: everything that is later used as an index, a
// size, a file name or printed is checked here.
func (m *Metadata) check() string {
	for _, f := range []func() string{m.checkScalars, m.checkBlobs, m.checkImages, m.checkPayloads} {
		if found := f(); found != "" {
			return found
		}
	}
	return ""
}

func (m *Metadata) checkScalars() string {
	switch {
	case m.FormatVersion != FormatVersion:
		return fmt.Sprintf("format version %d, this refit reads %d", m.FormatVersion, FormatVersion)
	case !ValidName(m.Name):
		return fmt.Sprintf("bad bundle name %.80q", m.Name)
	case !ValidVersion(m.Version):
		return fmt.Sprintf("bundle version %.80q is not a semantic version", m.Version)
	case !ValidVersion(m.MinRefit):
		return fmt.Sprintf("minRefit %.80q is not a semantic version", m.MinRefit)
	case !emptyOr(m.KubernetesVersion, ValidVersion):
		return fmt.Sprintf("Kubernetes version %.80q is not a semantic version", m.KubernetesVersion)
	case m.ChunkSize < MinChunkSize || m.ChunkSize > MaxChunkSize:
		return fmt.Sprintf("chunk size %d is not in %d..%d", m.ChunkSize, MinChunkSize, MaxChunkSize)
	}
	if found := m.checkConstraints(); found != "" {
		return found
	}
	return m.checkPlatforms()
}

func emptyOr(s string, valid func(string) bool) bool { return s == "" || valid(s) }

func (m *Metadata) checkPlatforms() string {
	if !sort.StringsAreSorted(m.Platforms) {
		return "platforms are not sorted"
	}
	for _, p := range m.Platforms {
		if !platformForm.MatchString(p) {
			return fmt.Sprintf("bad platform %.80q", p)
		}
	}
	return ""
}

// ValidVersion reports whether s is a semantic version, with or without a v.
func ValidVersion(s string) bool {
	if len(s) > 80 {
		return false
	}
	_, err := semver.StrictNewVersion(strings.TrimPrefix(s, "v"))
	return err == nil
}

// checkBlob checks blob i in itself.
func checkBlob(i int, b Blob) string {
	if !ValidDigest(b.Digest) {
		return fmt.Sprintf("blob %d: bad digest %.80q", i, b.Digest)
	}
	if !validSize(b.Size) || !validSize(b.UnpackedSize) {
		return fmt.Sprintf("blob %s: bad size %d or unpacked size %d", b.Digest, b.Size, b.UnpackedSize)
	}
	return ""
}

func validSize(n int64) bool { return n >= 0 && n <= maxContentSize }

func (m *Metadata) checkBlobs() string {
	seen := make(map[string]bool, len(m.Blobs))
	var total, unpacked int64
	for i, b := range m.Blobs {
		if found := checkBlob(i, b); found != "" {
			return found
		}
		if seen[b.Digest] {
			return fmt.Sprintf("blob %s twice", b.Digest)
		}
		seen[b.Digest] = true
		if total += b.Size + 2*BlockSize; total > maxContentSize {
			return "the blobs are larger than any bundle may be"
		}
		if unpacked += b.UnpackedSize; unpacked > maxContentSize {
			return "the blobs unpack to more than any bundle may have"
		}
	}
	if n := m.chunkCount(); n > MaxHeaderSize/HashSize {
		return fmt.Sprintf("the blobs have %d chunks, more than a header has room for", n)
	}
	return ""
}

// checkImage checks image i in itself, and its place after the one before.
func (m *Metadata) checkImage(i int, img Image) string {
	if len(img.Name) > 512 || !imageForm.MatchString(img.Name) {
		return fmt.Sprintf("bad image name %.80q", img.Name)
	}
	if i > 0 && m.Images[i-1].Name >= img.Name {
		return fmt.Sprintf("image %s is not in order", img.Name)
	}
	if !ValidName(img.Group) || !mediaForm.MatchString(img.MediaType) || !validSize(img.UnpackedSize) {
		return fmt.Sprintf("image %s: bad group, media type or unpacked size", img.Name)
	}
	return ""
}

func (m *Metadata) checkImages() string {
	for i, img := range m.Images {
		if found := m.checkImage(i, img); found != "" {
			return found
		}
		if found := m.checkImageBlobs(img); found != "" {
			return fmt.Sprintf("image %s: %s", img.Name, found)
		}
	}
	return ""
}

func (m *Metadata) checkImageBlobs(img Image) string {
	var size, unpacked int64
	for j, b := range img.Blobs {
		if b < 0 || b >= len(m.Blobs) {
			return fmt.Sprintf("there is no blob %d", b)
		}
		if j > 0 && img.Blobs[j-1] >= b {
			return "its blobs are not in order"
		}
		size, unpacked = size+m.Blobs[b].Size, unpacked+m.Blobs[b].UnpackedSize
	}
	if size != img.Size {
		return fmt.Sprintf("its size is declared as %d, its blobs have %d bytes", img.Size, size)
	}
	if unpacked != img.UnpackedSize {
		return fmt.Sprintf("its unpacked size is declared as %d, its blobs have %d bytes", img.UnpackedSize, unpacked)
	}
	if _, ok := m.sizeOf(img); !ok {
		return "its manifest is not among its blobs"
	}
	return ""
}

func (m *Metadata) checkPayloads() string {
	for i, p := range m.Payloads {
		if found := m.checkPayloadOrder(i, p); found != "" {
			return found
		}
		if found := m.checkPayload(p); found != "" {
			return fmt.Sprintf("payload %s: %s", p.Name, found)
		}
	}
	return ""
}

// checkPayloadOrder checks the name of payload i, and its place after the one before.
func (m *Metadata) checkPayloadOrder(i int, p Payload) string {
	if !ValidName(p.Name) {
		return fmt.Sprintf("bad payload name %.80q", p.Name)
	}
	if i > 0 && !payloadBefore(m.Payloads[i-1], p) {
		return fmt.Sprintf("payload %s is not in order", p.Name)
	}
	return ""
}

func (m *Metadata) checkPayload(p Payload) string {
	switch {
	case !emptyOr(p.Version, ValidVersion):
		return fmt.Sprintf("version %.80q is not a semantic version", p.Version)
	case !emptyOr(p.Platform, platformForm.MatchString):
		return fmt.Sprintf("bad platform %.80q", p.Platform)
	case p.Mode > 0o777:
		return fmt.Sprintf("mode %o", p.Mode)
	case p.Blob < 0 || p.Blob >= len(m.Blobs):
		return fmt.Sprintf("there is no blob %d", p.Blob)
	case m.Blobs[p.Blob].Digest != p.Digest || m.Blobs[p.Blob].Size != p.Size:
		return fmt.Sprintf("digest or size is not that of blob %d", p.Blob)
	}
	return ""
}

func payloadBefore(a, b Payload) bool {
	return a.Name < b.Name || a.Name == b.Name && a.Platform < b.Platform
}

// matchTop compares the top manifest with the metadata that hangs under it.
func matchTop(top *topManifest, m *Metadata) string {
	if top.title != m.Name || top.version != m.Version {
		return "names another bundle than its metadata"
	}
	if len(top.images) != len(m.Images) {
		return fmt.Sprintf("lists %d images, its metadata %d", len(top.images), len(m.Images))
	}
	for i, img := range m.Images {
		size, _ := m.sizeOf(img)
		d := top.images[i]
		if d.refName != img.Name || d.image != img.Name || d.Digest != img.Digest || d.MediaType != img.MediaType || d.Size != size {
			return fmt.Sprintf("image %d is not %s as its metadata says", i, img.Name)
		}
	}
	return ""
}

// matchLayers compares the metadata manifest's payload layers with the metadata.
func matchLayers(layers []descriptor, payloads []Payload) string {
	if len(layers) != len(payloads) {
		return fmt.Sprintf("lists %d payloads, its metadata %d", len(layers), len(payloads))
	}
	for i, p := range payloads {
		if layers[i].Digest != p.Digest || layers[i].Size != p.Size || layers[i].MediaType != MediaTypePayload {
			return fmt.Sprintf("payload %d is not %s as its metadata says", i, p.Name)
		}
	}
	return ""
}

// Sort puts a bundle's metadata into the order of the format: platforms, constraints,
// images and payloads. Blob indexes stay as they are.
func (m *Metadata) Sort() {
	sort.Strings(m.Platforms)
	sort.Slice(m.Constraints, func(i, j int) bool { return m.Constraints[i].Name < m.Constraints[j].Name })
	sort.Slice(m.Images, func(i, j int) bool { return m.Images[i].Name < m.Images[j].Name })
	sort.Slice(m.Payloads, func(i, j int) bool { return payloadBefore(m.Payloads[i], m.Payloads[j]) })
	for i := range m.Images {
		slices.Sort(m.Images[i].Blobs)
	}
}
