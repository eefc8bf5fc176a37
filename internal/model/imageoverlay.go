package model

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
)

// NoRegistry is the host in the names of images that were never pushed anywhere. The
// domain is reserved and has no server, so no registry is asked for such a name.
const NoRegistry = "refit.invalid"

// ImageOverlay is the data of a Content of type "osimage": what an image has that its base
// has not. With the base's layers it is the whole image.
type ImageOverlay struct {
	// Digest and MediaType of the image, an index or a manifest.
	Digest    string `json:"digest"`
	MediaType string `json:"mediaType"`
	// Base is the digest of the image that it was made of.
	Base string `json:"base"`
	// Blobs are manifests, configurations and the layer.
	Blobs []OverlayBlob `json:"blobs"`
}

// OverlayBlob is one blob, compressed.
type OverlayBlob struct {
	Digest string `json:"digest"`
	// Size in bytes of the blob itself.
	Size int64  `json:"size"`
	Gzip []byte `json:"gzip"`
}

// MaxOverlayBlob is the most bytes that a blob of a ImageOverlay has.
const MaxOverlayBlob = 64 << 20

// AddBlob puts a blob into the image.
func (m *ImageOverlay) AddBlob(data []byte) error {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = z.Write(data)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		return fmt.Errorf("blob of an image: %w", err)
	}
	m.Blobs = append(m.Blobs, OverlayBlob{Digest: DigestOf(data), Size: int64(len(data)), Gzip: b.Bytes()})
	return nil
}

// Decompress reads the blob, and compares it with its digest.
func (b OverlayBlob) Decompress() ([]byte, error) {
	if b.Size < 0 || b.Size > MaxOverlayBlob {
		return nil, fmt.Errorf("blob %s declares %d bytes, at most %d are allowed", b.Digest, b.Size, MaxOverlayBlob)
	}
	z, err := gzip.NewReader(bytes.NewReader(b.Gzip))
	if err != nil {
		return nil, fmt.Errorf("blob %s: %w", b.Digest, err)
	}
	data, err := io.ReadAll(io.LimitReader(z, b.Size+1))
	if err != nil {
		return nil, fmt.Errorf("blob %s: %w", b.Digest, err)
	}
	if got := DigestOf(data); got != b.Digest || int64(len(data)) != b.Size {
		return nil, fmt.Errorf("blob %.19s has other bytes (%.19s)", b.Digest, got)
	}
	return data, nil
}

// ParseImageOverlay reads the data of such a Content. The blobs are compared when they are
// opened.
func ParseImageOverlay(data string) (*ImageOverlay, error) {
	m := &ImageOverlay{}
	if err := json.Unmarshal([]byte(data), m); err != nil {
		return nil, fmt.Errorf("parts of an OS image: %w", err)
	}
	return m, nil
}

// HasBlob reports whether a blob is one of the image's own.
func (m *ImageOverlay) HasBlob(digest string) bool {
	for _, b := range m.Blobs {
		if b.Digest == digest {
			return true
		}
	}
	return false
}
