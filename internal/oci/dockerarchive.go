package oci

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Limits of a Docker archive. Real ones have some hundred entries.
const (
	dockerManifestFile = "manifest.json"
	maxDockerManifest  = 4 << 20 // bytes of manifest.json
	maxDockerImages    = 4096
	maxDockerLayers    = 1024 // layers of an image, and tags
	maxDockerEntries   = 1 << 16
	maxEntryName       = 512 // bytes; longer names are skipped
)

// dockerImage is one image of manifest.json.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// parseDockerManifest reads manifest.json, one image at a time.
func parseDockerManifest(b []byte) ([]dockerImage, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return nil, errors.New("manifest.json is not a list of images")
	}
	var out []dockerImage
	for dec.More() {
		if len(out) == maxDockerImages {
			return nil, fmt.Errorf("manifest.json lists more than %d images", maxDockerImages)
		}
		var i dockerImage
		if err := dec.Decode(&i); err != nil {
			return nil, fmt.Errorf("manifest.json: %w", err)
		}
		if err := i.check(); err != nil {
			return nil, fmt.Errorf("manifest.json: image %d: %w", len(out)+1, err)
		}
		out = append(out, i)
	}
	if _, err := dec.Token(); err != nil { // the closing bracket
		return nil, fmt.Errorf("manifest.json: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("manifest.json has more than one list")
	}
	return out, nil
}

func (i *dockerImage) check() error {
	if len(i.Layers) > maxDockerLayers || len(i.RepoTags) > maxDockerLayers {
		return fmt.Errorf("it has %d layers and %d tags, more than the %d allowed", len(i.Layers), len(i.RepoTags), maxDockerLayers)
	}
	for _, p := range append([]string{i.Config}, i.Layers...) {
		if _, ok := entryName(p); !ok {
			return fmt.Errorf("%.100q is not the path of a file in the archive", p)
		}
	}
	return nil
}

// tags are the names of the image. Old tools write <none>:<none> for none.
func (i *dockerImage) tags() []string {
	var out []string
	for _, t := range i.RepoTags {
		if t != "<none>:<none>" {
			out = append(out, t)
		}
	}
	return out
}

// entryName is the clean form of a path inside an archive. ok is false for one that leads out of
// it, and for a name that is too long.
func entryName(p string) (name string, ok bool) {
	name = path.Clean(p)
	return name, p != "" && len(p) <= maxEntryName && name != "." && name != ".." && !path.IsAbs(name) && !strings.HasPrefix(name, "../") && !strings.ContainsRune(p, 0)
}

// dockerStore has the blobs of a Docker archive, and the manifests that such an archive does not have.
type dockerStore struct {
	archiveStore
	entries map[string]dockerEntry
	// assembled are manifests by the hex digits of their digest.
	assembled map[string][]byte
	// packed are the compressed layers that were hashed, by offset.
	packed map[int64]packedLayer
}

// dockerEntry is a file of the archive, or a link to one.
type dockerEntry struct {
	extent
	link string
	// twice marks a name that the archive has more than once: readers would take different ones.
	twice bool
}

// packedLayer is a compressed layer: its digest, and that of its unpacked bytes.
type packedLayer struct{ digest, diffID digest.Digest }

func (s *dockerStore) Open(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	if b, ok := s.assembled[d.Digest.Encoded()]; ok {
		return io.NopCloser(bytes.NewReader(b)), nil
	}
	return s.archiveStore.Open(ctx, d)
}

// OpenDockerArchive finds images in what docker save and podman save write, with or without gzip
// or zstd: those called tag, or all if tag is empty. An archive with an index.json that names its
// images is an OCI image layout, and they keep their digests. For others refit assembles one OCI
// manifest for each image. Its layers stay as they are, so the digest depends on the content
// only. The name of an image without a tag is empty. Compressed archives are unpacked into a
// nameless file in $TMPDIR or /var/tmp. Close the closer when all blobs were read.
func OpenDockerArchive(ctx context.Context, file, tag string) ([]Root, io.Closer, error) {
	f, err := openTar(ctx, file)
	if err != nil {
		return nil, nil, fmt.Errorf("docker-archive: %w", err)
	}
	s := &dockerStore{archiveStore: archiveStore{path: file, f: f, blobs: map[string]extent{}},
		entries: map[string]dockerEntry{}, assembled: map[string][]byte{}, packed: map[int64]packedLayer{}}
	roots, err := s.open(ctx, tag)
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("docker-archive %s: %w", file, err)
	}
	for i := range roots {
		roots[i].OnePlatform = true
	}
	return roots, f, nil
}

