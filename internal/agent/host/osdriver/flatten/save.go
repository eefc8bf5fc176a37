package flatten

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/oci"
)

// Save writes a platform's part of an image into a folder, as an OCI layout with one
// manifest, whose digest it returns. The folder is there wholly or not at all; blobs
// that an earlier try brought into dir.part are not fetched again.
func Save(ctx context.Context, root oci.Root, platform, dir string) (manifest string, err error) {
	d, _, err := choose(ctx, root, platform)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(dir); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return d.Digest.String(), err
	}
	part := dir + ".part"
	g, err := oci.Walk(ctx, oci.Root{Name: root.Name, Desc: d, Store: root.Store}, nil)
	if err != nil {
		return "", err
	}
	blobs := filepath.Join(part, ocispec.ImageBlobsDir, "sha256")
	if err := os.MkdirAll(blobs, 0o700); err != nil {
		return "", fmt.Errorf("image %s: %w", d.Digest, err)
	}
	for _, n := range g.Nodes {
		if err := saveBlob(ctx, root.Store, n.Desc, filepath.Join(blobs, n.Desc.Digest.Encoded())); err != nil {
			return "", fmt.Errorf("image %s: blob %s: %w", d.Digest, n.Desc.Digest, err)
		}
	}
	only := ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}
	if err := oci.SaveIndex(part, only, 0o600); err != nil {
		return "", fmt.Errorf("image %s: %w", d.Digest, err)
	}
	if err := fsutil.SyncFS(part); err != nil {
		return "", fmt.Errorf("image %s: %w", d.Digest, err)
	}
	if err := os.Rename(part, dir); err != nil {
		return "", fmt.Errorf("image %s: %w", d.Digest, err)
	}
	return d.Digest.String(), fsutil.SyncDir(filepath.Dir(dir))
}

// saveBlob streams a blob into its place, unless it is there with its digest.
func saveBlob(ctx context.Context, s oci.Store, d ocispec.Descriptor, path string) error {
	if have, err := fsutil.Digest(path); err == nil && have == d.Digest.String() {
		return nil
	}
	return oci.Retry(ctx, s, func() error {
		r, err := s.Open(ctx, d)
		if err != nil {
			return oci.Transient(err)
		}
		defer r.Close()
		return oci.Transient(fsutil.Replace(path, r, d.Digest.String(), 0o600))
	})
}
