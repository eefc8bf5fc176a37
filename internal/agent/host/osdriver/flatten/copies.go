package flatten

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/oci"
)

// BlobDir is the folder. It is a store of blobs.
type BlobDir string

func (d BlobDir) String() string { return string(d) }

// Open implements oci.Store.
func (d BlobDir) Open(_ context.Context, blob ocispec.Descriptor) (io.ReadCloser, error) {
	if err := blob.Digest.Validate(); err != nil || blob.Digest.Algorithm() != digest.SHA256 {
		return nil, fmt.Errorf("%q is no digest: %w", blob.Digest, fs.ErrNotExist)
	}
	return os.Open(filepath.Join(string(d), blob.Digest.Encoded()))
}

// Root of the image whose index or manifest has a digest, in hex.
func (d BlobDir) Root(image, hex string) (oci.Root, error) {
	desc := ocispec.Descriptor{Digest: digest.NewDigestFromEncoded(digest.SHA256, hex), MediaType: ocispec.MediaTypeImageManifest}
	blob, err := d.Open(context.Background(), desc)
	if err != nil {
		return oci.Root{}, err
	}
	defer blob.Close()
	raw, err := io.ReadAll(io.LimitReader(blob, maxManifest))
	if err != nil {
		return oci.Root{}, fmt.Errorf("%s: %w", desc.Digest, err)
	}
	var said struct {
		MediaType string          `json:"mediaType"`
		Manifests json.RawMessage `json:"manifests"`
	}
	if err := json.Unmarshal(raw, &said); err != nil {
		return oci.Root{}, fmt.Errorf("%s: %w", desc.Digest, err)
	}
	switch {
	case said.MediaType != "":
		desc.MediaType = said.MediaType
	case said.Manifests != nil:
		desc.MediaType = ocispec.MediaTypeImageIndex
	}
	desc.Size = int64(len(raw))
	return oci.Root{Name: image, Desc: desc, Sparse: true, Store: d}, nil
}

// maxManifest bytes of an index or a manifest are read.
const maxManifest = 4 << 20