func (s *dockerStore) open(ctx context.Context, tag string) ([]Root, error) {
	index, manifest, err := s.scanEntries(ctx)
	if err != nil {
		return nil, err
	}
	if index != nil && (manifest == nil || namesImages(index)) {
		roots, err := rootsOf(s, index, tag)
		for i := range roots {
			roots[i].Sparse = true // docker save leaves out other platforms
		}
		return roots, err
	}
	if manifest == nil {
		return nil, errors.New("it has neither manifest.json nor index.json: save it again with docker save, podman save or skopeo copy")
	}
	images, err := parseDockerManifest(manifest)
	if err != nil {
		return nil, err
	}
	return s.rootsOfImages(ctx, images, tag)
}

// namesImages reports whether index.json has a full name for every image. Some tools write the
// tag only, and the names to manifest.json.
func namesImages(index []byte) bool {
	var idx ocispec.Index
	if json.Unmarshal(index, &idx) != nil {
		return true // the error is reported when the index is read
	}
	for _, d := range idx.Manifests {
		if _, bare, err := annotationName(cmp.Or(d.Annotations[annotationImageName], d.Annotations[annotationRefName])); err != nil || bare {
			return false
		}
	}
	return true
}

// scanEntries records where the files of the archive are, and reads the two that list images. No
// name of the archive is used as the name of a file.
func (s *dockerStore) scanEntries(ctx context.Context) (index, manifest []byte, err error) {
	tr := tar.NewReader(s.f)
	for range maxDockerEntries {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return index, manifest, nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read tar: %w", err)
		}
		name, err := s.recordEntry(h)
		switch {
		case err != nil:
		case name == ocispec.ImageIndexFile:
			index, err = readList(tr, h, index != nil, maxManifest)
		case name == dockerManifestFile:
			manifest, err = readList(tr, h, manifest != nil, maxDockerManifest)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, fmt.Errorf("more than %d entries", maxDockerEntries)
}

// readList reads index.json or manifest.json.
func readList(r io.Reader, h *tar.Header, again bool, most int64) ([]byte, error) {
	if again {
		return nil, fmt.Errorf("%s is in the archive twice", path.Clean(h.Name))
	}
	if h.Size > most {
		return nil, fmt.Errorf("%s has %d bytes, more than the %d allowed", path.Clean(h.Name), h.Size, most)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path.Clean(h.Name), err)
	}
	return b, nil
}

// recordEntry records an entry and returns its name if it is a regular file.
func (s *dockerStore) recordEntry(h *tar.Header) (regular string, err error) {
	name, ok := entryName(h.Name)
	if !ok {
		return "", nil
	}
	var e dockerEntry
	switch h.Typeflag {
	case tar.TypeReg:
		if isSparse(h) {
			return "", nil
		}
		if e.extent, err = s.recordFile(name, h.Size); err != nil {
			return "", err
		}
		regular = name
	case tar.TypeSymlink: // docker save writes a shared layer once, and links to it
		if e.link, ok = entryName(path.Join(path.Dir(name), h.Linkname)); !ok || path.IsAbs(h.Linkname) {
			return "", nil
		}
	case tar.TypeLink:
		if e.link, ok = entryName(h.Linkname); !ok {
			return "", nil
		}
	default:
		return "", nil
	}
	_, e.twice = s.entries[name]
	s.entries[name] = e
	return regular, nil
}

// recordFile records a regular file, and returns where it is.
func (s *dockerStore) recordFile(name string, size int64) (extent, error) {
	if err := s.recordBlob(name, size); err != nil {
		return extent{}, err
	}
	at, err := s.f.Seek(0, io.SeekCurrent)
	if err != nil {
		return extent{}, fmt.Errorf("read tar: %w", err)
	}
	return extent{at, size}, nil
}

// entry finds a file that manifest.json names, also behind one link.
func (s *dockerStore) entry(name string) (dockerEntry, error) {
	at, _ := entryName(name)
	e, ok := s.entries[at]
	if ok && e.link != "" && !e.twice {
		at = e.link
		e, ok = s.entries[at]
	}
	switch {
	case !ok:
		return e, fmt.Errorf("it has no file %q, which manifest.json names: it is not complete, or a link leads out of it", name)
	case e.twice:
		return e, fmt.Errorf("%q is in the archive twice", at)
	case e.link != "":
		return e, fmt.Errorf("%q is a link to a link", name)
	}
	return e, nil
}

// rootsOfImages assembles the images called tag, or all.
func (s *dockerStore) rootsOfImages(ctx context.Context, images []dockerImage, tag string) ([]Root, error) {
	var roots []Root
	var names []string
	for n, i := range images {
		tags := i.tags()
		names = append(names, tags...)
		if unnamed := len(tags) == 0 && tag == ""; unnamed && len(images) > 1 {
			return nil, fmt.Errorf("image %d (config %s) has no tag: tag it and save again, or pick others with docker-archive:FILE:TAG", n+1, i.Config)
		}
		wanted := pickTags(tags, tag)
		if len(wanted) == 0 && (tag != "" || len(tags) > 0) {
			continue
		}
		d, err := s.assemble(ctx, i)
		if err == nil {
			roots, err = s.addNames(roots, d, wanted)
		}
		if err != nil {
			return nil, fmt.Errorf("image %d (%s): %w", n+1, strings.Join(tags, ", "), err)
		}
	}
	return roots, checkCount(s, roots, names, tag)
}

