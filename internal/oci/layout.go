package oci

import (
	"archive/tar"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/fsutil"
)

const (
	annotationRefName   = ocispec.AnnotationRefName
	annotationImageName = "io.containerd.image.name"
	maxArchiveEntries   = 1 << 20
)

// dirStore is an OCI image layout in a directory.
type dirStore string

func (s dirStore) String() string { return string(s) }

func (s dirStore) Open(_ context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	if err := sha256Only(d.Digest); err != nil {
		return nil, err
	}
	return os.Open(filepath.Join(string(s), "blobs", "sha256", d.Digest.Encoded()))
}

func sha256Only(d digest.Digest) error {
	if err := d.Validate(); err != nil {
		return fmt.Errorf("digest %.100q: %w", string(d), err)
	}
	if d.Algorithm() != digest.SHA256 {
		return fmt.Errorf("digest %s: only sha256 is supported", d)
	}
	return nil
}

// SaveIndex makes a directory with blobs a layout of one image, not synced: it writes
// index.json and oci-layout with the mode perm.
func SaveIndex(dir string, d ocispec.Descriptor, perm fs.FileMode) error {
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{d}}
	for name, v := range map[string]any{ocispec.ImageIndexFile: index, ocispec.ImageLayoutFile: ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion}} {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if err := fsutil.WriteFile(filepath.Join(dir, name), b, perm); err != nil {
			return err
		}
	}
	return nil
}

// OpenLayout finds images in a layout in a directory: those called tag, or all if tag is
// empty.
func OpenLayout(dir, tag string) ([]Root, error) {
	b, err := os.ReadFile(filepath.Join(dir, ocispec.ImageIndexFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is not an OCI image layout: it has no index.json", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("OCI image layout: %w", err)
	}
	return rootsOf(dirStore(dir), b, tag)
}

// rootsOf picks images from the index.json of a layout.
func rootsOf(s Store, indexJSON []byte, tag string) ([]Root, error) {
	var idx ocispec.Index
	if err := json.Unmarshal(indexJSON, &idx); err != nil {
		return nil, fmt.Errorf("%s: index.json: %w", s, err)
	}
	var roots []Root
	var names []string
	for _, d := range idx.Manifests {
		called := cmp.Or(d.Annotations[annotationImageName], d.Annotations[annotationRefName])
		names = append(names, called)
		if !isWanted(d, tag) {
			continue
		}
		name, bare, err := annotationName(called)
		if err != nil {
			return nil, fmt.Errorf("%s: image %s: %w", s, d.Digest, err)
		}
		roots = append(roots, Root{Name: name, Bare: bare, Desc: d, Store: s})
	}
	return roots, checkCount(s, roots, names, tag)
}

// isWanted reports whether tag asks for an image of a layout. An empty tag asks for all, but
// a bundle's own top manifest is not an image.
func isWanted(d ocispec.Descriptor, tag string) bool {
	if tag == "" {
		return d.ArtifactType != bundleType
	}
	return hasName(d, tag)
}

func checkCount(s Store, roots []Root, names []string, tag string) error {
	switch {
	case len(roots) == 0 && tag != "":
		return fmt.Errorf("%s has no image called %q; it has %s", s, tag, strings.Join(names, ", "))
	case len(roots) == 0:
		return fmt.Errorf("%s has no images", s)
	case len(roots) > 1 && tag != "":
		return fmt.Errorf("%s has %d images called %q: give the full name", s, len(roots), tag)
	}
	return nil
}

// bundleType marks the top manifest in a bundle's index.json: not an image.
const bundleType = "application/vnd.refit.bundle.v1"

// hasName reports whether a layout's image has the name that a person typed: the name in an
// annotation, the same name normalised, or its tag.
func hasName(d ocispec.Descriptor, tag string) bool {
	for _, have := range []string{d.Annotations[annotationRefName], d.Annotations[annotationImageName]} {
		if have == "" {
			continue
		}
		if have == tag || !strings.ContainsAny(tag, "/:") && Tag(have) == tag {
			return true
		}
		a, _, errA := ParseName(have)
		b, _, errB := ParseName(tag)
		if errA == nil && errB == nil && a == b {
			return true
		}
	}
	return false
}

// archiveStore is an OCI image layout in a tar, with the offset of each blob.
type archiveStore struct {
	path  string
	f     *os.File
	blobs map[string]extent
}

type extent struct{ offset, size int64 }

func (s *archiveStore) String() string { return s.path }

func (s *archiveStore) Open(_ context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	if err := sha256Only(d.Digest); err != nil {
		return nil, err
	}
	e, ok := s.blobs[d.Digest.Encoded()]
	if !ok {
		return nil, fmt.Errorf("%s has no blob %s: %w", s.path, d.Digest, fs.ErrNotExist)
	}
	return blobSection{io.NewSectionReader(s.f, e.offset, e.size)}, nil
}

// blobSection is a blob in an archive. It can seek, so that readers may pass parts by.
type blobSection struct{ *io.SectionReader }

func (blobSection) Close() error { return nil }

// OpenArchive finds images in a layout in an uncompressed tar, without unpacking it. Close
// the closer when all blobs were read.
func OpenArchive(file, tag string) ([]Root, io.Closer, error) {
	f, err := fsutil.OpenRegular(file)
	if err != nil {
		return nil, nil, fmt.Errorf("OCI archive: %w", err)
	}
	s := &archiveStore{path: file, f: f, blobs: map[string]extent{}}
	index, err := s.scan()
	if err == nil && index == nil {
		err = errors.New("it has no index.json: it is not an OCI archive; the source docker-archive:FILE reads what docker save writes")
	}
	var roots []Root
	if err == nil {
		roots, err = rootsOf(s, index, tag)
	}
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("OCI archive %s: %w", file, err)
	}
	return roots, f, nil
}

// scan records the offsets of the blobs. It reads only regular files with the names of
// a layout, skips links, devices and paths outside of it, and creates no file from a
// name in the archive.
func (s *archiveStore) scan() (index []byte, err error) {
	tr := tar.NewReader(s.f)
	for range maxArchiveEntries {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return index, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read tar: %w (compressed archives have to be decompressed first)", err)
		}
		if h.Typeflag != tar.TypeReg || isSparse(h) {
			continue
		}
		name := path.Clean(h.Name)
		if name == ocispec.ImageIndexFile {
			index, err = readIndex(tr, h.Size)
		} else {
			err = s.recordBlob(name, h.Size)
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("more than %d entries", maxArchiveEntries)
}

func readIndex(r io.Reader, size int64) ([]byte, error) {
	if size > maxManifest {
		return nil, fmt.Errorf("index.json has %d bytes, more than the %d allowed", size, maxManifest)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("index.json: %w", err)
	}
	return b, nil
}

func isHash(hex string) bool {
	return digest.NewDigestFromEncoded(digest.SHA256, hex).Validate() == nil
}

// recordBlob records the offset of the current entry, if it is a blob.
func (s *archiveStore) recordBlob(name string, size int64) error {
	hex, ok := strings.CutPrefix(name, "blobs/sha256/")
	if !ok || !isHash(hex) {
		return nil
	}
	at, err := s.f.Seek(0, io.SeekCurrent)
	if err != nil {
		return fmt.Errorf("read tar: %w", err)
	}
	s.blobs[hex] = extent{at, size}
	return nil
}

// isSparse finds GNU sparse files, whose stored bytes differ from their content.
func isSparse(h *tar.Header) bool {
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return true
		}
	}
	return false
}
