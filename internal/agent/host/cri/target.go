package cri

import (
	"errors"
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

// Part is a piece of an image and its place in the runtime's store.
type Part struct {
	// Digest of the blob that it is, or was unpacked from.
	Digest string
	// File holds the blob itself; else Dir what was unpacked of it, in the
	// overlay format. Base is the lowest layer.
	File, Dir string
	Base      bool
	// Size of File in bytes, 0 if it is not known.
	Size int64
}

// ErrNoImage says that a runtime has no image of that name and digest.
var ErrNoImage = errors.New("the container runtime does not have the image")
