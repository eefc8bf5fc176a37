package bundlewriter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/imageproof"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/text"
)

// RefusedError lists the images that a policy refuses.
type RefusedError struct{ Refusals []imageproof.Refusal }

// Error has a line for each image, with what to do.
func (e *RefusedError) Error() string {
	lines := []string{"the policy refuses " + text.Count(len(e.Refusals), "image") + ":"}
	for _, r := range e.Refusals {
		lines = append(lines, "  "+text.CleanLine(r.String()))
	}
	return strings.Join(lines, "\n")
}

// foundProof is an artifact of an image, and where its documents are.
type foundProof struct {
	entry imageproof.Entry
	raw   []byte
	store oci.Store
}

// proofs gathers what is attached to the images of a bundle.
type proofs struct {
	images    []imageproof.Image
	found     []foundProof
	seen      map[string]bool
	manifests map[string][]byte
	stores    map[string]oci.Store // of documents, by digest
	warn      func(string)
}

func (p *proofs) add(f foundProof) {
	m, err := imageproof.ParseManifest(f.raw)
	key := strings.Join([]string{f.entry.Image, f.entry.Subject, f.entry.Tag, f.entry.Manifest.Digest}, " ")
	switch {
	case err != nil:
		p.warn(fmt.Sprintf("image %s: artifact %s of %s is left out: %s", f.entry.Image, f.entry.Manifest.Digest, f.store, err))
		return
	case p.seen[key]:
		return
	}
	p.seen[key] = true
	f.entry.Manifest.ArtifactType = m.ArtifactType
	p.found = append(p.found, f)
	p.manifests[f.entry.Manifest.Digest] = f.raw
	for _, d := range m.Blobs() {
		if p.stores[d.Digest] == nil {
			p.stores[d.Digest] = f.store
		}
	}
}

// collectProofs makes the payload of the images' proofs and applies the policy. It returns nil
// if none is asked for and no source has one.
func collectProofs(ctx context.Context, in *inputs, roots []oci.Root, graphs []oci.Graph, o *Options) (*payloadRoot, error) {
	if !o.Proofs && o.Policy == nil && len(in.proofs) == 0 {
		return nil, nil
	}
	p := &proofs{seen: map[string]bool{}, manifests: map[string][]byte{}, stores: map[string]oci.Store{}, warn: o.Warn}
	for i, r := range roots {
		img, err := proofImage(ctx, r, graphs[i])
		if err != nil {
			return nil, err
		}
		p.images = append(p.images, img)
	}
	if err := p.find(ctx, in, o); err != nil {
		return nil, fmt.Errorf("find signatures of images: %w", err)
	}
	if len(p.found) > imageproof.MaxEntries {
		return nil, inputf("the images have %d signatures and documents, at most %d are carried: make two bundles", len(p.found), imageproof.MaxEntries)
	}
	f, entries, err := p.verified(ctx, in, o)
	if err != nil || len(entries) == 0 {
		return nil, err
	}
	return proofPayload(f)
}

// proofImage lists the digests of an image to which proofs may be attached.
func proofImage(ctx context.Context, r oci.Root, g oci.Graph) (imageproof.Image, error) {
	img := imageproof.Image{Name: r.Name, Repository: oci.Repository(r.Name), Digest: r.Desc.Digest.String()}
	raw, err := oci.Fetch(ctx, r.Store, r.Desc)
	if err != nil {
		return img, err
	}
	for _, d := range imageproof.PlatformManifests(raw) {
		if slices.ContainsFunc(g.Nodes, func(n oci.Node) bool { return n.Desc.Digest.String() == d }) {
			img.Platforms = append(img.Platforms, d)
		}
	}
	return img, nil
}

