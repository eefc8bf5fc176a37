package osimages

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/osimage/contents"
)

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
	if refused || errors.Is(err, contents.ErrNoImage) {
		return ImageComparison{Boot: "it could not be compared: " + err.Error()}, nil
	}
	return ImageComparison{}, err
}

func sameFiles(a, b []model.ConfigFile) bool {
	return len(a) == len(b) && (len(a) == 0 || reflect.DeepEqual(a, b))
}

// openImages opens the images of all platforms of a reference.
func openImages(ctx context.Context, from *oci.Registries, ref string) ([]contents.Image, error) {
	root, err := from.Open(ctx, ref)
	if err != nil {
		return nil, err
	}
	return contents.Open(ctx, root)
}
