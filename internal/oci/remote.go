package oci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/outbound"
)

// Registries opens images in registries, with the credentials of the usual
// files (~/.docker/config.json or $DOCKER_CONFIG, ${XDG_RUNTIME_DIR}/containers/auth.json).
type Registries struct {
	puller *remote.Puller
	// mirrors are the places from which images may be read; nil reads each from its own.
	mirrors *MirrorConfig
}

// NewRegistries prepares access; nothing is connected yet.
func NewRegistries() (*Registries, error) {
	return NewRegistriesWith(DefaultKeychain, nil)
}

// NewRegistriesWith is NewRegistries with other credentials and another transport (nil: the
// usual one).
func NewRegistriesWith(keys authn.Keychain, over http.RoundTripper) (*Registries, error) {
	if over == nil {
		over = remote.DefaultTransport
	}
	p, err := remote.NewPuller(remote.WithAuthFromKeychain(keys), remote.WithUserAgent("refit"), remote.WithTransport(outbound.KeepLogins(over)))
	if err != nil {
		return nil, fmt.Errorf("registry client: %w", err)
	}
	return &Registries{puller: p}, nil
}

// WithMirrors is the same, with the mirrors of a registries.conf; nil means no mirrors.
func (r *Registries) WithMirrors(c *MirrorConfig) *Registries { return &Registries{r.puller, c} }

// Open resolves a reference to its digest now. The image is fetched by that digest, so a tag
// that moves meanwhile does no harm. A reference with both must have the tag's name and the
// digest's bytes. The image keeps the requested name, also if a mirror serves it.
func (r *Registries) Open(ctx context.Context, ref string) (Root, error) {
	imageName, dgst, err := ParseName(ref)
	if err != nil {
		return Root{}, err
	}
	places, err := r.mirrors.Places(Repository(imageName), dgst != "")
	if err != nil {
		return Root{}, fmt.Errorf("image %s: %w", ref, err)
	}
	var failed error
	for _, p := range places {
		root, err := r.open(ctx, p, Tag(imageName), dgst)
		if err == nil {
			root.Name = imageName
			return root, nil
		}
		failed = joinErrors(failed, fmt.Errorf("image %s at %s: %w", ref, p.Repository, err))
	}
	return Root{}, failed
}

// joinErrors joins the errors of several places. A transient one comes first, since the
// image may be there.
func joinErrors(before, now error) error {
	var p transientError
	switch {
	case before == nil:
		return now
	case errors.As(Transient(before), &p) && !errors.As(Transient(now), &p):
		return fmt.Errorf("%w; %s", before, now.Error())
	}
	return fmt.Errorf("%w; before that: %s", now, before.Error())
}

func (r *Registries) open(ctx context.Context, at MirrorPlace, tag, dgst string) (Root, error) {
	var options []name.Option
	if at.Insecure {
		options = append(options, name.Insecure)
	}
	repo, err := name.NewRepository(at.Repository, options...)
	if err != nil {
		return Root{}, err
	}
	var target name.Reference = repo.Tag(tag)
	if dgst != "" {
		target = repo.Digest(dgst)
	}
	d, err := r.puller.Get(ctx, target)
	if err != nil {
		return Root{}, err
	}
	return Root{Store: &remoteStore{r.puller, repo}, Desc: ocispec.Descriptor{MediaType: string(d.MediaType), Digest: digest.Digest(d.Digest.String()), Size: d.Size}}, nil
}

// remoteStore is one repository of a registry.
type remoteStore struct {
	puller *remote.Puller
	repo   name.Repository
}

func (s *remoteStore) String() string { return s.repo.Name() }

// Remote reports that a failed read may be retried.
func (s *remoteStore) Remote() bool { return true }

// Verifies: the registry client compares blobs with the digest that it asked for.
func (s *remoteStore) Verifies() bool { return true }

func (s *remoteStore) Open(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	ref := s.repo.Digest(d.Digest.String())
	if isManifest(d.MediaType) {
		m, err := s.puller.Get(ctx, ref)
		if err != nil {
			return nil, err
		}
		return io.NopCloser(bytes.NewReader(m.Manifest)), nil
	}
	l, err := s.puller.Layer(ctx, ref)
	if err != nil {
		return nil, err
	}
	return l.Compressed()
}

func isManifest(mediaType string) bool {
	switch mediaType {
	case ocispec.MediaTypeImageIndex, ocispec.MediaTypeImageManifest, dockerManifest, dockerManifestList:
		return true
	}
	return strings.HasPrefix(mediaType, dockerSchema1)
}

// IsRemote reports whether a store is a registry, whose failures may be transient.
func IsRemote(s Store) bool {
	r, ok := s.(interface{ Remote() bool })
	return ok && r.Remote()
}