// find asks every source of the images.
func (p *proofs) find(ctx context.Context, in *inputs, o *Options) error {
	for _, c := range in.proofs {
		if err := p.findCarried(ctx, in, c, o.scratch); err != nil {
			return err
		}
	}
	if !o.Proofs && o.Policy == nil {
		return nil
	}
	for _, dir := range in.layouts {
		if err := p.findInLayout(ctx, dir); err != nil {
			return err
		}
	}
	return p.findInRegistries(ctx, in.images)
}

// verified writes the archive, reads it back, applies the policy, and writes it again with
// the signers. The archive is a file without a name: memory stays small, and a kill leaves nothing.
func (p *proofs) verified(ctx context.Context, in *inputs, o *Options) (*os.File, []imageproof.Entry, error) {
	entries := make([]imageproof.Entry, 0, len(p.found))
	for _, f := range p.found {
		entries = append(entries, f.entry)
	}
	f, err := p.write(ctx, in, o, entries)
	if err != nil {
		return nil, nil, err
	}
	if entries, err = imageproof.ReadArchive(f, nil); err != nil {
		return nil, nil, err
	}
	if o.Policy == nil {
		return f, entries, nil
	}
	if refused := o.Policy.Check(p.images, entries, cmp.Or(o.Now, time.Now())); len(refused) > 0 {
		return nil, nil, &RefusedError{refused}
	}
	f, err = p.write(ctx, in, o, entries)
	return f, entries, err
}

func (p *proofs) write(ctx context.Context, in *inputs, o *Options, entries []imageproof.Entry) (*os.File, error) {
	f, err := in.spool(o.scratch)
	if err != nil {
		return nil, err
	}
	err = imageproof.WriteArchive(f, entries, p.manifests, func(d imageproof.Descriptor) (io.ReadCloser, error) {
		s := p.stores[d.Digest]
		if s == nil {
			return nil, errors.New("no source has it")
		}
		return s.Open(ctx, ocispec.Descriptor{MediaType: d.MediaType, Digest: digest.Digest(d.Digest), Size: d.Size})
	})
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, fmt.Errorf("write the image proofs to %s: %w", o.scratch, err)
	}
	return f, nil
}

// spool makes a file without a name in a directory. It is closed with the sources.
func (in *inputs) spool(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, ".image-proofs.*")
	if err != nil {
		return nil, inputf("write the image proofs: %w", err)
	}
	in.closers = append(in.closers, f)
	return f, os.Remove(f.Name())
}

// proofPayload is the archive as a payload.
func proofPayload(f *os.File) (*payloadRoot, error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	s := openFileStore{f, size}
	pl := &payloadRoot{name: imageproof.PayloadName, mode: 0o644, size: size, store: s, explicit: true}
	r, _ := s.Open(context.Background(), ocispec.Descriptor{})
	pl.digest, err = digestOfReader(r)
	return pl, err
}

func digestOfReader(r io.Reader) (string, error) {
	h := digest.SHA256.Digester()
	_, err := io.Copy(h.Hash(), r)
	return h.Digest().String(), err
}

// openFileStore is a payload in a file without a name.
type openFileStore struct {
	f    *os.File
	size int64
}

func (s openFileStore) String() string { return "image proofs" }

func (s openFileStore) Open(context.Context, ocispec.Descriptor) (io.ReadCloser, error) {
	return io.NopCloser(io.NewSectionReader(s.f, 0, s.size)), nil
}

// addProofs puts the payload in its place among the sorted payloads.
func addProofs(payloads []payloadRoot, p *payloadRoot) []payloadRoot {
	if p == nil {
		return payloads
	}
	at, _ := slices.BinarySearchFunc(payloads, p.name, func(a payloadRoot, name string) int { return strings.Compare(a.name, name) })
	return slices.Insert(payloads, at, *p)
}

// splitProofs separates the archives of proofs that other bundles bring: all become one.
func splitProofs(all []payloadRoot) (rest, carried []payloadRoot) {
	for _, p := range all {
		if p.name == imageproof.PayloadName {
			carried = append(carried, p)
		} else {
			rest = append(rest, p)
		}
	}
	return rest, carried
}
