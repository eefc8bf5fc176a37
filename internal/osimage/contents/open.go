package contents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/oci"
)

// ErrNoImage is the error about bytes that are no image whose contents refit can read.
var ErrNoImage = errors.New("it is no image that can be read")

// Open opens the images of all platforms, in the order of their index. It reads manifests
// and configurations.
func Open(ctx context.Context, root oci.Root) ([]Image, error) {
	raw, err := oci.Fetch(ctx, root.Store, root.Desc)
	if err != nil {
		return nil, err
	}
	var idx ocispec.Index
	if err := json.Unmarshal(raw, &idx); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", root.Name, ErrNoImage, err)
	}
	list := idx.Manifests
	if len(list) == 0 {
		list = []ocispec.Descriptor{root.Desc}
	}
	if len(list) > maxPlatforms {
		return nil, fmt.Errorf("%s: %w: its index lists %d manifests, more than %d", root.Name, ErrNoImage, len(list), maxPlatforms)
	}
	var out []Image
	for _, d := range list {
		if d.Platform != nil && d.Platform.OS == "unknown" {
			continue // an attestation
		}
		img, err := openManifest(ctx, root.Store, d)
		if root.Sparse && errors.Is(err, fs.ErrNotExist) {
			continue // a platform that the source does not have
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", root.Name, err)
		}
		out = append(out, img)
	}
	return out, nil
}

const (
	// maxPlatforms of an index, maxLayers of an image: an OS image has one to five
	// platforms, and runtimes stop at 127 layers or a few more.
	maxPlatforms = 64
	maxLayers    = 1024
)

func openManifest(ctx context.Context, from oci.Store, d ocispec.Descriptor) (Image, error) {
	var m ocispec.Manifest
	var c ocispec.Image
	if err := fetchJSON(ctx, from, d, &m); err != nil {
		return Image{}, err
	}
	if err := fetchJSON(ctx, from, m.Config, &c); err != nil {
		return Image{}, err
	}
	if len(c.RootFS.DiffIDs) != len(m.Layers) || len(m.Layers) > maxLayers {
		return Image{}, fmt.Errorf("%w: its configuration speaks of %d layers, its manifest of %d (at most %d)", ErrNoImage, len(c.RootFS.DiffIDs), len(m.Layers), maxLayers)
	}
	out := Image{Platform: c.OS + "/" + c.Architecture, Labels: c.Config.Labels}
	if c.Variant != "" {
		out.Platform += "/" + c.Variant
	}
	u, ok := from.(interface{ Unverified() bool })
	unverified := ok && u.Unverified()
	for i, l := range m.Layers {
		out.Layers = append(out.Layers, Layer{Digest: l.Digest.String(), DiffID: c.RootFS.DiffIDs[i].String(), MediaType: l.MediaType, Size: l.Size, Unverified: unverified,
			Open: func() (io.ReadCloser, error) { return from.Open(ctx, l) }})
	}
	return out, nil
}

func fetchJSON(ctx context.Context, from oci.Store, d ocispec.Descriptor, into any) error {
	raw, err := oci.Fetch(ctx, from, d)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrNoImage, d.Digest, err)
	}
	return nil
}
