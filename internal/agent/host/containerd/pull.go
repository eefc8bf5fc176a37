package containerd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"

	"github.com/refit-dev/refit/internal/fsutil"
)

// pullTime bounds one fetch from a registry.
const pullTime = 15 * time.Minute

// ErrNotHere says that an image that only others may fetch was not fetched yet.
var ErrNotHere = errors.New("the image was not fetched yet")

// Pull makes the runtime pull an image from the registry in its name, by digest and without
// credentials. It uses CRI, so that the runtime's mirrors and certificates apply as they do for
// the kubelet. Then it creates the image's names, pinned, as Load does. It sets the tag of this
// name only; other tags on the node stay.
func (c *Client) Pull(ctx context.Context, img Image) ([]string, error) {
	byDigest := repository(img.Name) + "@" + img.Digest
	if here, err := c.here(ctx, byDigest); err != nil {
		return nil, err
	} else if !here {
		if img.Here {
			return nil, ErrNotHere
		}
		if err := c.cri.Pull(ctx, byDigest, pullTime); err != nil {
			return nil, err
		}
	}
	got, err := c.api.images.get(ctx, byDigest)
	if err != nil {
		return nil, fmt.Errorf("image %s was fetched and is not there: %w", img.Name, err)
	}
	if got.Target.Digest.String() != img.Digest {
		return nil, fmt.Errorf("image %s: the runtime has %s under it", byDigest, got.Target.Digest)
	}
	names, err := c.referenceNames(ctx, images.Image{Name: img.Name, Target: got.Target}, repository(img.Name))
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", img.Name, err)
	}
	root, snapshots, _, err := c.roots(ctx)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{root, snapshots} {
		if err := fsutil.SyncFS(dir); err != nil {
			return nil, err
		}
	}
	return names, c.record(ctx, names, got.Target)
}

// here reports whether an image is there whole under a name: the kubelet may have
// fetched it, and then no registry is asked.
func (c *Client) here(ctx context.Context, name string) (bool, error) {
	img, err := c.api.images.get(ctx, name)
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("image %s: %w", name, err)
	}
	return c.unpacked(ctx, img)
}
