package cri

import (
	"io"
	"strings"
)

// Target is an image to bring into a runtime.
type Target struct {
	// Name with tag, normalised.
	Name string
	// Digest, MediaType and Size of its manifest or index.
	Digest    string
	MediaType string
	Size      int64
	// Here: it is not fetched from a registry by us, only named and pinned when
	// others have fetched it.
	Here bool
}

// Repository is the name without its tag.
func (t Target) Repository() string {
	if i := strings.LastIndexByte(t.Name, ':'); i > strings.LastIndexByte(t.Name, '/') {
		return t.Name[:i]
	}
	return t.Name
}

// ByDigest is the name with the digest instead of the tag.
func (t Target) ByDigest() string { return t.Repository() + "@" + t.Digest }

// Blobs is where an image's blobs come from.
type Blobs interface {
	// Open a complete blob; an error if it is not there.
	Open(digest string) (io.ReadCloser, error)
}
