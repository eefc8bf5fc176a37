package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sort"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Media types of Docker's older manifests, which registries still serve.
const (
	dockerManifest     = "application/vnd.docker.distribution.manifest.v2+json"
	dockerManifestList = "application/vnd.docker.distribution.manifest.list.v2+json"
	dockerSchema1      = "application/vnd.docker.distribution.manifest.v1"
)

// Kind says what a blob is.
type Kind int

// The kinds of blobs.
const (
	KindManifest Kind = iota // an index or a manifest
	KindConfig
	KindLayer
)

// Node is one blob under an image.
type Node struct {
	Desc ocispec.Descriptor
	Kind Kind
}

// Graph is everything under an image.
type Graph struct {
	// Nodes in the order of the walk, each digest once, the image's own first.
	Nodes []Node
	// Platforms of the images in it, sorted, for example linux/arm64/v8.
	Platforms []string
}

// maxDepth limits the depth of nested indexes, maxNodes the blobs of an image.
const (
	maxDepth = 4
	maxNodes = 1 << 16
)

// Walk lists all blobs under an image. With platforms, an index contributes
// only those (and must have each); the index itself is kept whole, because
// pods may name its digest.
func Walk(ctx context.Context, root Root, platforms []string) (Graph, error) {
	w := &walk{ctx: ctx, store: root.Store, want: platforms, sparse: root.Sparse, seen: map[string]bool{}, visited: map[string]bool{}, have: map[string]bool{}}
	if err := w.visit(root.Desc, 0); err != nil {
		return Graph{}, fmt.Errorf("image %s: %w", root.Name, err)
	}
	for _, p := range platforms {
		if !w.hasPlatform(p) && len(w.have) > 0 {
			return Graph{}, fmt.Errorf("image %s has no platform %s; it has %s", root.Name, p, strings.Join(sorted(w.have), ", "))
		}
	}
	var got []string
	for p := range w.walked {
		got = append(got, p)
	}
	sort.Strings(got)
	return Graph{Nodes: w.nodes, Platforms: got}, nil
}

type walk struct {
	ctx    context.Context
	store  Store
	want   []string
	sparse bool
	nodes  []Node
	seen   map[string]bool
	// visited are the indexes and manifests that were followed: each once, also if it is
	// listed several times.
	visited map[string]bool
	have    map[string]bool // platforms that the image lists
	walked  map[string]bool // platforms that were walked
}

func (w *walk) hasPlatform(p string) bool {
	for t := range w.walked {
		if matchesPlatform(t, p) {
			return true
		}
	}
	return false
}

// matchesPlatform reports whether platform have satisfies want; a want without a variant
// accepts any.
func matchesPlatform(have, want string) bool {
	return have == want || strings.HasPrefix(have, want+"/")
}

func (w *walk) addNode(d ocispec.Descriptor, k Kind) error {
	if err := sha256Only(d.Digest); err != nil {
		return err
	}
	if d.Size < 0 {
		return fmt.Errorf("blob %s has a negative size", d.Digest)
	}
	if w.seen[d.Digest.String()] {
		return nil
	}
	if len(w.nodes) == maxNodes {
		return fmt.Errorf("it has more than %d blobs", maxNodes)
	}
	w.seen[d.Digest.String()] = true
	// only what names the blob: annotations and platform are the parent's
	w.nodes = append(w.nodes, Node{Kind: k, Desc: ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}})
	return nil
}

func (w *walk) visit(d ocispec.Descriptor, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("indexes are nested more than %d deep", maxDepth)
	}
	if w.visited[d.Digest.String()] {
		return nil
	}
	switch {
	case strings.HasPrefix(d.MediaType, dockerSchema1):
		return fmt.Errorf("manifest %s is of the old schema 1, which no runtime loads any more: push the image again with a current tool", d.Digest)
	case d.MediaType == ocispec.MediaTypeImageIndex, d.MediaType == dockerManifestList:
		return w.index(d, depth)
	case d.MediaType == ocispec.MediaTypeImageManifest, d.MediaType == dockerManifest:
		return w.manifest(d)
	}
	return fmt.Errorf("manifest %s has media type %q, which is no image", d.Digest, d.MediaType)
}

func (w *walk) index(d ocispec.Descriptor, depth int) error {
	b, err := Fetch(w.ctx, w.store, d)
	if err != nil {
		return err
	}
	var idx ocispec.Index
	if err := json.Unmarshal(b, &idx); err != nil {
		return fmt.Errorf("index %s: %w", d.Digest, err)
	}
	if err := w.addNode(d, KindManifest); err != nil {
		return err
	}
	there := false
	for _, c := range idx.Manifests {
		if !w.wantsChild(c) {
			continue
		}
		err := w.visit(c, depth+1)
		if w.sparse && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		there = true
	}
	w.visited[d.Digest.String()] = true
	if !there && len(w.want) == 0 {
		return fmt.Errorf("index %s: none of its %d manifests is there", d.Digest, len(idx.Manifests))
	}
	return nil
}

// wantsChild records a child's platform and reports whether to follow the child.
func (w *walk) wantsChild(c ocispec.Descriptor) bool {
	if c.Platform == nil {
		return true
	}
	if c.Platform.OS == "unknown" { // an attestation, not an image
		return len(w.want) == 0
	}
	p := platformString(*c.Platform)
	w.have[p] = true
	return len(w.want) == 0 || slices.ContainsFunc(w.want, func(want string) bool { return matchesPlatform(p, want) })
}

func (w *walk) manifest(d ocispec.Descriptor) error {
	b, err := Fetch(w.ctx, w.store, d)
	if err != nil {
		return err
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return fmt.Errorf("manifest %s: %w", d.Digest, err)
	}
	if m.SchemaVersion != 2 {
		return fmt.Errorf("manifest %s is of the old schema %d, which no runtime loads any more: push the image again with a current tool", d.Digest, m.SchemaVersion)
	}
	config, err := Fetch(w.ctx, w.store, m.Config)
	if err != nil {
		return err
	}
	if err := w.addNode(d, KindManifest); err != nil {
		return err
	}
	w.recordPlatform(config)
	if err := w.addNode(m.Config, KindConfig); err != nil {
		return err
	}
	for _, l := range m.Layers {
		if err := w.addNode(l, KindLayer); err != nil {
			return err
		}
	}
	w.visited[d.Digest.String()] = true
	return nil
}

// configPlatform is the platform in the config of an image. The config of an artifact has none.
func configPlatform(config []byte) (p ocispec.Platform, ok bool) {
	ok = json.Unmarshal(config, &p) == nil && p.OS != "" && p.OS != "unknown" && p.Architecture != ""
	return p, ok
}

// recordPlatform records the platform of an image.
func (w *walk) recordPlatform(config []byte) {
	p, ok := configPlatform(config)
	if !ok {
		return
	}
	if w.walked == nil {
		w.walked = map[string]bool{}
	}
	s := platformString(p)
	w.have[s], w.walked[s] = true, true
}

func platformString(p ocispec.Platform) string {
	s := p.OS + "/" + p.Architecture
	if p.Variant != "" {
		s += "/" + p.Variant
	}
	return s
}

func sorted(set map[string]bool) []string {
	var out []string
	for s := range set {
		out = append(out, s)
	}
	sort.Strings(out)
	return out
}
