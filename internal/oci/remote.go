package oci

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Registries opens images in registries, with the credentials of the usual
// files (~/.docker/config.json or $DOCKER_CONFIG, ${XDG_RUNTIME_DIR}/containers/auth.json).
type Registries struct{ puller *remote.Puller }

// NewRegistries prepares access; nothing is connected yet.
func NewRegistries() (*Registries, error) {
	p, err := remote.NewPuller(remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithUserAgent("refit"))
	if err != nil {
		return nil, fmt.Errorf("registry client: %w", err)
	}
	return &Registries{p}, nil
}

// NewRegistriesWith is NewRegistries with other credentials and another transport
// (nil: the usual one).
func NewRegistriesWith(keys authn.Keychain, over http.RoundTripper) (*Registries, error) {
	options := []remote.Option{remote.WithAuthFromKeychain(keys), remote.WithUserAgent("refit")}
	if over != nil {
		options = append(options, remote.WithTransport(over))
	}
	p, err := remote.NewPuller(options...)
	if err != nil {
		return nil, fmt.Errorf("registry client: %w", err)
	}
	return &Registries{p}, nil
}

// Open resolves a reference to its digest now; the image is fetched by that
// digest, so a tag that moves meanwhile does no harm. A reference with both
// must have the tag's name and the digest's bytes.
func (r *Registries) Open(ctx context.Context, ref string) (Root, error) {
	imageName, dgst, err := ParseName(ref)
	if err != nil {
		return Root{}, err
	}
	repo, err := name.NewRepository(Repository(imageName))
	if err != nil {
		return Root{}, fmt.Errorf("image reference %q: %w", ref, err)
	}
	var target name.Reference = repo.Tag(Tag(imageName))
	if dgst != "" {
		target = repo.Digest(dgst)
	}
	d, err := r.puller.Get(ctx, target)
	if err != nil {
		return Root{}, fmt.Errorf("image %s: %w", ref, err)
	}
	return Root{Name: imageName, Store: &remoteStore{r.puller, repo},
		Desc: ocispec.Descriptor{MediaType: string(d.MediaType), Digest: digest.Digest(d.Digest.String()), Size: d.Size}}, nil
}

// remoteStore is one repository of a registry.
type remoteStore struct {
	puller *remote.Puller
	repo   name.Repository
}

func (s *remoteStore) String() string { return s.repo.Name() }

// Remote tells that a failed read may be tried again.
func (s *remoteStore) Remote() bool { return true }

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

// IsRemote reports whether a store is a registry, whose failures may pass.
func IsRemote(s Store) bool {
	r, ok := s.(interface{ Remote() bool })
	return ok && r.Remote()
}
