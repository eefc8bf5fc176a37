package osimages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/osimage/contents"
)

// errOdd is an image that cannot be compared.
var errOdd = errors.New("it is no image that can be compared")

// ImageComparison is what differs.
type ImageComparison struct {
	contents.Live
	// Boot says why the image has to be booted, empty if agents can write what differs.
	Boot string
	// Read bytes of layers.
	Read int64
}

// compareImages compares was with is, both repository@sha256:....
func compareImages(ctx context.Context, from *oci.Registries, was, is string, rules contents.Rules) (ImageComparison, error) {
	old, err := openImages(ctx, from, was)
	if err != nil {
		return boot(err)
	}
	now, err := openImages(ctx, from, is)
	if err != nil {
		return boot(err)
	}
	if len(old) != len(now) {
		return ImageComparison{Boot: fmt.Sprintf("one image has %d platforms, the other %d", len(old), len(now))}, nil
	}
	var out ImageComparison
	for i := range now {
		r, err := contents.Compare(old[i], now[i], contents.DefaultLimits(), rules.Covers)
		if err != nil {
			return boot(fmt.Errorf("compare %s with %s: %w", was, is, err))
		}
		out.Read += r.Read
		live, why := rules.Live(r)
		switch {
		case why != "":
			return ImageComparison{Boot: why, Read: out.Read}, nil
		case i > 0 && !sameFiles(live.Files, out.Files):
			return ImageComparison{Boot: "what differs is another thing on " + now[i].Platform + " than on " + now[0].Platform, Read: out.Read}, nil
		}
		out.Live = live
	}
	return out, nil
}

// boot: an image that is odd, or that refit may not read, is booted; of one whose registry
// does not answer nothing is known yet.
func boot(err error) (ImageComparison, error) {
	var said *transport.Error
	refused := errors.As(err, &said) && said.StatusCode >= 400 && said.StatusCode < 500 && said.StatusCode != http.StatusTooManyRequests && said.StatusCode != http.StatusRequestTimeout
	if refused || errors.Is(err, errOdd) {
		return ImageComparison{Boot: "it could not be compared: " + err.Error()}, nil
	}
	return ImageComparison{}, err
}

func sameFiles(a, b []model.ConfigFile) bool {
	return len(a) == len(b) && (len(a) == 0 || reflect.DeepEqual(a, b))
}

// openImages the images of all platforms, in the order of their index.
func openImages(ctx context.Context, from *oci.Registries, ref string) ([]contents.Image, error) {
	root, err := from.Open(ctx, ref)
	if err != nil {
		return nil, err
	}
	raw, err := oci.Fetch(ctx, root.Store, root.Desc)
	if err != nil {
		return nil, err
	}
	var idx ocispec.Index
	if err := json.Unmarshal(raw, &idx); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", ref, errOdd, err)
	}
	list := idx.Manifests
	if len(list) == 0 {
		list = []ocispec.Descriptor{root.Desc}
	}
	var out []contents.Image
	for _, d := range list {
		if d.Platform != nil && d.Platform.OS == "unknown" {
			continue // an attestation
		}
		img, err := readImage(ctx, root.Store, d)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", ref, err)
		}
		out = append(out, img)
	}
	return out, nil
}

func readImage(ctx context.Context, from oci.Store, d ocispec.Descriptor) (contents.Image, error) {
	var m ocispec.Manifest
	var c ocispec.Image
	if err := readJSON(ctx, from, d, &m); err != nil {
		return contents.Image{}, err
	}
	if err := readJSON(ctx, from, m.Config, &c); err != nil {
		return contents.Image{}, err
	}
	if len(c.RootFS.DiffIDs) != len(m.Layers) {
		return contents.Image{}, fmt.Errorf("%w: its configuration speaks of %d layers, its manifest of %d", errOdd, len(c.RootFS.DiffIDs), len(m.Layers))
	}
	out := contents.Image{Platform: c.OS + "/" + c.Architecture, Labels: c.Config.Labels}
	if c.Variant != "" {
		out.Platform += "/" + c.Variant
	}
	for i, l := range m.Layers {
		out.Layers = append(out.Layers, contents.Layer{Digest: l.Digest.String(), DiffID: c.RootFS.DiffIDs[i].String(), MediaType: l.MediaType, Size: l.Size,
			Open: func() (io.ReadCloser, error) { return from.Open(ctx, l) }})
	}
	return out, nil
}

func readJSON(ctx context.Context, from oci.Store, d ocispec.Descriptor, into any) error {
	raw, err := oci.Fetch(ctx, from, d)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%w: %s: %w", errOdd, d.Digest, err)
	}
	return nil
}
