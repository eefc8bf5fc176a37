package bundlewriter

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// Ranks order the blobs of a bundle: small ones first, so that a node knows
// all images before the first layer has come.
const (
	rankManifest = iota
	rankConfig
	rankPayload
	rankLayer
)

// blobPlan is one blob of the output.
type blobPlan struct {
	desc    ocispec.Descriptor
	store   oci.Store
	rank    int
	measure bool   // count its decompressed bytes
	user    string // for messages
}

// plan is everything known before the first layer is read.
type plan struct {
	// checkLayers unpacks every layer.
	checkLayers bool
	meta        bundle.Metadata
	blobs       []blobPlan
	// table has the size of the chunk table, header that of the whole header
	table  int64
	header int64
	end    int64
}

// collector gathers blobs, each digest once.
type collector struct {
	byDigest map[string]*blobPlan
}

func (c *collector) add(d ocispec.Descriptor, store oci.Store, rank int, user string) error {
	have, ok := c.byDigest[d.Digest.String()]
	if !ok {
		c.byDigest[d.Digest.String()] = &blobPlan{desc: d, store: store, rank: rank, measure: rank == rankLayer, user: user}
		return nil
	}
	if have.desc.Size != d.Size {
		return fmt.Errorf("blob %s has %d bytes in %s and %d in %s", d.Digest, have.desc.Size, have.user, d.Size, user)
	}
	have.rank = min(have.rank, rank)
	have.measure = have.measure || rank == rankLayer
	if oci.IsRemote(have.store) && !oci.IsRemote(store) {
		have.store = store // a local blob need not be fetched
	}
	return nil
}

// makePlan walks all images and lays out the file.
func makePlan(ctx context.Context, in *inputs, o *Options) (*plan, error) {
	images, err := uniqueImages(ctx, in.images, o)
	if err != nil {
		return nil, err
	}
	payloads, err := uniquePayloads(in.payloads, o)
	if err != nil {
		return nil, err
	}
	graphs, err := walkAll(ctx, images, o.Platforms)
	if err != nil {
		return nil, asInput(err)
	}
	proofs, err := collectProofs(ctx, in, images, graphs, o)
	if err != nil {
		return nil, err
	}
	payloads = addProofs(payloads, proofs)
	c := &collector{byDigest: map[string]*blobPlan{}}
	for i, g := range graphs {
		for _, n := range g.Nodes {
			if err := c.add(n.Desc, images[i].Store, rankOf(n.Kind), "image "+images[i].Name); err != nil {
				return nil, err
			}
		}
	}
	for _, p := range payloads {
		d := ocispec.Descriptor{Digest: digestOf(p.digest), Size: p.size}
		if err := c.add(d, p.store, rankPayload, "payload "+p.name); err != nil {
			return nil, err
		}
	}
	p := &plan{checkLayers: o.CheckLayers}
	index := p.order(c, graphs, payloads)
	p.describe(images, graphs, payloads, index, o)
	if err := p.label(o); err != nil {
		return nil, err
	}
	return p, p.layOut()
}

func rankOf(k oci.Kind) int {
	switch k {
	case oci.KindManifest:
		return rankManifest
	case oci.KindConfig:
		return rankConfig
	}
	return rankLayer
}

// uniqueImages sorts the images by name and drops what two sources agree on.
func uniqueImages(ctx context.Context, roots []oci.Root, o *Options) ([]oci.Root, error) {
	roots, err := joinPlatforms(ctx, roots)
	if err != nil {
		return nil, err
	}
	sort.SliceStable(roots, func(i, j int) bool { return roots[i].Name < roots[j].Name })
	var out []oci.Root
	for _, r := range roots {
		if n := len(out); n > 0 && out[n-1].Name == r.Name {
			if out[n-1].Desc.Digest != r.Desc.Digest {
				return nil, inputf("image %s is %s in %s and %s in %s: a bundle can hold only one of them", r.Name, out[n-1].Desc.Digest, out[n-1].Store, r.Desc.Digest, r.Store)
			}
			continue
		}
		switch {
		case r.Bare:
			o.Warn(fmt.Sprintf("image %q of %s: this is no full name, no pod can ask for it; give it one with NAME=oci:DIR:%s", r.Name, r.Store, r.Name))
		case oci.Tag(r.Name) == "latest":
			o.Warn(fmt.Sprintf("image %s: pods that name the tag latest pull it at every start unless imagePullPolicy says otherwise, and fail offline; use another tag", r.Name))
		}
		out = append(out, r)
	}
	return out, nil
}

