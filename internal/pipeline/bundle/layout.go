package bundle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Media types and annotations of the bundle's own parts.
const (
	ArtifactType       = "application/vnd.refit.bundle.v1"
	MediaTypeMetadata  = "application/vnd.refit.bundle.metadata.v1+json"
	MediaTypeChunks    = "application/vnd.refit.bundle.chunks.v1"
	MediaTypePayload   = "application/vnd.refit.bundle.payload.v1"
	MediaTypeIndex     = "application/vnd.oci.image.index.v1+json"
	MediaTypeManifest  = "application/vnd.oci.image.manifest.v1+json"
	AnnotationRefName  = "org.opencontainers.image.ref.name"
	AnnotationImage    = "io.containerd.image.name"
	AnnotationTitle    = "org.opencontainers.image.title"
	AnnotationVersion  = "org.opencontainers.image.version"
	annotationPlatform = "dev.refit.platform"
)

// Names and constant contents of the first entries.
const (
	nameLayout     = "oci-layout"
	nameIndex      = "index.json"
	nameSignatures = "refit-signatures.json"
	blobPrefix     = "blobs/sha256/"
	layoutContent  = `{"imageLayoutVersion":"1.0.0"}`
)

// SignatureSlotSize is the size of the entry that holds the signatures. It
// never changes, so that a bundle can be signed in place.
const SignatureSlotSize = 16 << 10

// descriptor names a blob; the order of its fields is that of the file.
type descriptor struct {
	MediaType    string            `json:"mediaType"`
	ArtifactType string            `json:"artifactType,omitempty"`
	Digest       string            `json:"digest"`
	Size         int64             `json:"size"`
	Annotations  map[string]string `json:"annotations,omitempty"`

	refName, image string // the annotations that count, when read
}

// index is the top manifest as it is written, and, with other content, index.json.
type index struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	ArtifactType  string            `json:"artifactType,omitempty"`
	Manifests     []descriptor      `json:"manifests"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// manifest is the metadata manifest as it is written.
type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	ArtifactType  string       `json:"artifactType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

// indexEnd is what index.json ends with.
const indexEnd = "]}"

// indexBegin is what index.json begins with: up to the descriptor of the top
// manifest. The images follow, for ordinary OCI tools.
func indexBegin(digest string, size int64) []byte {
	b := canonical(index{SchemaVersion: 2, MediaType: MediaTypeIndex,
		Manifests: []descriptor{{MediaType: MediaTypeIndex, ArtifactType: ArtifactType, Digest: digest, Size: size}}})
	return bytes.TrimSuffix(b, []byte(indexEnd))
}

// indexJSON is the only index.json that a bundle with these images may have.
func indexJSON(digest string, size int64, images []descriptor) []byte {
	out := indexBegin(digest, size)
	for _, d := range images {
		out = append(append(out, ','), canonical(d)...)
	}
	return append(out, indexEnd...)
}

func imageDescriptor(name, mediaType, digest string, size int64) descriptor {
	return descriptor{MediaType: mediaType, Digest: digest, Size: size,
		Annotations: map[string]string{AnnotationRefName: name, AnnotationImage: name}}
}

// canonical is compact JSON, keys of maps sorted, <, > and & as they are.
func canonical(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // only structs of strings and numbers come here
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// MetadataRoom is the size that the metadata takes in the file: that of its
// JSON with the longest numbers for what is only known after all blobs were
// read (the unpacked sizes). The JSON is padded with spaces to it, so that the
// offsets of all blobs are known before any of them is read.
func MetadataRoom(m *Metadata) int {
	c := *m
	c.Images = slices.Clone(m.Images)
	for i := range c.Images {
		c.Images[i].UnpackedSize = math.MaxInt64
	}
	c.Blobs = slices.Clone(m.Blobs)
	for i := range c.Blobs {
		c.Blobs[i].UnpackedSize = math.MaxInt64
	}
	return len(canonical(c))
}

// Marshal makes the header of a bundle: all bytes up to the first blob of
// m.Blobs. table holds the chunk digests, one after the other; no signature is
// in it yet. It does not check m: ParseHeader does.
func Marshal(m *Metadata, table []byte) ([]byte, error) {
	meta := canonical(m)
	if room := MetadataRoom(m) - len(meta); room > 0 {
		meta = append(meta, strings.Repeat(" ", room)...)
	}
	mm := manifest{SchemaVersion: 2, MediaType: MediaTypeManifest, ArtifactType: ArtifactType,
		Config: descriptor{MediaType: MediaTypeMetadata, Digest: DigestOf(meta), Size: int64(len(meta))},
		Layers: []descriptor{{MediaType: MediaTypeChunks, Digest: DigestOf(table), Size: int64(len(table)),
			Annotations: map[string]string{AnnotationTitle: "chunks"}}}}
	for _, p := range m.Payloads {
		mm.Layers = append(mm.Layers, payloadDescriptor(p))
	}
	mmRaw := canonical(mm)
	top := index{SchemaVersion: 2, MediaType: MediaTypeIndex, ArtifactType: ArtifactType,
		Annotations: map[string]string{AnnotationTitle: m.Name, AnnotationVersion: m.Version},
		Manifests:   []descriptor{{MediaType: MediaTypeManifest, ArtifactType: ArtifactType, Digest: DigestOf(mmRaw), Size: int64(len(mmRaw))}}}
	for _, img := range m.Images {
		size, ok := m.sizeOf(img)
		if !ok {
			return nil, fmt.Errorf("image %s: its manifest %s is not among its blobs", img.Name, img.Digest)
		}
		top.Manifests = append(top.Manifests, imageDescriptor(img.Name, img.MediaType, img.Digest, size))
	}
	topRaw := canonical(top)
	slot, err := EncodeSlot(nil)
	if err != nil {
		return nil, err
	}
	topDigest := DigestOf(topRaw)
	var out []byte
	for _, e := range []struct {
		name    string
		content []byte
	}{
		{nameLayout, []byte(layoutContent)},
		{nameIndex, indexJSON(topDigest, int64(len(topRaw)), top.Manifests[1:])},
		{BlobPath(topDigest), topRaw},
		{nameSignatures, slot},
		{BlobPath(DigestOf(mmRaw)), mmRaw},
		{BlobPath(mm.Config.Digest), meta},
		{BlobPath(mm.Layers[0].Digest), table},
	} {
		out = appendEntry(out, e.name, e.content)
	}
	return out, nil
}

func payloadDescriptor(p Payload) descriptor {
	d := descriptor{MediaType: MediaTypePayload, Digest: p.Digest, Size: p.Size, Annotations: map[string]string{AnnotationTitle: p.Name}}
	if p.Platform != "" {
		d.Annotations[AnnotationTitle] = strings.ReplaceAll(p.Platform, "/", "-") + "/" + p.Name
		d.Annotations[annotationPlatform] = p.Platform
	}
	return d
}

func appendEntry(out []byte, name string, content []byte) []byte {
	h := TarHeader(name, int64(len(content)))
	out = append(out, h[:]...)
	out = append(out, content...)
	return append(out, make([]byte, PaddedSize(int64(len(content)))-int64(len(content)))...)
}

// sizeOf is the size of an image's own manifest or index.
func (m *Metadata) sizeOf(img Image) (int64, bool) {
	for _, i := range img.Blobs {
		if i >= 0 && i < len(m.Blobs) && m.Blobs[i].Digest == img.Digest {
			return m.Blobs[i].Size, true
		}
	}
	return 0, false
}
