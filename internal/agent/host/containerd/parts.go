package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/agent/host/cri"
)

// contentDir is where containerd keeps blobs, below its root.
const contentDir = "io.containerd.content.v1.content/blobs"

// Parts are the pieces of an image in containerd's store: its blobs and its
// unpacked layers. cri.ErrNoImage if it is not there with this digest. An error
// with parts means that what comes after them cannot be found while one of them
// is damaged, or that layers are not unpacked: Load unpacks them.
func (c *Client) Parts(ctx context.Context, img Image) ([]cri.Part, error) {
	have, err := c.api.images.get(ctx, img.Name)
	if errdefs.IsNotFound(err) || err == nil && have.Target.Digest.String() != img.Digest {
		return nil, fmt.Errorf("image %s: %w", img.Name, cri.ErrNoImage)
	}
	if err != nil {
		return nil, fmt.Errorf("parts of image %s: %w", img.Name, err)
	}
	root, _, snapshotter, err := c.roots(ctx)
	if err != nil {
		return nil, err
	}
	// The lease keeps containerd's garbage collection away from these blobs.
	ctx, done, err := c.api.withLease(ctx, leaseTime)
	if err != nil {
		return nil, fmt.Errorf("parts of image %s: %w", img.Name, err)
	}
	defer done()
	parts, manifest, err := c.blobParts(ctx, filepath.Join(root, contentDir), have.Target)
	if err != nil {
		return parts, fmt.Errorf("parts of image %s: %w", img.Name, err)
	}
	dirs, err := c.layerDirs(ctx, snapshotter, manifest)
	if err != nil {
		return parts, fmt.Errorf("layers of image %s: %w", img.Name, err)
	}
	for i, l := range manifest.Layers {
		parts = append(parts, cri.Part{Digest: l.Digest.String(), Dir: dirs[i], Base: i == 0})
	}
	return parts, nil
}

// blobParts walks from the top to the manifest of this platform.
func (c *Client) blobParts(ctx context.Context, dir string, target ocispec.Descriptor) (parts []cri.Part, m ocispec.Manifest, err error) {
	cs := c.api.content
	file := func(d ocispec.Descriptor) {
		parts = append(parts, cri.Part{Digest: d.Digest.String(), File: filepath.Join(dir, d.Digest.Algorithm().String(), d.Digest.Encoded()), Size: d.Size})
	}
	file(target)
	if images.IsIndexType(target.MediaType) {
		list, err := images.LimitManifests(images.FilterPlatforms(images.ChildrenHandler(cs), c.platform), c.platform, 1)(ctx, target)
		if err == nil && len(list) == 0 {
			err = errors.New("its index has nothing for this platform")
		}
		if err != nil {
			return parts, m, err
		}
		target = list[0]
		file(target)
	}
	if err := c.readJSON(ctx, target, &m); err != nil {
		return parts, m, err
	}
	file(m.Config)
	for _, l := range m.Layers {
		// Layers that were thrown away after unpacking are no damage.
		if _, err := cs.size(ctx, l.Digest); err == nil {
			file(l)
		}
	}
	return parts, m, nil
}

func (c *Client) readJSON(ctx context.Context, d ocispec.Descriptor, into any) error {
	ra, err := c.api.content.ReaderAt(ctx, d)
	if err != nil {
		return err
	}
	defer ra.Close()
	b := make([]byte, ra.Size())
	if _, err := ra.ReadAt(b, 0); err != nil && int64(len(b)) != d.Size {
		return fmt.Errorf("blob %s: %w", d.Digest, err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("blob %s: %w", d.Digest, err)
	}
	return nil
}

// layerDirs returns the directories of an image's layers, the lowest first. It takes them from a
// view of the snapshotter, which it never mounts.
func (c *Client) layerDirs(ctx context.Context, snapshotter string, m ocispec.Manifest) ([]string, error) {
	var conf ocispec.Image
	if err := c.readJSON(ctx, m.Config, &conf); err != nil {
		return nil, err
	}
	if len(conf.RootFS.DiffIDs) != len(m.Layers) {
		return nil, fmt.Errorf("configuration %s says %d layers, the manifest %d", m.Config.Digest, len(conf.RootFS.DiffIDs), len(m.Layers))
	}
	if len(m.Layers) == 0 {
		return nil, nil
	}
	sn := c.api.snapshots
	key := fmt.Sprintf("refit-look-%s", m.Config.Digest)
	remove := &snapshotsapi.RemoveSnapshotRequest{Snapshotter: snapshotter, Key: key}
	_, _ = sn.Remove(ctx, remove) // of an interrupted call
	view, err := sn.View(ctx, &snapshotsapi.ViewSnapshotRequest{Snapshotter: snapshotter, Key: key, Parent: identity.ChainID(conf.RootFS.DiffIDs).String()})
	if err != nil {
		return nil, err
	}
	if _, err := sn.Remove(ctx, remove); err != nil {
		return nil, err
	}
	dirs := lowerDirs(view.GetMounts())
	if len(dirs) != len(m.Layers) {
		return nil, fmt.Errorf("snapshotter %s keeps %d layers in %d directories: refit cannot read their files", snapshotter, len(m.Layers), len(dirs))
	}
	return dirs, nil
}

// lowerDirs are the directories of a view, the lowest first.
func lowerDirs(mounts []*types.Mount) []string {
	if len(mounts) != 1 {
		return nil
	}
	if m := mounts[0]; m.Type == "bind" {
		return []string{m.Source}
	}
	for _, o := range mounts[0].Options {
		if list, ok := strings.CutPrefix(o, "lowerdir="); ok {
			dirs := strings.Split(list, ":")
			slices.Reverse(dirs)
			return dirs
		}
	}
	return nil
}

// Refresh makes the runtime read an image again after its blobs were restored: at its start the
// runtime skips images that it cannot read.
func (c *Client) Refresh(ctx context.Context, img Image) error {
	is := c.api.images
	names := []string{img.Name, repository(img.Name) + "@" + img.Digest}
	if have, err := is.get(ctx, img.Name); err == nil {
		if all, err := c.referenceNames(ctx, have, repository(img.Name)); err == nil {
			names = all
		}
	}
	for _, name := range names {
		have, err := is.get(ctx, name)
		if errdefs.IsNotFound(err) {
			continue
		}
		if err == nil {
			err = is.update(ctx, have, pinFields()...) // no change, but the update notifies the CRI plugin
		}
		if err != nil {
			return fmt.Errorf("name %s: %w", name, err)
		}
	}
	return nil
}

// Remove takes an image out with all its names, also one that CRI does not list
// because it cannot read it.
func (c *Client) Remove(ctx context.Context, name string) error {
	is := c.api.images
	have, err := is.get(ctx, name)
	if errdefs.IsNotFound(err) {
		return c.cri.Remove(ctx, name)
	}
	if err == nil {
		err = c.cri.Remove(ctx, name) // first: it knows of the removal at once
	}
	if err != nil {
		return fmt.Errorf("removal of image %s: %w", name, err)
	}
	left, err := is.list(ctx, "target.digest=="+have.Target.Digest.String())
	if err != nil {
		return fmt.Errorf("removal of image %s: %w", name, err)
	}
	for _, img := range left {
		if err := is.remove(ctx, img.Name); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("removal of image %s: %w", name, err)
		}
	}
	return nil
}
