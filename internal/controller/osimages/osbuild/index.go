package osbuild

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/registry"
)

// part is the image of one platform.
type part struct{ platform, digest string }

// index puts the images of several platforms together. The same images give the same
// digest. Without a digest, fail says why.
func (r *Builds) index(ctx context.Context, b *v1alpha1.OSBuild, m materials, parts []part) (made string, fail result, err error) {
	from, err := m.registryReader(m.push)
	if err != nil {
		return "", result{}, err
	}
	idx := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	for _, p := range parts {
		root, err := from.Open(ctx, b.Spec.Repository+"@"+p.digest)
		if err != nil {
			return "", registryResult("image of "+p.platform, err), ctx.Err()
		}
		d := root.Desc
		words := append(strings.Split(p.platform, "/"), "")
		d.Platform = &ocispec.Platform{OS: words[0], Architecture: words[1], Variant: words[2]}
		idx.Manifests = append(idx.Manifests, d)
	}
	raw, err := json.Marshal(idx)
	if err != nil {
		return "", result{}, err
	}
	made = digest.FromBytes(raw).String()
	_, err = m.registryWriter().Push(ctx, registry.Upload{Repository: b.Spec.Repository, Tag: b.Name, Manifests: []registry.Blob{{MediaType: ocispec.MediaTypeImageIndex, Digest: made, Data: raw}}})
	if err != nil {
		return "", registryResult("push to "+b.Spec.Repository, err), ctx.Err()
	}
	return made, result{}, nil
}
