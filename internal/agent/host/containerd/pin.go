package containerd

import (
	"context"
	"fmt"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/image-spec/identity"

	"github.com/refit-dev/refit/internal/failpoint"
)

// The label by which the CRI plugin knows a pinned image (containerd >= 1.7.3).
const (
	pinLabel = "io.cri-containerd.pinned"
	pinValue = "pinned"
)

// ownLabel accompanies every pin of refit: the pin label has no owner, and refit must not remove
// the pins of others.
const (
	ownLabel = "dev.refit.pinned"
	ownValue = "true"
)

func pinLabels() map[string]string {
	return map[string]string{pinLabel: pinValue, ownLabel: ownValue}
}

// pinFields are the labels as fields of an update; the other labels stay.
func pinFields() []string { return []string{"labels." + pinLabel, "labels." + ownLabel} }

// repository is a name without its tag.
func repository(name string) string {
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		return name[:i]
	}
	return name
}

// Pin labels all records of an image that is in the runtime, and makes those
// that are missing. ok is false, without an error, if the image is not there
// with this digest and all its layers: it must be loaded then.
func (c *Client) Pin(ctx context.Context, img Image) (names []string, ok bool, err error) {
	is := c.api.images
	have, err := is.get(ctx, img.Name)
	if errdefs.IsNotFound(err) || err == nil && have.Target.Digest.String() != img.Digest {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("pin of image %s: %w", img.Name, err)
	}
	names, err = c.referenceNames(ctx, images.Image{Name: img.Name, Target: have.Target}, repository(img.Name))
	if errdefs.IsNotFound(err) {
		return nil, false, nil // the record is there, its content is not
	}
	if err != nil {
		return nil, false, fmt.Errorf("pin of image %s: %w", img.Name, err)
	}
	// A record that an import left may miss layers. The kubelet would find out in the
	// middle of an update.
	whole, err := c.unpacked(ctx, have)
	if err != nil {
		return nil, false, fmt.Errorf("pin of image %s: %w", img.Name, err)
	}
	if !whole {
		return nil, false, nil
	}
	for _, name := range names {
		if err := c.pinOne(ctx, name, have); err != nil {
			return nil, false, fmt.Errorf("pin of image %s: %w", img.Name, err)
		}
	}
	return names, true, nil
}

// unpacked reports whether all layers of an image are there as files.
func (c *Client) unpacked(ctx context.Context, img images.Image) (bool, error) {
	_, _, snapshotter, err := c.roots(ctx)
	if err != nil {
		return false, err
	}
	return c.unpackedIn(ctx, img, snapshotter)
}

func (c *Client) unpackedIn(ctx context.Context, img images.Image, snapshotter string) (bool, error) {
	diffs, err := img.RootFS(ctx, c.api.content, c.platform)
	if err != nil {
		return false, err
	}
	return c.api.hasSnapshot(ctx, snapshotter, identity.ChainID(diffs).String())
}

func (c *Client) pinOne(ctx context.Context, name string, as images.Image) error {
	is := c.api.images
	have, err := is.get(ctx, name)
	if errdefs.IsNotFound(err) {
		return c.record(ctx, []string{name}, as.Target)
	}
	if err != nil || have.Labels[pinLabel] == pinValue {
		return err
	}
	have.Labels = pinLabels()
	err = is.update(ctx, have, pinFields()...)
	failpoint.Here(failpoint.PinLabel)
	return err
}

// Unpin takes our pins off records; those of others stay. The images stay until
// the kubelet collects them. A record that is gone is none to unpin.
func (c *Client) Unpin(ctx context.Context, names []string) error {
	is := c.api.images
	for _, name := range names {
		have, err := is.get(ctx, name)
		if errdefs.IsNotFound(err) || err == nil && have.Labels[ownLabel] == "" {
			continue
		}
		if err != nil {
			return fmt.Errorf("unpin of %s: %w", name, err)
		}
		have.Labels = nil
		if err := is.update(ctx, have, pinFields()...); err != nil {
			return fmt.Errorf("unpin of %s: %w", name, err)
		}
	}
	return nil
}
