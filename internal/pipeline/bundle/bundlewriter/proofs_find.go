package bundlewriter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/imageproof"
	"github.com/refit-dev/refit/internal/oci"
)

const (
	// maxAnswer bounds the manifests and lists of referrers that a registry sends, in bytes.
	maxAnswer = 8 << 20
	// maxReferrers bounds the artifacts of one digest.
	maxReferrers = 256
)

// spooledStore has documents of another bundle's archive in a file without a name.
type spooledStore struct {
	from string
	f    *os.File
	at   map[string]int64
}

func (s *spooledStore) String() string { return s.from }

func (s *spooledStore) Open(_ context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	at, ok := s.at[d.Digest.String()]
	if !ok {
		return nil, fmt.Errorf("%s has no blob %s", s.from, d.Digest)
	}
	return io.NopCloser(io.NewSectionReader(s.f, at, d.Size)), nil
}

// findCarried takes the proofs of another bundle for images that are in this one.
func (p *proofs) findCarried(ctx context.Context, in *inputs, c payloadRoot, scratch string) error {
	r, err := c.store.Open(ctx, ocispec.Descriptor{Digest: digest.Digest(c.digest), Size: c.size})
	if err != nil {
		return err
	}
	defer r.Close()
	s := &spooledStore{from: c.store.String(), at: map[string]int64{}}
	if s.f, err = in.spool(scratch); err != nil {
		return err
	}
	raws, end := map[string][]byte{}, int64(0)
	entries, err := imageproof.ReadArchive(r, func(b imageproof.Blob) error {
		if b.Manifest != nil {
			raws[b.Digest] = b.Manifest
			return nil
		}
		s.at[b.Digest] = end
		n, err := io.Copy(s.f, b.Content)
		end += n
		return err
	})
	if err != nil {
		return asInput(fmt.Errorf("%s: %w", c.store, err))
	}
	for _, e := range imageproof.Select(entries, p.images) {
		p.add(foundProof{entry: e, raw: raws[e.Manifest.Digest], store: s})
	}
	return nil
}

// findInLayout finds artifacts in the index of an OCI image layout: by their subject, or by a
// tag of cosign.
func (p *proofs) findInLayout(ctx context.Context, dir string) error {
	raw, err := fsutil.ReadSmall(filepath.Join(dir, ocispec.ImageIndexFile), maxAnswer)
	if err != nil {
		return asInput(err)
	}
	var idx ocispec.Index
	if err := json.Unmarshal(raw, &idx); err != nil {
		return inputf("%s: index.json: %w", dir, err)
	}
	store := layoutStore(dir)
	for _, d := range idx.Manifests {
		if d.MediaType != ocispec.MediaTypeImageManifest {
			continue
		}
		raw, err := oci.Fetch(ctx, store, d)
		if err != nil {
			return asInput(err)
		}
		tag := d.Annotations[ocispec.AnnotationRefName]
		if i := strings.LastIndexByte(tag, ':'); i >= 0 {
			tag = tag[i+1:]
		}
		p.addFrom(store, d, raw, tag)
	}
	return nil
}

// addFrom adds an artifact to every image with its subject.
func (p *proofs) addFrom(store oci.Store, d ocispec.Descriptor, raw []byte, tag string) {
	m, err := imageproof.ParseManifest(raw)
	if err != nil {
		return // an image of more than an artifact may have
	}
	for _, img := range p.images {
		for _, subject := range append([]string{img.Digest}, img.Platforms...) {
			byTag := slices.Contains(imageproof.Tags(subject), tag)
			if !byTag && (m.Subject == nil || m.Subject.Digest != subject) {
				continue
			}
			e := imageproof.Entry{Image: img.Name, Subject: subject, Manifest: manifestOf(d)}
			if byTag {
				e.Tag = tag
			}
			p.add(foundProof{entry: e, raw: raw, store: store})
		}
	}
}

func manifestOf(d ocispec.Descriptor) imageproof.Descriptor {
	return imageproof.Descriptor{MediaType: d.MediaType, Digest: d.Digest.String(), Size: d.Size}
}

// layoutStore is a layout in a directory.
type layoutStore string