func uniquePayloads(all []payloadRoot, o *Options) ([]payloadRoot, error) {
	all = slices.Clone(all)
	sort.SliceStable(all, func(i, j int) bool {
		return all[i].name < all[j].name || all[i].name == all[j].name && all[i].platform < all[j].platform
	})
	var out []payloadRoot
	for _, p := range all {
		if !p.wanted(o.Platforms) {
			if p.explicit {
				return nil, inputf("payload %s of %s is for %s, --platform asks for %s", p.name, p.store, p.platform, strings.Join(o.Platforms, ", "))
			}
			continue
		}
		if n := len(out); n > 0 && out[n-1].name == p.name && out[n-1].platform == p.platform {
			if out[n-1].digest != p.digest {
				return nil, inputf("payload %s for %q is given twice with other bytes: %s and %s", p.name, p.platform, out[n-1].store, p.store)
			}
			continue
		}
		out = append(out, p)
	}
	return out, nil
}

// wanted reports whether a payload is for one of the platforms asked for.
func (p *payloadRoot) wanted(platforms []string) bool {
	return p.platform == "" || len(platforms) == 0 || slices.Contains(platforms, p.platform)
}

func walkAll(ctx context.Context, images []oci.Root, platforms []string) ([]oci.Graph, error) {
	graphs := make([]oci.Graph, len(images))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelLookups)
	for i, img := range images {
		g.Go(func() (err error) {
			graphs[i], err = oci.Walk(ctx, img, platforms)
			return err
		})
	}
	return graphs, g.Wait()
}

// order puts the blobs in the order of the file: by rank, and within a rank by the first
// image or payload that uses them. The order depends on the contents of the bundle, not on
// the names of the sources.
func (p *plan) order(c *collector, graphs []oci.Graph, payloads []payloadRoot) map[string]int {
	index := map[string]int{}
	take := func(rank int, digest string) {
		b := c.byDigest[digest]
		if _, done := index[digest]; done || b.rank != rank {
			return
		}
		index[digest] = len(p.blobs)
		p.blobs = append(p.blobs, *b)
	}
	for rank := rankManifest; rank <= rankLayer; rank++ {
		for _, g := range graphs {
			for _, n := range g.Nodes {
				take(rank, n.Desc.Digest.String())
			}
		}
		for _, pl := range payloads {
			take(rank, pl.digest)
		}
	}
	return index
}

