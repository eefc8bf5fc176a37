package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/host/osimage"
	"github.com/refit-dev/refit/internal/host/osimage/flatten"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/oci"
)

// copies are the blobs that bundles brought, where the agent keeps them: a folder with
// complete ones, named by their digests.
type copies string

func (c copies) String() string { return string(c) }

// Open implements oci.Store.
func (c copies) Open(_ context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	if err := d.Digest.Validate(); err != nil || d.Digest.Algorithm() != digest.SHA256 {
		return nil, fmt.Errorf("digest %q is none: %w", d.Digest, fs.ErrNotExist)
	}
	return os.Open(filepath.Join(string(c), d.Digest.Encoded()))
}

// root of an image, by its digest.
func (c copies) root(image, dgst string) (oci.Root, error) {
	d := ocispec.Descriptor{Digest: digest.NewDigestFromEncoded(digest.SHA256, dgst), MediaType: ocispec.MediaTypeImageManifest}
	raw, err := os.ReadFile(filepath.Join(string(c), d.Digest.Encoded()))
	if err != nil {
		return oci.Root{}, err
	}
	var said struct {
		MediaType string          `json:"mediaType"`
		Manifests json.RawMessage `json:"manifests"`
	}
	if err := json.Unmarshal(raw, &said); err != nil {
		return oci.Root{}, fmt.Errorf("%s: %w", d.Digest, err)
	}
	switch {
	case said.MediaType != "":
		d.MediaType = said.MediaType
	case said.Manifests != nil:
		d.MediaType = ocispec.MediaTypeImageIndex
	}
	d.Size = int64(len(raw))
	return oci.Root{Name: image, Desc: d, Sparse: true, Store: c}, nil
}

// copied is the image of the node's own copy, for a runtime that gives none back. Every
// blob is compared on its way. ErrNotExist if it is not here wholly.
func (h osHost) copied(ctx context.Context, image, dgst string) (s osimage.Source, same []string, err error) {
	root, err := h.copies.root(image, dgst)
	if err != nil {
		return s, nil, err
	}
	dir, err := h.room(dgst)
	if err != nil {
		return s, nil, err
	}
	manifest, err := flatten.Save(ctx, root, platform(), dir)
	if err != nil {
		return s, nil, err
	}
	return osimage.Source{Transport: osimage.Layout, Location: dir}, []string{manifest}, nil
}

// errNotYet: nobody else can be asked for an image that was made on the site.
var errNotYet = errors.New("it was made on the site, and is not wholly on this node yet: this node lacks its base or its own parts")

func madeHere(image string) bool { return strings.HasPrefix(image, model.NoRegistry+"/") }