func (s layoutStore) String() string { return string(s) }

func (s layoutStore) Open(_ context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	if !imageproof.ValidDigest(d.Digest.String()) {
		return nil, fmt.Errorf("digest %.80q: only sha256 is supported", d.Digest)
	}
	return os.Open(filepath.Join(string(s), ocispec.ImageBlobsDir, "sha256", d.Digest.Encoded()))
}

// limited bounds the answers of registries that the client reads into memory.
type limited struct{ http.RoundTripper }

func (l limited) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(req)
	if err == nil && (strings.Contains(req.URL.Path, "/referrers/") || strings.Contains(req.URL.Path, "/manifests/")) {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	}
	return resp, err
}

// registryProofs finds artifacts in registries.
type registryProofs struct {
	*proofs
	mu     sync.Mutex
	puller *remote.Puller
}

// findInRegistries asks the registry of each image: the referrers API or its fallback tag, and
// the tags of cosign.
func (p *proofs) findInRegistries(ctx context.Context, roots []oci.Root) error {
	puller, err := remote.NewPuller(remote.WithAuthFromKeychain(oci.DefaultKeychain), remote.WithUserAgent("refit"), remote.WithTransport(limited{remote.DefaultTransport}))
	if err != nil {
		return fmt.Errorf("registry client: %w", err)
	}
	q := &registryProofs{proofs: p, puller: puller}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelLookups)
	for _, img := range p.images {
		for _, r := range roots {
			if r.Name == img.Name && oci.IsRemote(r.Store) {
				g.Go(func() error { return q.image(ctx, img, r) })
			}
		}
	}
	return g.Wait()
}

func (q *registryProofs) image(ctx context.Context, img imageproof.Image, r oci.Root) error {
	repo, err := name.NewRepository(r.Store.String())
	if err != nil {
		return err
	}
	for _, subject := range append([]string{img.Digest}, img.Platforms...) {
		err := oci.Retry(ctx, r.Store, func() error { return oci.Transient(q.referrers(ctx, img.Name, subject, repo, r.Store)) })
		if err != nil {
			return fmt.Errorf("image %s: referrers of %s: %w", img.Name, subject, err)
		}
		for _, tag := range imageproof.Tags(subject) {
			e := imageproof.Entry{Image: img.Name, Subject: subject, Tag: tag}
			err := oci.Retry(ctx, r.Store, func() error { return oci.Transient(q.get(ctx, e, repo.Tag(tag), r.Store)) })
			if err != nil && !isNotFound(err) {
				return fmt.Errorf("image %s: tag %s: %w", img.Name, tag, err)
			}
		}
	}
	return nil
}

func isNotFound(err error) bool {
	var answer *transport.Error
	return errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound
}

func (q *registryProofs) referrers(ctx context.Context, image, subject string, repo name.Repository, store oci.Store) error {
	idx, err := remote.Referrers(repo.Digest(subject), remote.WithContext(ctx), remote.Reuse(q.puller))
	if err != nil {
		return err
	}
	m, err := idx.IndexManifest()
	if err != nil {
		return err
	}
	if len(m.Manifests) > maxReferrers {
		return asInput(fmt.Errorf("the registry lists %d artifacts, at most %d are read", len(m.Manifests), maxReferrers))
	}
	for _, d := range m.Manifests {
		if d.MediaType != ocispec.MediaTypeImageManifest {
			continue
		}
		e := imageproof.Entry{Image: image, Subject: subject}
		if err := q.get(ctx, e, repo.Digest(d.Digest.String()), store); err != nil {
			return err
		}
	}
	return nil
}

// get reads a manifest, which the client compares with its digest.
func (q *registryProofs) get(ctx context.Context, e imageproof.Entry, ref name.Reference, store oci.Store) error {
	d, err := q.puller.Get(ctx, ref)
	if err != nil {
		return err
	}
	e.Manifest = imageproof.Descriptor{MediaType: string(d.MediaType), Digest: d.Digest.String(), Size: int64(len(d.Manifest))}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(foundProof{entry: e, raw: d.Manifest, store: store})
	return nil
}
