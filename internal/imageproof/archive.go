package imageproof

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// PayloadName is the payload of a bundle that holds the archive.
const PayloadName = "image-proofs"

const (
	annotationImage   = "dev.refit.image"
	annotationSubject = "dev.refit.subject"
	annotationSigner  = "dev.refit.signer"
	annotationTag     = "org.opencontainers.image.ref.name"

	mediaTypeIndex = "application/vnd.oci.image.index.v1+json"
	layoutName     = "oci-layout"
	layoutContent  = `{"imageLayoutVersion":"1.0.0"}`
	indexName      = "index.json"
	blobPrefix     = "blobs/sha256/"

	// MaxManifest bounds a manifest in bytes.
	MaxManifest = 1 << 20
	// MaxArtifact bounds all documents of one artifact in bytes.
	MaxArtifact = 64 << 20
	// MaxEntries bounds the artifacts of a bundle.
	MaxEntries = 1 << 14
	maxIndex   = 16 << 20
	maxLayers  = 256
	// maxArchiveFiles bounds the blobs of an archive.
	maxArchiveFiles = 1 << 16
	// maxKept bounds the manifests and signatures that ReadSignatures keeps, in bytes.
	maxKept = 32 << 20
)

// Descriptor names a blob.
type Descriptor struct {
	MediaType    string            `json:"mediaType"`
	ArtifactType string            `json:"artifactType,omitempty"`
	Digest       string            `json:"digest"`
	Size         int64             `json:"size"`
	Annotations  map[string]string `json:"annotations,omitempty"`
}

// Manifest is the part of an artifact's manifest that refit reads.
type Manifest struct {
	MediaType    string       `json:"mediaType"`
	ArtifactType string       `json:"artifactType"`
	Config       Descriptor   `json:"config"`
	Layers       []Descriptor `json:"layers"`
	Subject      *Descriptor  `json:"subject"`
}

// ParseManifest reads the manifest of an artifact, within limits.
func ParseManifest(raw []byte) (*Manifest, error) {
	var m Manifest
	if len(raw) > MaxManifest {
		return nil, problemf(Damaged, "the manifest has %d bytes, at most %d are read", len(raw), MaxManifest)
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, problemf(Damaged, "the manifest is not JSON: %s", err)
	}
	if len(m.Layers) > maxLayers {
		return nil, problemf(Damaged, "the manifest has %d layers, at most %d are read", len(m.Layers), maxLayers)
	}
	total := int64(0)
	for _, d := range m.Blobs() {
		if !ValidDigest(d.Digest) || d.Size < 0 || d.Size > MaxArtifact {
			return nil, problemf(Damaged, "the manifest names the blob %.80q with %d bytes", d.Digest, d.Size)
		}
		total += d.Size
	}
	if total > MaxArtifact {
		return nil, problemf(Damaged, "its documents have %d bytes, at most %d are carried", total, MaxArtifact)
	}
	return &m, nil
}

// Blobs are the configuration and the layers.
func (m *Manifest) Blobs() []Descriptor { return append([]Descriptor{m.Config}, m.Layers...) }

// Type of the artifact: its own, or that of its configuration.
func (m *Manifest) Type() string { return cmp.Or(m.ArtifactType, m.Config.MediaType) }

// Entry is one artifact of an image.
type Entry struct {
	// Image of the bundle, and Subject: the digest in it to which the artifact is attached.
	Image, Subject string
	// Tag under which the artifact was found, "" for a referrer.
	Tag string
	// Signer that a policy trusted when the bundle was created, "" if none was verified.
	Signer   string
	Manifest Descriptor

	// Kind, Format and the documents are filled by ReadArchive.
	Kind   Kind
	Format Format
	Proofs []*Proof
	Broken []*Problem
}

// describe fills Kind and Format from the documents that were read.
func (e *Entry) describe(m *Manifest) {
	e.Kind, e.Format = kindOf(m.Type()), FormatPlain
	for _, l := range m.Layers {
		if e.Kind == KindOther {
			e.Kind = kindOf(l.MediaType)
		}
	}
	if m.Type() == ArtifactTypeNotation {
		e.Kind, e.Format = KindSignature, FormatNotation
	}
	if len(e.Proofs) > 0 {
		e.Kind, e.Format = e.Proofs[0].Kind, e.Proofs[0].Format
	}
}

