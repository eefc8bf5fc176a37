package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/outbound"
)

// Writer pushes images to registries, checks that they exist, and deletes them. Its
// errors are Failures: absent, unauthorized, unreachable.
type Writer struct {
	options []remote.Option
}

// NewWriter prepares access with credentials (nil: those of the usual files), over a
// transport (nil: the default one); it does not connect yet.
func NewWriter(keys *Keys, over http.RoundTripper) *Writer {
	chain := oci.DefaultKeychain
	if keys != nil {
		chain = keys
	}
	if over == nil {
		over = remote.DefaultTransport
	}
	return &Writer{options: []remote.Option{remote.WithAuthFromKeychain(chain), remote.WithUserAgent("refit"), remote.WithJobs(1), remote.WithTransport(outbound.KeepLogins(over))}}
}

// Resolve returns the credentials of a registry; the client library calls it.
func (k *Keys) Resolve(r authn.Resource) (authn.Authenticator, error) {
	return k.authenticatorFor(r.String()), nil
}

// Blob is content to upload.
type Blob struct {
	MediaType, Digest string
	Data              []byte
}

// Mount is a layer that a registry may have already.
type Mount struct {
	MediaType, Digest string
	Size              int64
	// From is the repository that has it, empty if no registry has.
	From string
	// Open reads it if the registry cannot mount it.
	Open func(context.Context) (io.ReadCloser, error)
}

// Upload is an image in the order in which it is written: an object comes before those that
// name it.
type Upload struct {
	Repository string
	Mounts     []Mount
	Blobs      []Blob
	// Manifests, the image's own last.
	Manifests []Blob
	// Tag for people, empty for none.
	Tag string
	// Sent is called with the size of each mount that the registry has. May be nil.
	Sent func(size int64)
}

// Push uploads an image and returns how many bytes of mounts had to be copied: none if the
// repositories are of one registry.
func (w *Writer) Push(ctx context.Context, u Upload) (copied int64, err error) {
	at := Place{Repository: u.Repository}
	repo, err := name.NewRepository(u.Repository)
	if err != nil {
		return 0, fmt.Errorf("repository %q: %w", u.Repository, err)
	}
	p, err := remote.NewPusher(w.options...)
	if err != nil {
		return 0, fmt.Errorf("registry client: %w", err)
	}
	var read atomic.Int64
	for _, m := range u.Mounts {
		if err := w.mount(ctx, p, repo, m, &read); err != nil {
			return read.Load(), at.classify(err)
		}
		if u.Sent != nil {
			u.Sent(m.Size)
		}
	}
	for _, b := range u.Blobs {
		if err := p.Upload(ctx, repo, layer{desc: b.desc(), open: openBytes(b.Data)}); err != nil {
			return read.Load(), at.classify(err)
		}
	}
	if err := u.manifests(ctx, p, repo); err != nil {
		return read.Load(), at.classify(err)
	}
	return read.Load(), nil
}

// manifests writes the manifests by their digests, and the last one under the tag too.
func (u Upload) manifests(ctx context.Context, p *remote.Pusher, repo name.Repository) error {
	for _, m := range u.Manifests {
		if err := p.Put(ctx, repo.Digest(m.Digest), putable{m}); err != nil {
			return err
		}
	}
	if u.Tag == "" || len(u.Manifests) == 0 {
		return nil
	}
	return p.Put(ctx, repo.Tag(u.Tag), putable{u.Manifests[len(u.Manifests)-1]})
}

// mount makes the registry take a layer from another of its repositories, one at a time:
// mounts in parallel cause a data race in the library.
func (w *Writer) mount(ctx context.Context, p *remote.Pusher, repo name.Repository, m Mount, read *atomic.Int64) error {
	hash, err := v1.NewHash(m.Digest)
	if err != nil {
		return err
	}
	l := layer{desc: v1.Descriptor{MediaType: types.MediaType(m.MediaType), Digest: hash, Size: m.Size}, open: func() (io.ReadCloser, error) {
		r, err := m.Open(ctx)
		if err == nil {
			read.Add(m.Size)
		}
		return r, err
	}}
	if m.From == "" {
		return p.Upload(ctx, repo, l)
	}
	from, err := name.NewRepository(m.From)
	if err != nil {
		return fmt.Errorf("repository %q: %w", m.From, err)
	}
	return p.Upload(ctx, repo, &remote.MountableLayer{Layer: l, Reference: from.Digest(m.Digest)})
}

// Has reports whether a repository has a manifest. An error means unknown: the access is
// forbidden, or the registry is unreachable.
func (w *Writer) Has(ctx context.Context, repository, digest string) (bool, error) {
	ref, err := name.NewDigest(repository + "@" + digest)
	if err != nil {
		return false, fmt.Errorf("image %s@%s: %w", repository, digest, err)
	}
	_, err = remote.Head(ref, append(w.options, remote.WithContext(ctx))...)
	if isNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, Place{Repository: repository}.classify(err)
	}
	return true, nil
}

// Delete deletes a manifest, and with it its tags. A missing one is no error. A registry
// that does not allow deletes is Unauthorized.
func (w *Writer) Delete(ctx context.Context, repository, digest string) error {
	ref, err := name.NewDigest(repository + "@" + digest)
	if err != nil {
		return fmt.Errorf("image %s@%s: %w", repository, digest, err)
	}
	err = remote.Delete(ref, append(w.options, remote.WithContext(ctx))...)
	var said *transport.Error
	switch {
	case err == nil, isNotFound(err):
		return nil
	case errors.As(err, &said) && said.StatusCode == http.StatusMethodNotAllowed:
		return Place{Repository: repository}.failure(Unauthorized, errors.New("it does not allow deletes"))
	}
	return Place{Repository: repository}.classify(err)
}

func openBytes(data []byte) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
}

func (b Blob) desc() v1.Descriptor {
	hash, _ := v1.NewHash(b.Digest)
	return v1.Descriptor{MediaType: types.MediaType(b.MediaType), Digest: hash, Size: int64(len(b.Data))}
}

// putable is a manifest in the form for the library.
type putable struct{ blob Blob }

func (m putable) RawManifest() ([]byte, error)        { return m.blob.Data, nil }
func (m putable) MediaType() (types.MediaType, error) { return types.MediaType(m.blob.MediaType), nil }

// layer is a blob with its descriptor; it computes nothing.
type layer struct {
	desc v1.Descriptor
	open func() (io.ReadCloser, error)
}

func (l layer) Digest() (v1.Hash, error)             { return l.desc.Digest, nil }
func (l layer) DiffID() (v1.Hash, error)             { return l.desc.Digest, nil }
func (l layer) Size() (int64, error)                 { return l.desc.Size, nil }
func (l layer) MediaType() (types.MediaType, error)  { return l.desc.MediaType, nil }
func (l layer) Compressed() (io.ReadCloser, error)   { return l.open() }
func (l layer) Uncompressed() (io.ReadCloser, error) { return l.open() }
