package imagebuild

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/registry"
)

// Push uploads the image to a repository, with a tag if there is one, and says
// how many bytes of the base had to be copied: none within one registry.
func (i *AppendedImage) Push(ctx context.Context, w *registry.Writer, repository, tag string) (copied int64, err error) {
	u := registry.Upload{Repository: repository, Blobs: i.Blobs, Manifests: i.Manifests, Tag: tag}
	for _, d := range i.Kept {
		u.Mounts = append(u.Mounts, registry.Mount{MediaType: d.MediaType, Digest: d.Digest.String(), Size: d.Size, From: i.from,
			Open: func(ctx context.Context) (io.ReadCloser, error) { return i.base.Open(ctx, d) }})
	}
	return w.Push(ctx, u)
}

// WriteLayout writes the image into an OCI layout, which may be the base's own,
// under a name; an image of that name is replaced. It says how many bytes of the
// base had to be copied: none if its layout is on the same file system.
func (i *AppendedImage) WriteLayout(ctx context.Context, dir, name string) (copied int64, err error) {
	blobs := filepath.Join(dir, "blobs", "sha256")
	if err := os.MkdirAll(blobs, 0o755); err != nil {
		return 0, err
	}
	for _, d := range i.Kept {
		n, err := i.addLayer(ctx, d, filepath.Join(blobs, d.Digest.Encoded()))
		if err != nil {
			return copied, fmt.Errorf("layer %s of the base: %w", d.Digest, err)
		}
		copied += n
	}
	for _, b := range append(slices.Clone(i.Blobs), i.Manifests...) {
		if err := fsutil.WriteFile(filepath.Join(blobs, b.Digest[len("sha256:"):]), b.Data, 0o644); err != nil {
			return copied, err
		}
	}
	if err := fsutil.WriteFile(filepath.Join(dir, ocispec.ImageLayoutFile), []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644); err != nil {
		return copied, err
	}
	return copied, i.addToIndex(filepath.Join(dir, ocispec.ImageIndexFile), name)
}

// addLayer brings a layer of the base into the layout: it is there, or it is linked,
// or it is copied and compared.
func (i *AppendedImage) addLayer(ctx context.Context, d ocispec.Descriptor, to string) (copied int64, err error) {
	if st, err := os.Stat(to); err == nil && st.Size() == d.Size {
		return 0, nil
	}
	if i.from == "" {
		from := filepath.Join(i.base.String(), "blobs", "sha256", d.Digest.Encoded())
		if err := os.Link(from, to); err == nil || errors.Is(err, fs.ErrExist) {
			return 0, nil
		}
	}
	r, err := i.base.Open(ctx, d)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	if err := fsutil.Replace(to, io.LimitReader(r, d.Size+1), d.Digest.String(), 0o644); err != nil {
		return 0, err
	}
	if st, err := os.Stat(to); err != nil || st.Size() != d.Size {
		return 0, errors.Join(err, os.Remove(to), fmt.Errorf("the source has other bytes: %d were expected", d.Size))
	}
	return d.Size, nil
}

// addToIndex names the image in the layout's index.
func (i *AppendedImage) addToIndex(file, name string) error {
	idx := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex}
	idx.SchemaVersion = 2
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &idx)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", file, err)
	}
	idx.Manifests = slices.DeleteFunc(idx.Manifests, func(d ocispec.Descriptor) bool {
		return d.Annotations[ocispec.AnnotationRefName] == name
	})
	d := i.Desc
	d.Annotations = map[string]string{ocispec.AnnotationRefName: name}
	idx.Manifests = append(idx.Manifests, d)
	out, err := json.Marshal(idx)
	if err != nil {
		return err
	}
	return fsutil.WriteFile(file, out, 0o644)
}
