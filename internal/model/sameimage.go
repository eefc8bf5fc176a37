package model

import (
	"slices"
	"strings"
)

// ImageIdentity has the digests under which a runtime or kubelet reports an image: of its
// index or manifest, of its configuration, or both. An imageID may be any of them: an
// index digest on one node, a manifest's on the next, a configuration's for an imported
// image. So identities are compared, never matched as text.
type ImageIdentity struct {
	Digests []string
	// ID is the digest of the configuration.
	ID string
	// Runtime and Arch that reported it; two reports of one kind are of one form.
	Runtime, Arch string
}

// IdentityOf reads an imageID: repository@digest, a bare digest (which is that of
// a configuration), or empty.
func IdentityOf(imageID, runtime, arch string) ImageIdentity {
	id := ImageIdentity{Runtime: runtime, Arch: arch}
	if i := strings.Index(imageID, "://"); i >= 0 {
		imageID = imageID[i+3:]
	}
	if _, digest, ok := strings.Cut(imageID, "@"); ok {
		id.Digests = []string{digest}
		return id
	}
	if strings.HasPrefix(imageID, "sha256:") {
		id.ID = imageID
	} else if len(imageID) == 64 && strings.Trim(imageID, "0123456789abcdef") == "" {
		id.ID = "sha256:" + imageID
	}
	return id
}

// Empty reports that nothing is known.
func (i ImageIdentity) Empty() bool { return len(i.Digests) == 0 && i.ID == "" }

// Digest to show: the first, else the configuration's.
func (i ImageIdentity) Digest() string {
	if len(i.Digests) > 0 {
		return i.Digests[0]
	}
	return i.ID
}

func (i ImageIdentity) allDigests() []string {
	if i.ID == "" {
		return i.Digests
	}
	return append(slices.Clone(i.Digests), i.ID)
}

// Likeness of two images.
type Likeness int

// Likenesses.
const (
	Unproven Likeness = iota // their digests differ, but may be of one image
	Alike                    // one image
	Different
)

// SameImages knows which digests are of one image: an index, its manifests and
// their configurations. The zero value knows nothing.
type SameImages struct{ parent map[string]string }

// Join says that digests are of one image.
func (s *SameImages) Join(digests ...string) {
	first := ""
	for _, d := range digests {
		switch {
		case d == "":
		case first == "":
			first = s.root(d)
		default:
			if r := s.root(d); r != first {
				if s.parent == nil {
					s.parent = map[string]string{}
				}
				s.parent[r] = first
			}
		}
	}
}

func (s *SameImages) root(d string) string {
	if s == nil {
		return d
	}
	for {
		p, ok := s.parent[d]
		if !ok {
			return d
		}
		d = p
	}
}

// Root is the same text for all digests of one image.
func (s *SameImages) Root(d string) string { return s.root(d) }

// Compare two images. It returns Different only where it is proven: two configurations
// that differ, or two digests of one kind.
func (s *SameImages) Compare(a, b ImageIdentity) Likeness {
	if a.Empty() || b.Empty() {
		return Unproven
	}
	if s.shareDigest(a, b) {
		return Alike
	}
	switch {
	case a.ID != "" && b.ID != "":
		return Different
	case len(a.Digests) > 0 && len(b.Digests) > 0 && a.sameForm(b):
		return Different
	}
	return Unproven
}

// shareDigest: one of their digests is of one image.
func (s *SameImages) shareDigest(a, b ImageIdentity) bool {
	for _, x := range a.allDigests() {
		for _, y := range b.allDigests() {
			if s.root(x) == s.root(y) {
				return true
			}
		}
	}
	return false
}

// sameForm: both were reported in one form.
func (i ImageIdentity) sameForm(other ImageIdentity) bool {
	return i.Runtime != "" && i.Runtime == other.Runtime && i.Arch == other.Arch
}
