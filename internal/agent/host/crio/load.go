package crio

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
)

// loadTime bounds one image; its blobs are on this node.
const loadTime = 15 * time.Minute

// Names are the names by which an image is pinned. Both are needed: CRI-O
// compares a pin with names that are recorded in its store, and which of the two
// is, depends on how the image came.
func (c *Client) Names(img cri.Target) []string { return []string{img.Name, img.ByDigest()} }

// Prepare pins names before their images arrive, so that the kubelet removes none in between. It
// starts a mirror for the images that Load gets next, if there are any, and configures it in the
// runtime. end removes the mirror; the caller calls it in any case, also after an error. Names may
// be pinned that have no image yet: the caller has them in its record.
func (c *Client) Prepare(ctx context.Context, names []string, load []cri.Target, blobs cri.Blobs) (end func(context.Context) error, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	nothing := func(context.Context) error { return nil }
	if err := c.clean(); err != nil {
		return nothing, err
	}
	if err := c.setPins(func(own []string) []string { return append(own, names...) }); err != nil {
		return nothing, err
	}
	if len(load) == 0 {
		return nothing, nil
	}
	if err := c.openMirror(ctx, load, blobs); err != nil {
		return c.closeMirror, err
	}
	return c.closeMirror, nil
}

// Load brings an image in and pins it. It returns the names that carry the pin.
// Without Prepare it makes a mirror for this image alone.
func (c *Client) Load(ctx context.Context, img cri.Target, blobs cri.Blobs) (names []string, err error) {
	c.mu.Lock()
	has := c.mirror != nil && c.mirror.serves(img)
	c.mu.Unlock()
	if !has {
		end, err := c.Prepare(ctx, c.Names(img), []cri.Target{img}, blobs)
		defer func() { _ = end(context.WithoutCancel(ctx)) }() // a file that stays is removed by the next
		if err != nil {
			return nil, fmt.Errorf("load of image %s: %w", img.Name, err)
		}
	}
	if err := c.load(ctx, img); err != nil {
		return nil, fmt.Errorf("load of image %s: %w", img.Name, err)
	}
	return c.Names(img), nil
}

// load pulls by digest first, which the runtime verifies, and then the tag,
// which costs a manifest. By digest alone pods that say name:tag do not start.
func (c *Client) load(ctx context.Context, img cri.Target) error {
	id, err := c.cri.ImageID(ctx, img.ByDigest())
	if err != nil {
		return err
	}
	if id == "" {
		if err := c.cri.Pull(ctx, img.ByDigest(), loadTime); err != nil {
			return err
		}
	}
	failpoint.Here(failpoint.LoadContent)
	if err := c.cri.Pull(ctx, img.Name, loadTime); err != nil {
		return err
	}
	same, err := c.isComplete(ctx, img)
	if err != nil {
		return err
	}
	if !same {
		return fmt.Errorf("after the load its tag does not name %s: something else moves it", img.Digest)
	}
	failpoint.Here(failpoint.LoadUnpack)
	root, err := c.Root(ctx)
	if err != nil {
		return err
	}
	// The store's records are synced before the files of layers are.
	if err := fsutil.SyncFS(root); err != nil {
		return err
	}
	failpoint.Here(failpoint.LoadDone)
	return nil
}

// isComplete reports whether tag and digest name the same image.
func (c *Client) isComplete(ctx context.Context, img cri.Target) (bool, error) {
	byTag, err := c.cri.ImageID(ctx, img.Name)
	if err != nil || byTag == "" {
		return false, err
	}
	byDigest, err := c.cri.ImageID(ctx, img.ByDigest())
	return byTag == byDigest, err
}

// Pin pins an image that is there; ok is false, without an error, if it is not
// there under its tag and its digest.
func (c *Client) Pin(ctx context.Context, img cri.Target) (names []string, ok bool, err error) {
	if ok, err = c.isComplete(ctx, img); !ok || err != nil {
		return nil, false, err
	}
	names = c.Names(img)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.setPins(func(own []string) []string { return append(own, names...) }); err != nil {
		return nil, false, fmt.Errorf("pin of image %s: %w", img.Name, err)
	}
	failpoint.Here(failpoint.PinLabel)
	return names, true, nil
}

// Unpin takes names off our list; those of others stay, and so do the images,
// until the kubelet collects them.
func (c *Client) Unpin(_ context.Context, names []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.setPins(func(own []string) []string {
		return slices.DeleteFunc(own, func(n string) bool { return slices.Contains(names, n) })
	})
}
