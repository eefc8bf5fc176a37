package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// joinedStore has the blobs of several archives, and the index that lists them.
type joinedStore struct {
	stores []Store
	// index by its digest, empty if the archives have a common one.
	index map[digest.Digest][]byte
}

func (s *joinedStore) String() string {
	var names []string
	for _, one := range s.stores {
		names = append(names, one.String())
	}
	return strings.Join(names, " and ")
}

func (s *joinedStore) Open(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	if b, ok := s.index[d.Digest]; ok {
		return io.NopCloser(strings.NewReader(string(b))), nil
	}
	for _, one := range s.stores {
		r, err := one.Open(ctx, d)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return r, err
		}
	}
	return nil, fmt.Errorf("%s have no blob %s: %w", s, d.Digest, fs.ErrNotExist)
}

// JoinPlatforms makes one image of those that archives have under one name, each for another
// platform. Archives of one index keep it, and its digest. For others refit makes an index,
// sorted by platform: the same images give the same digest. Two images for one platform are an
// error.
func JoinPlatforms(ctx context.Context, roots []Root) (Root, error) {
	out := roots[0]
	s := &joinedStore{index: map[digest.Digest][]byte{}}
	same := true
	for _, r := range roots {
		same = same && r.Desc.Digest == out.Desc.Digest
		if !slices.Contains(s.stores, r.Store) {
			s.stores = append(s.stores, r.Store)
		}
	}
	if len(s.stores) == 1 && same {
		return out, nil
	}
	out.Store, out.Sparse = s, true
	if same {
		return out, nil
	}
	children, err := childrenOf(ctx, roots)
	if err != nil {
		return Root{}, err
	}
	b, err := json.Marshal(ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: children})
	if err != nil {
		return Root{}, err
	}
	out.Desc = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: digest.FromBytes(b), Size: int64(len(b))}
	s.index[out.Desc.Digest] = b
	return out, nil
}

// childrenOf are the manifests of all images, sorted by platform.
func childrenOf(ctx context.Context, roots []Root) ([]ocispec.Descriptor, error) {
	type child struct {
		desc ocispec.Descriptor
		from Store
	}
	var all []ocispec.Descriptor
	have := map[string]child{}
	for _, r := range roots {
		found, err := manifestsOf(ctx, r.Store, r.Desc, 0)
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", r.Name, err)
		}
		for _, d := range found {
			platform := platformString(*d.Platform)
			old, ok := have[platform]
			switch {
			case !ok:
				have[platform] = child{d, r.Store}
				all = append(all, d)
			case old.desc.Digest != d.Digest:
				return nil, fmt.Errorf("image %s for %s is %s in %s and %s in %s: a bundle can hold only one of them", r.Name, platform, old.desc.Digest, old.from, d.Digest, r.Store)
			}
		}
	}
	slices.SortFunc(all, func(a, b ocispec.Descriptor) int {
		return strings.Compare(platformString(*a.Platform), platformString(*b.Platform))
	})
	return all, nil
}

// manifestsOf are the manifests below an image that its store has, each with the platform of
// its config. Attestations are none.
func manifestsOf(ctx context.Context, s Store, d ocispec.Descriptor, depth int) ([]ocispec.Descriptor, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("indexes are nested more than %d deep", maxDepth)
	}
	b, err := Fetch(ctx, s, d)
	if err != nil {
		return nil, err
	}
	if d.MediaType != ocispec.MediaTypeImageIndex && d.MediaType != dockerManifestList {
		return manifestWithPlatform(ctx, s, d, b)
	}
	var idx ocispec.Index
	if err := json.Unmarshal(b, &idx); err != nil {
		return nil, fmt.Errorf("index %s: %w", d.Digest, err)
	}
	var out []ocispec.Descriptor
	for _, c := range idx.Manifests {
		found, err := manifestsOf(ctx, s, c, depth+1)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// manifestWithPlatform returns a manifest with its platform; none for an artifact.
func manifestWithPlatform(ctx context.Context, s Store, d ocispec.Descriptor, manifest []byte) ([]ocispec.Descriptor, error) {
	var m ocispec.Manifest
	if err := json.Unmarshal(manifest, &m); err != nil {
		return nil, fmt.Errorf("manifest %s: %w", d.Digest, err)
	}
	config, err := Fetch(ctx, s, m.Config)
	if err != nil {
		return nil, err
	}
	p, ok := configPlatform(config)
	if !ok {
		return nil, nil
	}
	return []ocispec.Descriptor{{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size,
		Platform: &ocispec.Platform{OS: p.OS, Architecture: p.Architecture, Variant: p.Variant}}}, nil
}