// describe fills the metadata; the unpacked sizes come when all was read.
func (p *plan) describe(images []oci.Root, graphs []oci.Graph, payloads []payloadRoot, index map[string]int, o *Options) {
	p.meta = bundle.Metadata{FormatVersion: bundle.FormatVersion, MinRefit: o.MinRefit, ChunkSize: o.ChunkSize, Platforms: []string{}, Constraints: slices.Clone(o.Constraints), Images: []bundle.Image{}, Blobs: []bundle.Blob{}}
	platforms := map[string]bool{}
	for _, b := range p.blobs {
		p.meta.Blobs = append(p.meta.Blobs, bundle.Blob{Digest: b.desc.Digest.String(), Size: b.desc.Size})
	}
	for i, r := range images {
		img := bundle.Image{Name: r.Name, Digest: r.Desc.Digest.String(), MediaType: r.Desc.MediaType, Group: o.groupOf(r.Name, r.Group)}
		for _, n := range graphs[i].Nodes {
			img.Blobs = append(img.Blobs, index[n.Desc.Digest.String()])
			img.Size += n.Desc.Size
		}
		for _, pf := range graphs[i].Platforms {
			platforms[pf] = true
		}
		p.meta.Images = append(p.meta.Images, img)
	}
	for _, pl := range payloads {
		p.meta.Payloads = append(p.meta.Payloads, bundle.Payload{Name: pl.name, Version: pl.version, Platform: pl.platform, Digest: pl.digest, Size: pl.size, Mode: pl.mode, Blob: index[pl.digest]})
		if pl.platform != "" {
			platforms[pl.platform] = true
		}
	}
	for pf := range platforms {
		p.meta.Platforms = append(p.meta.Platforms, pf)
	}
	p.meta.Sort()
}

// label decides name and versions.
func (p *plan) label(o *Options) error {
	program, err := p.release()
	if err != nil {
		return err
	}
	p.meta.Name, p.meta.Version = o.Name, o.Version
	if p.meta.Name == "" {
		p.meta.Name = nameOfRelease(program)
	}
	if p.meta.Version == "" {
		p.meta.Version = strings.TrimPrefix(p.meta.KubernetesVersion, "v")
	}
	if p.meta.Version == "" {
		p.meta.Version = "0.0.0"
		o.Warn("no --version given: the bundle is version 0.0.0, so that clusters cannot tell it from an older one")
	}
	return nil
}

// release finds the Kubernetes version of the payloads, and the last program that has it; ""
// if there is none.
func (p *plan) release() (program string, err error) {
	for _, pl := range p.meta.Payloads {
		if !needsVersion(pl.Name) {
			continue
		}
		v := "v" + strings.TrimPrefix(pl.Version, "v")
		if isDistribution(pl.Name) && distribution.SplitVersion(v).Distribution != pl.Name {
			return "", inputf("payload %s is %s, which is no version of %s: write the build too, as its releases are called, with payload:%s@VERSION=FILE", pl.Name, v, pl.Name, pl.Name)
		}
		if p.meta.KubernetesVersion != "" && p.meta.KubernetesVersion != v {
			return "", inputf("payload %s is %s, %s is %s: the programs of Kubernetes in a bundle must be one release", pl.Name, v, program, p.meta.KubernetesVersion)
		}
		p.meta.KubernetesVersion, program = v, pl.Name
	}
	return program, nil
}

// nameOfRelease is the default name of a bundle with a program that decides its version.
func nameOfRelease(program string) string {
	switch {
	case program == "":
		return "images"
	case isDistribution(program):
		return program
	}
	return "kubernetes"
}

// layOut computes the sizes of the file's parts.
func (p *plan) layOut() error {
	for _, b := range p.meta.Blobs {
		p.table += bundle.ChunkCount(b.Size, p.meta.ChunkSize) * bundle.HashSize
		p.end += bundle.BlockSize + bundle.PaddedSize(b.Size)
	}
	if p.table > bundle.MaxHeaderSize {
		return inputf("the bundle would have more chunks than its header holds: use a larger chunk size than %d", p.meta.ChunkSize)
	}
	if err := p.meta.Check(); err != nil {
		return inputf("the sources make no valid bundle: %w", err)
	}
	raw, err := bundle.Marshal(&p.meta, make([]byte, p.table))
	if err != nil {
		return err
	}
	if _, err := bundle.HeaderSize(raw); err != nil {
		return inputf("the bundle would list more than its header holds: make two bundles: %w", err)
	}
	p.header = int64(len(raw))
	if p.header > bundle.MaxHeaderSize {
		return inputf("the header would have %d bytes, more than the %d allowed: make two bundles", p.header, bundle.MaxHeaderSize)
	}
	p.end += p.header + bundle.EndSize
	return nil
}
