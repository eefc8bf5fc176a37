package model

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
)

// NoRegistry is the host in the names of images that were never pushed anywhere. The
// domain is reserved: nobody can answer for it, so such a name is asked of nobody.
const NoRegistry = "refit.invalid"

// MadeImage is the data of a Content of type "osimage": what an image has that its base
// has not. With the base's layers it is the whole image.
type MadeImage struct {
	// Digest and MediaType of the image, an index or a manifest.
	Digest    string `json:"digest"`
	MediaType string `json:"mediaType"`
	// Base is the digest of the image that it was made of.
	Base string `json:"base"`
	// Blobs are manifests, configurations and the layer.
	Blobs []MadeBlob `json:"blobs"`
}

// MadeBlob is one blob, compressed.
type MadeBlob struct {
	Digest string `json:"digest"`
	// Size in bytes of the blob itself.
	Size int64  `json:"size"`
	Gzip []byte `json:"gzip"`
}

// MaxMadeBlob is the most bytes that a blob of a MadeImage has.
const MaxMadeBlob = 64 << 20

// Add puts a blob into the image.
func (m *MadeImage) Add(data []byte) error {
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
	m.Blobs = append(m.Blobs, MadeBlob{Digest: DigestOf(data), Size: int64(len(data)), Gzip: b.Bytes()})
	return nil
}

// Open reads the blob, and compares it with its digest.
func (b MadeBlob) Open() ([]byte, error) {
	if b.Size < 0 || b.Size > MaxMadeBlob {
		return nil, fmt.Errorf("blob %s is said to have %d bytes, and at most %d are taken", b.Digest, b.Size, MaxMadeBlob)
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

// OpenMadeImage reads the data of such a Content. The blobs are compared when they are
// opened.
func OpenMadeImage(data string) (*MadeImage, error) {
	m := &MadeImage{}
	if err := json.Unmarshal([]byte(data), m); err != nil {
		return nil, fmt.Errorf("parts of an OS image: %w", err)
	}
	return m, nil
}

// Has reports whether a blob is one of the image's own.
func (m *MadeImage) Has(digest string) bool {
	for _, b := range m.Blobs {
		if b.Digest == digest {
			return true
		}
	}
	return false
}
