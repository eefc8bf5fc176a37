package containerd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/failpoint"
)

// Image is what to load.
type Image = cri.Target

// leaseTime bounds how long a load that was cut off keeps its blobs.
const leaseTime = time.Hour

// Load brings an image into the runtime and pins it. It returns the names of
// all its records. What is there already is not written again.
func (c *Client) Load(ctx context.Context, img Image, blobs Blobs) ([]string, error) {
	names, err := c.load(ctx, img, blobs)
	if err != nil {
		return nil, fmt.Errorf("load of image %s: %w", img.Name, err)
	}
	return names, nil
}

func (c *Client) load(ctx context.Context, img Image, blobs Blobs) ([]string, error) {
	var at place
	var err error
	if at.root, at.snapshots, at.snapshotter, err = c.roots(ctx); err != nil {
		return nil, err
	}
	dgst, err := digest.Parse(img.Digest)
	if err != nil {
		return nil, fmt.Errorf("digest %q: %w", img.Digest, err)
	}
	target := ocispec.Descriptor{MediaType: img.MediaType, Digest: dgst, Size: img.Size}
	ctx, done, err := c.api.withLease(ctx, leaseTime)
	if err != nil {
		return nil, err
	}
	// The lease ends only when the names reference the blobs, or the load failed.
	defer done()
	if err := c.ingest(ctx, target, blobs, at.root); err != nil {
		return nil, err
	}
	failpoint.Here(failpoint.LoadContent)
	record := images.Image{Name: img.Name, Target: target}
	if err := c.unpack(ctx, record, at); err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	// Layers that were there before us were not under our lease; from here on
	// the configuration holds them.
	ok, err := c.unpackedIn(ctx, record, at.snapshotter)
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	if !ok {
		return nil, errors.New("unpack: a layer was collected meanwhile, it is tried again")
	}
	failpoint.Here(failpoint.LoadUnpack)
	for _, dir := range []string{at.root, at.snapshots} {
		if err := c.syncs.sync(dir); err != nil {
			return nil, err
		}
	}
	failpoint.Here(failpoint.LoadDone)
	names, err := c.referenceNames(ctx, record, repository(img.Name))
	if err != nil {
		return nil, err
	}
	return names, c.record(ctx, names, target)
}

// ingest copies the blobs of this node's platform and links them, so that the
// runtime's collector keeps them as long as the image has a name.
func (c *Client) ingest(ctx context.Context, target ocispec.Descriptor, blobs Blobs, root string) error {
	cs := c.api.content
	children := images.HandlerFunc(func(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		// Layers come after the image's own manifest: it tells whether the directory is the runtime's.
		dir := ""
		if images.IsLayerType(desc.MediaType) {
			dir = visibleBlobs(root, target)
		}
		if err := c.copyBlob(ctx, cs, desc, blobs, dir); err != nil {
			return nil, err
		}
		return images.Children(ctx, cs, desc)
	})
	mine := images.FilterPlatforms(children, c.platform)
	return images.Walk(ctx, images.HandlerFunc(func(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		found, err := mine(ctx, desc)
		if err != nil {
			return nil, err
		}
		return found, cs.label(ctx, desc.Digest, linkLabels(found))
	}), target)
}

// copyBlob always asks for a writer: also when the blob is there already, that
// puts it under our lease, and the collector cannot take it away meanwhile.
// A blob that it first places in dir is complete for that writer. Otherwise
// the runtime gets the bytes, compares them and reports what is wrong.
func (c *Client) copyBlob(ctx context.Context, cs contentStore, desc ocispec.Descriptor, blobs Blobs, dir string) error {
	defer c.busy.acquire(desc.Digest.String())() // images that share it may come at once
	if _, err := cs.size(ctx, desc.Digest); dir != "" && errdefs.IsNotFound(err) {
		_ = placeBlob(dir, desc, blobs) // else the runtime copies it
		failpoint.Here(failpoint.LoadBlob)
	}
	ref := "refit-" + desc.Digest.String()
	w, err := content.OpenWriter(ctx, cs, content.WithRef(ref), content.WithDescriptor(desc))
	if errdefs.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("blob %s: %w", desc.Digest, err)
	}
	defer w.Close()
	r, err := blobs.Open(desc.Digest.String())
	if err != nil {
		return err
	}
	defer r.Close()
	err = content.Copy(ctx, w, r, desc.Size, desc.Digest)
	switch {
	case err == nil, errdefs.IsAlreadyExists(err):
		return nil
	case errdefs.IsFailedPrecondition(err):
		// Other bytes than promised: the next try must not go on after them.
		err = errors.Join(err, w.Close(), cs.abort(ctx, ref))
	}
	return fmt.Errorf("blob %s: %w", desc.Digest, err)
}

// referenceNames returns all records that the image must have: its tag, its digest, that of
// this platform's manifest, and its ID.
func (c *Client) referenceNames(ctx context.Context, img images.Image, repo string) ([]string, error) {
	cs := c.api.content
	config, err := img.Config(ctx, cs, c.platform)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	out := []string{img.Name, repo + "@" + img.Target.Digest.String()}
	if images.IsIndexType(img.Target.MediaType) {
		m, err := c.manifestOf(ctx, img.Target)
		if err != nil {
			return nil, err
		}
		out = append(out, repo+"@"+m.String())
	}
	return append(out, config.Digest.String()), nil
}

// manifestOf is the digest of this platform's manifest in an index.
func (c *Client) manifestOf(ctx context.Context, index ocispec.Descriptor) (digest.Digest, error) {
	cs := c.api.content
	handler := images.LimitManifests(images.FilterPlatforms(images.ChildrenHandler(cs), c.platform), c.platform, 1)
	ms, err := handler(ctx, index)
	if err != nil {
		return "", fmt.Errorf("index %s: %w", index.Digest, err)
	}
	if len(ms) == 0 {
		return "", fmt.Errorf("index %s has no manifest for this platform", index.Digest)
	}
	return ms[0].Digest, nil
}

// record makes the names, each pinned from its first moment.
func (c *Client) record(ctx context.Context, names []string, target ocispec.Descriptor) error {
	for _, name := range names {
		img := images.Image{Name: name, Target: target, Labels: pinLabels()}
		err := c.api.images.create(ctx, img)
		if errdefs.IsAlreadyExists(err) {
			err = c.takeOver(ctx, img)
		}
		if err != nil {
			return fmt.Errorf("name %s: %w", name, err)
		}
		failpoint.Here(failpoint.PinLabel)
	}
	return nil
}

// takeOver changes of a record that exists what is ours to change. The record of
// an ID may belong to another name as well: not its target. A pin that others
// made stays theirs.
func (c *Client) takeOver(ctx context.Context, img images.Image) error {
	have, err := c.api.images.get(ctx, img.Name)
	if err != nil {
		return err
	}
	var fields []string
	if _, err := digest.Parse(img.Name); err != nil {
		fields = append(fields, "target")
	}
	if have.Labels[pinLabel] != pinValue || have.Labels[ownLabel] != "" {
		fields = append(fields, pinFields()...)
	}
	return c.api.images.update(ctx, img, fields...)
}
