package oci

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Store opens blobs. Its bytes are not verified.
type Store interface {
	// Open streams the blob of a descriptor; the error satisfies
	// errors.Is(err, fs.ErrNotExist) if the store does not have it.
	Open(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error)
	// String is its location, for messages.
	String() string
}

// Verifies reports whether a store compares every blob with its digest while it is read: other
// bytes end in an error instead of io.EOF.
func Verifies(s Store) bool {
	v, ok := s.(interface{ Verifies() bool })
	return ok && v.Verifies()
}

// Root is one image name and the place of the image.
type Root struct {
	// Name as ParseName normalises it; Bare if it is a word that no pod can ask for.
	Name string
	Bare bool
	Desc ocispec.Descriptor
	// Group of the image, "" if the source has none.
	Group string
	// Sparse allows an index to list platforms that the store does not have.
	Sparse bool
	// OnePlatform: it is from an archive as docker save writes it, which has an image for one
	// platform. JoinPlatforms makes one image of several.
	OnePlatform bool
	Store       Store
}

// maxManifest bounds manifests, indexes and configs in bytes.
const maxManifest = 8 << 20

// Fetch reads a small blob and verifies it against its descriptor.
func Fetch(ctx context.Context, s Store, d ocispec.Descriptor) ([]byte, error) {
	if d.Size > maxManifest || d.Size < 0 {
		return nil, fmt.Errorf("%s: blob %s has %d bytes, more than the %d allowed for a manifest", s, d.Digest, d.Size, maxManifest)
	}
	var b []byte
	err := Retry(ctx, s, func() (err error) {
		b, err = readBlob(ctx, s, d)
		return Transient(err)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: blob %s: %w", s, d.Digest, err)
	}
	sum := sha256.Sum256(b)
	if got := "sha256:" + hex.EncodeToString(sum[:]); got != d.Digest.String() || int64(len(b)) != d.Size {
		return nil, fmt.Errorf("%s: blob %s (%d bytes): the source has other bytes, digest %s, at least %d bytes", s, d.Digest, d.Size, got, len(b))
	}
	return b, nil
}

func readBlob(ctx context.Context, s Store, d ocispec.Descriptor) ([]byte, error) {
	r, err := s.Open(ctx, d)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, d.Size+1))
}
