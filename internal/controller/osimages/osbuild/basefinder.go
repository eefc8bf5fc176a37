package osbuild

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// Bundles are read from the nodes that have them; brought.Reader does.
type Bundles interface {
	// Header of a bundle; an error while it is not known.
	Header(ctx context.Context, digest string) (*bundle.Header, error)
	// Blob of it by its number.
	Blob(ctx context.Context, h *bundle.Header, blob int) ([]byte, error)
	// Stream reads one of any size. Its bytes are not verified.
	Stream(ctx context.Context, h *bundle.Header, blob int) io.ReadCloser
}

// Finder looks into bundles.
type Finder struct {
	Client  client.Reader
	Bundles Bundles
}

// Base is an image of a bundle.
type Base struct {
	// Bundle that has it, by digest.
	Bundle string
	// Root of the image; its store has what the bundle has of it.
	Root oci.Root

	files *files
}

// BlobUnavailable says that no node has sent a blob. It passes: nodes are still copying, or are
// away.
type BlobUnavailable struct{ error }

// Unwrap is what the nodes said.
func (e BlobUnavailable) Unwrap() error { return e.error }

// Find finds the base repository@sha256:... in the preferred bundle, else in the first bundle
// that is wanted. If no bundle has it, why is the reason with its fix.
func (f *Finder) Find(ctx context.Context, ref, prefer string) (found *Base, why string, err error) {
	repository, dgst, _ := strings.Cut(ref, "@")
	all, err := f.served(ctx, prefer)
	if err != nil {
		return nil, "", err
	}
	var pending, others []string
	for _, d := range all {
		h, err := f.Bundles.Header(ctx, d)
		if err != nil {
			pending = append(pending, fmt.Sprintf("%.19s (%v)", d, err))
			continue
		}
		if img := h.ImageByDigest(dgst); img != nil {
			return openBase(f.Bundles, h, img, ref), "", nil
		}
		for _, img := range h.Metadata.Images {
			if oci.Repository(img.Name) == repository {
				others = append(others, fmt.Sprintf("bundle %s has %s@%s", h.Metadata.Name, img.Name, img.Digest))
			}
		}
	}
	return nil, missingBaseMessage(ref, pending, others), nil
}

func missingBaseMessage(ref string, pending, others []string) string {
	if len(pending) > 0 {
		return fmt.Sprintf("base %s is looked for in bundles whose catalogue is being read from the nodes: %s", ref, strings.Join(pending, ", "))
	}
	why := fmt.Sprintf("base %s is not held by any node yet: insert a bundle that has it, and approve it", ref)
	if len(others) > 0 {
		slices.Sort(others)
		why += "; or name in spec.base.image what is there: " + strings.Join(slices.Compact(others), ", ")
	}
	return why
}