// addNames adds an image under each of its names, or without one.
func (s *dockerStore) addNames(roots []Root, d ocispec.Descriptor, tags []string) ([]Root, error) {
	if len(tags) == 0 {
		return append(roots, Root{Desc: d, Store: s}), nil
	}
	for _, t := range tags {
		name, dgst, err := ParseName(t)
		if err != nil {
			return nil, err
		}
		if dgst != "" {
			return nil, fmt.Errorf("tag %q has a digest", t)
		}
		roots = append(roots, Root{Name: name, Desc: d, Store: s})
	}
	return roots, nil
}

// pickTags returns the names that tag asks for, as for a layout.
func pickTags(tags []string, tag string) []string {
	if tag == "" {
		return tags
	}
	var out []string
	for _, t := range tags {
		if hasName(ocispec.Descriptor{Annotations: map[string]string{annotationImageName: t}}, tag) {
			out = append(out, t)
		}
	}
	return out
}

// assemble makes the OCI manifest of an image: the same for the same config and layers.
func (s *dockerStore) assemble(ctx context.Context, i dockerImage) (ocispec.Descriptor, error) {
	config, err := s.readConfig(i.Config)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	var c struct {
		RootFS struct {
			DiffIDs []digest.Digest `json:"diff_ids"`
		} `json:"rootfs"`
	}
	if err := json.Unmarshal(config, &c); err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("config %s: %w", i.Config, err)
	}
	if len(c.RootFS.DiffIDs) != len(i.Layers) {
		return ocispec.Descriptor{}, fmt.Errorf("config %s has %d layers, manifest.json has %d", i.Config, len(c.RootFS.DiffIDs), len(i.Layers))
	}
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Layers: []ocispec.Descriptor{},
		Config: ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: digest.FromBytes(config), Size: int64(len(config))}}
	for n, l := range i.Layers {
		d, err := s.layer(ctx, l, c.RootFS.DiffIDs[n])
		if err != nil {
			return ocispec.Descriptor{}, fmt.Errorf("layer %s: %w", l, err)
		}
		m.Layers = append(m.Layers, d)
	}
	b, err := json.Marshal(m)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	d := ocispec.Descriptor{MediaType: m.MediaType, Digest: digest.FromBytes(b), Size: int64(len(b))}
	s.assembled[d.Digest.Encoded()] = b
	return d, nil
}

// readConfig reads the config of an image and makes it a blob. Most tools name it by its digest.
func (s *dockerStore) readConfig(name string) ([]byte, error) {
	e, err := s.entry(name)
	if err != nil {
		return nil, err
	}
	if e.size > maxManifest {
		return nil, fmt.Errorf("config %s has %d bytes, more than the %d allowed", name, e.size, maxManifest)
	}
	b, err := io.ReadAll(io.NewSectionReader(s.f, e.offset, e.size))
	if err != nil {
		return nil, fmt.Errorf("config %s: %w", name, err)
	}
	is := digest.FromBytes(b)
	if want := strings.TrimSuffix(path.Base(name), ".json"); isHash(want) && want != is.Encoded() {
		return nil, fmt.Errorf("config %s has digest %s: the archive is damaged", name, is)
	}
	s.blobs[is.Encoded()] = e.extent
	return b, nil
}

// layer makes a layer a blob. The digest of an uncompressed one is its diffID, which readers of
// the blob verify. A compressed one is read once, for its own digest.
func (s *dockerStore) layer(ctx context.Context, name string, diffID digest.Digest) (ocispec.Descriptor, error) {
	if err := sha256Only(diffID); err != nil {
		return ocispec.Descriptor{}, err
	}
	e, err := s.entry(name)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	d := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: diffID, Size: e.size}
	r := io.NewSectionReader(s.f, e.offset, e.size)
	kind, err := compressionOf(r)
	if err != nil {
		return d, err
	}
	if kind != uncompressed {
		p, known := s.packed[e.offset]
		if !known {
			if p, err = hashPacked(ctx, r, kind); err != nil {
				return d, err
			}
			s.packed[e.offset] = p
		}
		if p.diffID != diffID {
			return d, fmt.Errorf("its unpacked bytes have digest %s, the config has %s: the archive is damaged", p.diffID, diffID)
		}
		d.MediaType, d.Digest = kind.mediaType(), p.digest
	}
	if have, ok := s.blobs[d.Digest.Encoded()]; ok && have.size != e.size {
		return d, fmt.Errorf("it has %d bytes, and %d elsewhere in the archive: the archive is damaged", e.size, have.size)
	}
	s.blobs[d.Digest.Encoded()] = e.extent
	return d, nil
}