// WriteArchive writes an OCI image layout as a tar. The same entries give the same bytes: the
// index first, then manifests, then documents. open streams a blob; it is compared with its
// digest.
func WriteArchive(w io.Writer, entries []Entry, manifests map[string][]byte, open func(Descriptor) (io.ReadCloser, error)) error {
	entries = slices.Clone(entries)
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(strings.Compare(a.Image, b.Image), strings.Compare(a.Subject, b.Subject), strings.Compare(a.Tag, b.Tag), strings.Compare(a.Manifest.Digest, b.Manifest.Digest))
	})
	index, err := marshalIndex(entries)
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	done := map[string]bool{}
	err = errors.Join(writeFile(tw, layoutName, []byte(layoutContent)), writeFile(tw, indexName, index))
	for _, e := range entries {
		if d := e.Manifest.Digest; err == nil && !done[d] {
			done[d] = true
			err = writeFile(tw, blobPrefix+strings.TrimPrefix(d, "sha256:"), manifests[d])
		}
	}
	for _, e := range entries {
		if err != nil {
			return err
		}
		err = writeBlobs(tw, manifests[e.Manifest.Digest], done, open)
	}
	return errors.Join(err, tw.Close())
}

func marshalIndex(entries []Entry) ([]byte, error) {
	index := struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Manifests     []Descriptor `json:"manifests"`
	}{SchemaVersion: 2, MediaType: mediaTypeIndex, Manifests: []Descriptor{}}
	for _, e := range entries {
		d := e.Manifest
		d.Annotations = map[string]string{annotationImage: e.Image, annotationSubject: e.Subject}
		for k, v := range map[string]string{annotationTag: e.Tag, annotationSigner: e.Signer} {
			if v != "" {
				d.Annotations[k] = v
			}
		}
		index.Manifests = append(index.Manifests, d)
	}
	return json.Marshal(index)
}

func header(tw *tar.Writer, name string, size int64) error {
	return tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size, Format: tar.FormatUSTAR})
}

func writeFile(tw *tar.Writer, name string, content []byte) error {
	if err := header(tw, name, int64(len(content))); err != nil {
		return err
	}
	_, err := tw.Write(content)
	return err
}

func writeBlobs(tw *tar.Writer, manifest []byte, done map[string]bool, open func(Descriptor) (io.ReadCloser, error)) error {
	m, err := ParseManifest(manifest)
	if err != nil {
		return err
	}
	for _, d := range m.Blobs() {
		if done[d.Digest] {
			continue
		}
		done[d.Digest] = true
		if err := writeBlob(tw, d, open); err != nil {
			return fmt.Errorf("blob %s: %w", d.Digest, err)
		}
	}
	return nil
}

func writeBlob(tw *tar.Writer, d Descriptor, open func(Descriptor) (io.ReadCloser, error)) error {
	r, err := open(d)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := header(tw, blobPrefix+strings.TrimPrefix(d.Digest, "sha256:"), d.Size); err != nil {
		return err
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(tw, h), io.LimitReader(r, d.Size))
	if err != nil {
		return err
	}
	if got := "sha256:" + hex.EncodeToString(h.Sum(nil)); n != d.Size || got != d.Digest {
		return fmt.Errorf("the source has other bytes: %d of %d, digest %s", n, d.Size, got)
	}
	return nil
}

// use is a document that an entry waits for.
type use struct {
	entry *Entry
	layer Descriptor
}

// archiveReader reads an archive once, in order.
type archiveReader struct {
	entries   []Entry
	manifests map[string][]*Entry
	read      map[string]*Manifest
	layers    map[string][]use
	visit     func(Blob) error
	// only has the images whose signatures are wanted; nil wants all documents of all.
	only map[string]bool
	kept int64
}

// Blob is one blob of an archive while it is read. Content holds the bytes of a manifest;
// other blobs are streamed.
type Blob struct {
	Digest   string
	Size     int64
	Manifest []byte
	Content  io.Reader
}

// ReadArchive reads an archive, parses its documents, and compares each of them with its
// digest. visit may be nil; it gets every blob once, and reads Content or not.
func ReadArchive(r io.Reader, visit func(Blob) error) ([]Entry, error) {
	return readArchive(r, &archiveReader{visit: visit})
}

// ReadSignatures reads the signatures of some images, by name, and nothing else. It keeps some
// 32 MiB at most, so that nodes can use it.
func ReadSignatures(r io.Reader, images map[string]bool) ([]Entry, error) {
	return readArchive(r, &archiveReader{only: images})
}

func readArchive(r io.Reader, a *archiveReader) ([]Entry, error) {
	a.manifests, a.read, a.layers = map[string][]*Entry{}, map[string]*Manifest{}, map[string][]use{}
	tr := tar.NewReader(r)
	for n := 0; ; n++ {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the archive of image proofs: %w", err)
		}
		if n > maxArchiveFiles {
			return nil, fmt.Errorf("the archive of image proofs has more than %d files", maxArchiveFiles)
		}
		if err := a.file(h, tr); err != nil {
			return nil, fmt.Errorf("archive of image proofs: %.120s: %w", h.Name, err)
		}
	}
	for i := range a.entries {
		e := &a.entries[i]
		m := a.read[e.Manifest.Digest]
		if m == nil {
			return nil, fmt.Errorf("archive of image proofs: manifest %s of %s is missing", e.Manifest.Digest, e.Image)
		}
		e.describe(m)
	}
	return a.entries, nil
}

