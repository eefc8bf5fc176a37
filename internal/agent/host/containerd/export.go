package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/oci"
)

// ErrNoImage says that the runtime has no image with a digest.
var ErrNoImage = cri.ErrNoImage

// Export writes this platform's part of an image of the runtime into a directory, as an OCI
// layout with one manifest. It returns the digest of that manifest: the image's, or one in its
// index. The directory is complete or does not exist.
func (c *Client) Export(ctx context.Context, dgst, dir string) (string, error) {
	found, err := c.api.images.list(ctx, "target.digest=="+dgst)
	if err != nil {
		return "", fmt.Errorf("image %s: %w", dgst, err)
	}
	if len(found) == 0 {
		return "", fmt.Errorf("image %s: %w", dgst, ErrNoImage)
	}
	target, err := c.ofPlatform(ctx, found[0].Target)
	if err != nil {
		return "", fmt.Errorf("image %s: %w", dgst, err)
	}
	if _, err := os.Stat(dir); err == nil {
		return target.Digest.String(), nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("image %s: %w", dgst, err)
	}
	part := dir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return "", fmt.Errorf("image %s: %w", dgst, err)
	}
	if err := c.exportTo(ctx, target, part); err != nil {
		return "", fmt.Errorf("image %s: %w", dgst, err)
	}
	if err := fsutil.SyncFS(part); err != nil {
		return "", err
	}
	if err := os.Rename(part, dir); err != nil {
		return "", fmt.Errorf("image %s: %w", dgst, err)
	}
	return target.Digest.String(), fsutil.SyncDir(filepath.Dir(dir))
}

// ofPlatform is the manifest for this node.
func (c *Client) ofPlatform(ctx context.Context, target ocispec.Descriptor) (ocispec.Descriptor, error) {
	if !images.IsIndexType(target.MediaType) {
		return target, nil
	}
	cs := c.api.content
	list, err := images.LimitManifests(images.FilterPlatforms(images.ChildrenHandler(cs), c.platform), c.platform, 1)(ctx, target)
	if err != nil || len(list) == 0 {
		return target, fmt.Errorf("it has nothing for this platform: %w", err)
	}
	return list[0], nil
}

func (c *Client) exportTo(ctx context.Context, target ocispec.Descriptor, dir string) error {
	blobs := filepath.Join(dir, ocispec.ImageBlobsDir, string(digest.SHA256))
	if err := os.MkdirAll(blobs, 0o755); err != nil {
		return err
	}
	cs := c.api.content
	err := images.Walk(ctx, images.HandlerFunc(func(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		ra, err := cs.ReaderAt(ctx, desc)
		if err != nil {
			return nil, fmt.Errorf("blob %s: %w", desc.Digest, err)
		}
		defer ra.Close()
		if err := fsutil.Replace(filepath.Join(blobs, desc.Digest.Encoded()), content.NewReader(ra), desc.Digest.String(), 0o644); err != nil {
			return nil, err
		}
		return images.Children(ctx, cs, desc)
	}), target)
	if err != nil {
		return err
	}
	return oci.SaveIndex(dir, target, 0o644)
}