// served are the bundles that agents serve: the preferred one, then the approved ones,
// the one that is wanted first before all others.
func (f *Finder) served(ctx context.Context, prefer string) (out []string, err error) {
	var updates v1alpha1.NodeUpdateList
	if err := f.Client.List(ctx, &updates, client.InNamespace(v1alpha1.NodesNamespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("bundles that nodes have: %w", err)
	}
	served := map[string]bool{}
	for i := range updates.Items {
		for _, d := range updates.Items[i].Status.Bundles {
			served[d] = true
		}
	}
	add := func(d string) {
		if served[d] && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	add(prefer)
	for i := range updates.Items {
		for _, b := range updates.Items[i].Spec.Bundles {
			add(b.Digest)
		}
	}
	for _, d := range slices.Sorted(maps.Keys(served)) {
		add(d)
	}
	return out, nil
}

func openBase(from Bundles, h *bundle.Header, img *bundle.Image, ref string) *Base {
	s := &files{from: from, header: h, blobs: map[string]int{}}
	for _, b := range img.Blobs {
		s.blobs[h.Metadata.Blobs[b].Digest] = b
	}
	top := h.Metadata.Blobs[s.blobs[img.Digest]]
	return &Base{Bundle: h.Digest, files: s,
		Root: oci.Root{Name: ref, Sparse: true, Store: s, Desc: ocispec.Descriptor{MediaType: img.MediaType, Digest: digest.Digest(top.Digest), Size: top.Size}}}
}

// Whole is the image with its layers, which nodes send as a stream.
func (b *Base) Whole() oci.Root {
	r := b.Root
	r.Store = streamedFiles{b.files, nil}
	return r
}

// Assembled is the image that nodes assemble from the base and these parts.
func (b *Base) Assembled(parts *model.ImageOverlay) oci.Root {
	r := b.Whole()
	r.Desc = ocispec.Descriptor{MediaType: parts.MediaType, Digest: digest.Digest(parts.Digest)}
	for _, p := range parts.Blobs {
		if p.Digest == parts.Digest {
			r.Desc.Size = p.Size
		}
	}
	r.Store = streamedFiles{b.files, parts}
	return r
}

// streamedFiles are all blobs of an image: of a bundle, and those that were added to it.
type streamedFiles struct {
	*files
	parts *model.ImageOverlay
}

// Unverified: nodes may send other bytes.
func (streamedFiles) Unverified() bool { return true }

func (s streamedFiles) Open(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	if s.parts != nil {
		for _, p := range s.parts.Blobs {
			if p.Digest == d.Digest.String() {
				data, err := p.Decompress()
				return io.NopCloser(bytes.NewReader(data)), err
			}
		}
	}
	n, ok := s.blobs[d.Digest.String()]
	if !ok {
		return nil, fmt.Errorf("the bundle has no blob %s of this image: %w", d.Digest, fs.ErrNotExist)
	}
	return s.from.Stream(ctx, s.header, n), nil
}

// Has reports whether the bundle has a blob of the base.
func (b *Base) Has(d ocispec.Descriptor) bool {
	n, ok := b.files.blobs[d.Digest.String()]
	return ok && b.files.header.Metadata.Blobs[n].Size == d.Size
}

// Platforms of an index that the bundle has; none for an image of one platform.
func (b *Base) Platforms(ctx context.Context) (out []string, err error) {
	raw, err := oci.Fetch(ctx, b.Root.Store, b.Root.Desc)
	if err != nil {
		return nil, err
	}
	var idx ocispec.Index
	if err := json.Unmarshal(raw, &idx); err != nil {
		return nil, fmt.Errorf("base %s: %w", b.Root.Name, err)
	}
	for _, d := range idx.Manifests {
		if d.Platform == nil || d.Platform.OS == "unknown" || !b.Has(d) {
			continue
		}
		p := d.Platform.OS + "/" + d.Platform.Architecture
		if d.Platform.Variant != "" {
			p += "/" + d.Platform.Variant
		}
		out = append(out, p)
	}
	if len(idx.Manifests) > 0 && len(out) == 0 {
		return nil, fmt.Errorf("base %s is an index, and the bundle has none of its platforms", b.Root.Name)
	}
	return out, nil
}

// files are the blobs of one image of a bundle.
type files struct {
	from   Bundles
	header *bundle.Header
	blobs  map[string]int // by digest
}

func (s *files) String() string { return "bundle " + s.header.Metadata.Name }

// Open reads a small blob from a node; what it is is compared by who reads on.
func (s *files) Open(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	n, ok := s.blobs[d.Digest.String()]
	if !ok || s.header.Metadata.Blobs[n].Size > model.MaxOverlayBlob {
		return nil, fmt.Errorf("the bundle has no small blob %s of this image: %w", d.Digest, fs.ErrNotExist)
	}
	data, err := s.from.Blob(ctx, s.header, n)
	if err != nil {
		return nil, BlobUnavailable{err}
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// IsTransient reports whether an error of a build is one of nodes that have not sent a blob.
func IsTransient(err error) bool {
	var n BlobUnavailable
	return errors.As(err, &n)
}
