package osbuild

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/ssa"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/osimage/imagebuild"
)

const (
	// baseEvery is how often a base is looked for again.
	baseEvery = 5 * time.Second
	// mostParts bytes of a Content: the API server takes no more.
	mostParts = 1000000
)

// forNodes builds the base with the configuration and pushes it nowhere. What it adds to the
// base's layers becomes a Content, from which every node assembles the image.
func (r *Builds) forNodes(ctx context.Context, b *v1alpha1.OSBuild, m materials) (result, error) {
	base, why, err := r.Bases.Find(ctx, b.Spec.Base, "")
	if err != nil {
		return result{}, err
	}
	if base == nil {
		return result{waits: baseEvery, because: why}, nil
	}
	img, err := appended(ctx, base, b, m)
	switch {
	case IsTransient(err):
		return result{waits: baseEvery, because: "no node has sent the base's manifest or configuration yet: " + err.Error()}, ctx.Err()
	case errors.Is(err, fs.ErrNotExist):
		return result{user: fmt.Sprintf("append build: the bundle %s has not all of the base's manifests and configurations: %v; name in spec.platforms those that it has", base.Bundle, err)}, nil
	case err != nil:
		return result{user: "append build: " + err.Error()}, ctx.Err()
	}
	for _, d := range img.Kept {
		if !base.Has(d) {
			return result{user: fmt.Sprintf("append build: bundle %s has no layer %s of the base, so no node could put the image together", base.Bundle, d.Digest)}, nil
		}
	}
	data, err := partsOf(img, b)
	if err != nil {
		return result{user: "append build: " + err.Error()}, nil //nolint:nilerr // it is the build's result
	}
	c, err := ssa.MakeContent(ctx, r.Client, v1alpha1.ContentOSImage, data)
	if err != nil {
		return result{}, err
	}
	got := resultOf(img)
	got.parts = c.Name
	return got, nil
}

// appended is the image for those platforms that the bundle has of the base.
func appended(ctx context.Context, base *Base, b *v1alpha1.OSBuild, m materials) (*imagebuild.AppendedImage, error) {
	platforms := b.Spec.Platforms
	if len(platforms) == 0 {
		var err error
		if platforms, err = base.Platforms(ctx); err != nil {
			return nil, err
		}
	}
	return imagebuild.Append(ctx, imagebuild.AppendRequest{Base: base.Root, Entries: m.placed.Entries, Labels: labelsOf(b), Platforms: platforms})
}

// partsOf an image as the data of a Content.
func partsOf(img *imagebuild.AppendedImage, b *v1alpha1.OSBuild) (string, error) {
	out := model.ImageOverlay{Digest: img.Digest(), MediaType: img.Desc.MediaType, Base: baseDigest(b)}
	total := 0
	for _, x := range slices.Concat(img.Blobs, img.Manifests) {
		if total += len(x.Data); len(x.Data) > model.MaxOverlayBlob {
			return "", tooLarge(total)
		}
		if out.HasBlob(x.Digest) {
			continue
		}
		if err := out.AddBlob(x.Data); err != nil {
			return "", err
		}
	}
	data, err := json.Marshal(out)
	if err != nil {
		return "", err
	}
	if len(data) > mostParts {
		return "", tooLarge(total)
	}
	return string(data), nil
}

func tooLarge(bytes int) error {
	return fmt.Errorf("what the configuration adds to the base has %d bytes, too many to reach the nodes without a registry: the limit of an object in the cluster is %d, compressed. Put large files into a bundle as payloads. Or build the image elsewhere (refit image build --output oci:DIR:TAG) and put it into a bundle", bytes, mostParts)
}

func baseDigest(b *v1alpha1.OSBuild) string {
	_, d, _ := strings.Cut(b.Spec.Base, "@")
	return d
}
