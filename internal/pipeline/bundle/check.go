package bundle

import (
	"bytes"
	"encoding/json"
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

// parse fills h from the entries and checks each against what implies it.
func (h *Header) parse(e []entry) error {
	top, err := h.parseTop(e)
	if err != nil {
		return err
	}
	mm, err := parseMetaManifest(e[entryMetaManifest], top)
	if err != nil {
		return err
	}
	if err := checkBlob(e[entryMetadata], "metadata", mm.Config); err != nil {
		return err
	}
	if err := checkBlob(e[entryChunks], "chunk table", mm.Layers[0]); err != nil {
		return err
	}
	h.MetadataDigest = mm.Config.Digest
	if err := h.parseMetadata(e[entryMetadata]); err != nil {
		return err
	}
	return h.match(e, top, mm)
}

// match compares the parts, each sound in itself, with each other.
func (h *Header) match(e []entry, top *topManifest, mm *metaManifest) (err error) {
	bad := func(kind int, found string) error {
		return &CorruptError{Part: entryRules[kind].part, Offset: e[kind].at + BlockSize, Found: found}
	}
	if found := h.Metadata.check(); found != "" {
		return bad(entryMetadata, found)
	}
	if found := matchTop(top, h.Metadata); found != "" {
		return bad(entryTop, found)
	}
	if found := matchLayers(mm.Layers[1:], h.Metadata.Payloads); found != "" {
		return bad(entryMetaManifest, found)
	}
	if h.Chunks, err = newChunkTable(h.Metadata, e[entryChunks].content); err != nil {
		return bad(entryChunks, err.Error())
	}
	if found := h.checkSingleChunks(); found != "" {
		return bad(entryChunks, found)
	}
	sigs, found := decodeSlot(e[entrySignatures].content, h.statement())
	if found != "" {
		return bad(entrySignatures, found)
	}
	h.Signatures = sigs
	return nil
}

func (h *Header) parseTop(e []entry) (*topManifest, error) {
	if string(e[entryLayout].content) != layoutContent {
		return nil, &CorruptError{Part: "oci-layout", Offset: e[entryLayout].at + BlockSize, Found: "differs from its only content"}
	}
	h.Digest = digestOfPath(e[entryTop].name)
	if err := checkBlob(e[entryTop], "top manifest", descriptor{Digest: h.Digest, Size: int64(len(h.Top))}); err != nil {
		return nil, err
	}
	bad := func(found string) error {
		return &CorruptError{Part: "top manifest", Digest: h.Digest, Offset: e[entryTop].at + BlockSize, Found: found}
	}
	var top topManifest
	if err := json.Unmarshal(h.Top, &top); err != nil {
		return nil, bad("is not JSON: " + err.Error())
	}
	if top.SchemaVersion != 2 || top.MediaType != MediaTypeIndex || top.ArtifactType != ArtifactType {
		return nil, bad("is not the OCI index of a bundle")
	}
	if len(top.Manifests) == 0 || top.Manifests[0].ArtifactType != ArtifactType || top.Manifests[0].MediaType != MediaTypeManifest {
		return nil, bad("does not begin with the metadata manifest")
	}
	want := indexJSON(h.Digest, int64(len(h.Top)), &top)
	if i := firstDifference(e[entryIndex].content, want); i >= 0 {
		return nil, &CorruptError{Part: "index.json", Offset: e[entryIndex].at + BlockSize + int64(i), Found: "differs from what the top manifest implies"}
	}
	return &top, nil
}

func parseMetaManifest(e entry, top *topManifest) (*metaManifest, error) {
	if err := checkBlob(e, "metadata manifest", top.Manifests[0]); err != nil {
		return nil, err
	}
	bad := func(found string) error {
		return &CorruptError{Part: "metadata manifest", Digest: top.Manifests[0].Digest, Offset: e.at + BlockSize, Found: found}
	}
	var mm metaManifest
	if err := json.Unmarshal(e.content, &mm); err != nil {
		return nil, bad("is not JSON: " + err.Error())
	}
	if mm.Config.MediaType != MediaTypeMetadata || len(mm.Layers) == 0 || mm.Layers[0].MediaType != MediaTypeChunks {
		return nil, bad("has no metadata or no chunk table")
	}
	return &mm, nil
}

// checkBlob compares an entry with the descriptor that promised it.
func checkBlob(e entry, part string, want descriptor) error {
	if !ValidDigest(want.Digest) || e.name != BlobPath(want.Digest) {
		return &CorruptError{Part: "tar header of the " + part, Offset: e.at, Found: fmt.Sprintf("names %q, %q is implied", e.name, want.Digest)}
	}
	if int64(len(e.content)) != want.Size {
		return &CorruptError{Part: "tar header of the " + part, Offset: e.at + 124, Found: fmt.Sprintf("says %d bytes, %d are implied", len(e.content), want.Size)}
	}
	if got := DigestOf(e.content); got != want.Digest {
		return &CorruptError{Part: part, Digest: want.Digest, Offset: e.at + BlockSize, Length: want.Size, Found: "the bytes have digest " + got}
	}
	return nil
}

func digestOfPath(name string) string { return digestPrefix + strings.TrimPrefix(name, blobPrefix) }

func (h *Header) parseMetadata(e entry) error {
	bad := func(err error) error {
		return &CorruptError{Part: "metadata", Digest: h.MetadataDigest, Offset: e.at + BlockSize, Found: "is not the JSON of a bundle's metadata", Err: err}
	}
	var version struct {
		FormatVersion int    `json:"formatVersion"`
		MinRefit      string `json:"minRefit"`
	}
	if err := json.Unmarshal(e.content, &version); err != nil {
		return bad(err)
	}
	if version.FormatVersion > FormatVersion {
		return &TooNewError{Digest: h.Digest, FormatVersion: version.FormatVersion, MinRefit: fmt.Sprintf("%.40q", version.MinRefit)}
	}
	h.Metadata = &Metadata{}
	dec := json.NewDecoder(bytes.NewReader(e.content))
	if err := dec.Decode(h.Metadata); err != nil {
		return bad(err)
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

func (m *Metadata) checkBlobs() string {
	seen := make(map[string]bool, len(m.Blobs))
	var total int64
	for i, b := range m.Blobs {
		if !ValidDigest(b.Digest) {
			return fmt.Sprintf("blob %d: bad digest %.80q", i, b.Digest)
		}
		if seen[b.Digest] {
			return fmt.Sprintf("blob %s twice", b.Digest)
		}
		seen[b.Digest] = true
		if b.Size < 0 || b.Size > maxContentSize || b.UnpackedSize < 0 {
			return fmt.Sprintf("blob %s: bad size %d", b.Digest, b.Size)
		}
		if total += b.Size + 2*BlockSize; total > maxContentSize {
			return "the blobs are larger than any bundle may be"
		}
	}
	return ""
}

func (m *Metadata) checkImages() string {
	for i, img := range m.Images {
		if len(img.Name) > 512 || !imageForm.MatchString(img.Name) {
			return fmt.Sprintf("bad image name %.80q", img.Name)
		}
		if i > 0 && m.Images[i-1].Name >= img.Name {
			return fmt.Sprintf("image %s is not in order", img.Name)
		}
		if !ValidName(img.Group) || !mediaForm.MatchString(img.MediaType) || img.UnpackedSize < 0 {
			return fmt.Sprintf("image %s: bad group, media type or unpacked size", img.Name)
		}
		if found := m.checkImageBlobs(img); found != "" {
			return fmt.Sprintf("image %s: %s", img.Name, found)
		}
	}
	return ""
}

func (m *Metadata) checkImageBlobs(img Image) string {
	var size int64
	for j, b := range img.Blobs {
		if b < 0 || b >= len(m.Blobs) {
			return fmt.Sprintf("there is no blob %d", b)
		}
		if j > 0 && img.Blobs[j-1] >= b {
			return "its blobs are not in order"
		}
		size += m.Blobs[b].Size
	}
	if size != img.Size {
		return fmt.Sprintf("its size is said to be %d, its blobs have %d bytes", img.Size, size)
	}
	if _, ok := m.sizeOf(img); !ok {
		return "its manifest is not among its blobs"
	}
	return ""
}

func (m *Metadata) checkPayloads() string {
	for i, p := range m.Payloads {
		if !ValidName(p.Name) {
			return fmt.Sprintf("bad payload name %.80q", p.Name)
		}
		if i > 0 && !payloadBefore(m.Payloads[i-1], p) {
			return fmt.Sprintf("payload %s is not in order", p.Name)
		}
		if found := m.checkPayload(p); found != "" {
			return fmt.Sprintf("payload %s: %s", p.Name, found)
		}
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
	if top.Annotations[AnnotationTitle] != m.Name || top.Annotations[AnnotationVersion] != m.Version {
		return "names another bundle than its metadata"
	}
	if len(top.Manifests)-1 != len(m.Images) {
		return fmt.Sprintf("lists %d images, its metadata %d", len(top.Manifests)-1, len(m.Images))
	}
	for i, img := range m.Images {
		size, _ := m.sizeOf(img)
		d := top.Manifests[i+1]
		if d.Annotations[AnnotationRefName] != img.Name || d.Annotations[AnnotationImage] != img.Name ||
			d.Digest != img.Digest || d.MediaType != img.MediaType || d.Size != size {
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

// checkSingleChunks compares chunk and blob digests where they must be equal:
// for blobs of one chunk.
func (h *Header) checkSingleChunks() string {
	for i, b := range h.Metadata.Blobs {
		first, n := h.Chunks.OfBlob(i)
		if n == 0 && b.Digest != DigestOf(nil) {
			return fmt.Sprintf("blob %s is empty but has not the digest of nothing", b.Digest)
		}
		if n == 1 && FormatDigest(h.Chunks.Chunk(first).Digest) != b.Digest {
			return fmt.Sprintf("blob %s is one chunk, whose digest differs", b.Digest)
		}
	}
	return ""
}

// Sort puts a bundle's metadata into the order of the format: platforms,
// images and payloads. Blob indexes stay as they are.
func (m *Metadata) Sort() {
	sort.Strings(m.Platforms)
	sort.Slice(m.Images, func(i, j int) bool { return m.Images[i].Name < m.Images[j].Name })
	sort.Slice(m.Payloads, func(i, j int) bool { return payloadBefore(m.Payloads[i], m.Payloads[j]) })
	for i := range m.Images {
		slices.Sort(m.Images[i].Blobs)
	}
}