func (a *archiveReader) file(h *tar.Header, r io.Reader) error {
	switch hexa, isBlob := strings.CutPrefix(h.Name, blobPrefix); {
	case h.Typeflag != tar.TypeReg:
		return errors.New("it is no regular file")
	case h.Name == layoutName:
		return nil
	case h.Name == indexName:
		return a.index(h.Size, r)
	case isBlob && ValidDigest("sha256:"+hexa):
		return a.blob("sha256:"+hexa, h.Size, r)
	}
	return errors.New("it is no file of an OCI image layout")
}

// valid: the entry names what it is about.
func (e *Entry) valid() bool {
	return e.Image != "" && ValidDigest(e.Subject) && ValidDigest(e.Manifest.Digest)
}

func (a *archiveReader) index(size int64, r io.Reader) error {
	if size > maxIndex || a.entries != nil {
		return fmt.Errorf("it has %d bytes, at most %d are read, and only once", size, maxIndex)
	}
	var index struct {
		Manifests []Descriptor `json:"manifests"`
	}
	raw, err := io.ReadAll(r)
	if err == nil {
		err = json.Unmarshal(raw, &index)
	}
	if err != nil {
		return err
	}
	if len(index.Manifests) > MaxEntries {
		return fmt.Errorf("it lists %d artifacts, at most %d are read", len(index.Manifests), MaxEntries)
	}
	a.entries = make([]Entry, 0, len(index.Manifests)) // its elements do not move
	for i, d := range index.Manifests {
		if a.only != nil && !a.only[d.Annotations[annotationImage]] {
			continue
		}
		a.entries = append(a.entries, Entry{})
		e := &a.entries[len(a.entries)-1]
		*e = Entry{Image: d.Annotations[annotationImage], Subject: d.Annotations[annotationSubject], Tag: d.Annotations[annotationTag], Signer: d.Annotations[annotationSigner], Manifest: d}
		e.Manifest.Annotations = nil
		if !e.valid() {
			return fmt.Errorf("artifact %d has no image, subject or digest", i+1)
		}
		a.manifests[d.Digest] = append(a.manifests[d.Digest], e)
	}
	return nil
}

func (a *archiveReader) blob(digest string, size int64, r io.Reader) error {
	if owners := a.manifests[digest]; len(owners) > 0 {
		if err := a.keep(size * int64(len(owners))); err != nil {
			return err
		}
		raw, err := readVerified(r, digest, size, MaxManifest)
		if err != nil {
			return err
		}
		return a.manifest(digest, raw, owners)
	}
	if uses := a.layers[digest]; len(uses) > 0 && size <= MaxDocument {
		if err := a.keep(size * int64(len(uses))); err != nil {
			return err
		}
		content, err := readVerified(r, digest, size, MaxDocument)
		if err != nil {
			return err
		}
		for _, u := range uses {
			u.parse(content)
		}
		r = bytes.NewReader(content)
	}
	if a.visit == nil {
		return nil
	}
	return a.visit(Blob{Digest: digest, Size: size, Content: r})
}

// keep counts what stays in memory.
func (a *archiveReader) keep(size int64) error {
	if a.kept += size; a.only != nil && a.kept > maxKept {
		return fmt.Errorf("the signatures of the images have more than %d bytes", maxKept)
	}
	return nil
}

func (a *archiveReader) manifest(digest string, raw []byte, owners []*Entry) error {
	m, err := ParseManifest(raw)
	if err != nil {
		return err
	}
	a.read[digest] = m
	for _, e := range owners {
		for _, l := range m.Layers {
			if Parsed(l.MediaType) && (a.only == nil || l.Size <= MaxSignature) {
				a.layers[l.Digest] = append(a.layers[l.Digest], use{e, l})
			}
		}
	}
	if a.visit == nil {
		return nil
	}
	return a.visit(Blob{Digest: digest, Size: int64(len(raw)), Manifest: raw})
}

func (u use) parse(content []byte) { u.entry.AddDocument(u.layer, content) }

// AddDocument adds what a layer of the artifact says, or why it cannot be read.
func (e *Entry) AddDocument(layer Descriptor, content []byte) {
	p, err := Parse(Layer{MediaType: layer.MediaType, Annotations: layer.Annotations, Content: content})
	var problem *Problem
	if errors.As(err, &problem) {
		e.Broken = append(e.Broken, problem)
		return
	}
	e.Proofs = append(e.Proofs, p)
}

func readVerified(r io.Reader, digest string, size, most int64) ([]byte, error) {
	if size > most {
		return nil, fmt.Errorf("it has %d bytes, at most %d are read", size, most)
	}
	b, err := io.ReadAll(io.LimitReader(r, size))
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(b); "sha256:"+hex.EncodeToString(sum[:]) != digest {
		return nil, fmt.Errorf("it has other bytes, digest %x", sum)
	}
	return b, nil
}
