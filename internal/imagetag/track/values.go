package track

import (
	"slices"
	"time"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/imagetag"
)

// Class of a change. The words are those of the API.
type Class string

// Classes.
const (
	Security           Class = "SecurityRebuild"
	Rebuild            Class = "Rebuild"
	ImageFix           Class = "ImageFix"
	NewVersion         Class = "NewVersion"
	Unordered          Class = "Unordered"
	Backwards          Class = "Backwards"
	TagVersionMismatch Class = "TagVersionMismatch"
	Adopt              Class = "Adopt"
)

// Decision about a candidate. The words are those of the API.
type Decision string

// Decisions.
const (
	Automatic     Decision = "Automatic"
	Approved      Decision = "Approved"
	Waits         Decision = "Waits"
	NeedsApproval Decision = "NeedsApproval"
	Blocked       Decision = "Blocked"
)

// SecurityLabel on an image, with the value "security", says that it was rebuilt
// for a known security fix.
const SecurityLabel = "dev.refit.severity"

// Image is one image as a track knows it.
type Image struct {
	Digest string
	// Tag that is followed; Long names the build, "" if nobody knows which.
	Tag, Long string
	// App is the version found inside, "" if it says none.
	App string
	// Same are digests under it that a runtime may report instead of it.
	Same []string
	// Security: a label says that it was rebuilt for a known security fix. Vouched: an
	// approved bundle has the image, and so the label. A label alone is nobody's word:
	// whoever can push can write it.
	Security, Vouched bool
	// Size of what a node fetches, in bytes; 0 if nobody said.
	Size int64
	// At is when it was first seen, or taken.
	At time.Time
}

// Is reports whether a digest names this image.
func (i *Image) Is(digest string) bool {
	return i != nil && digest != "" && (i.Digest == digest || slices.Contains(i.Same, digest))
}

// Name for people: the long tag, else the followed one, and the digest's begin.
func (i *Image) Name() string {
	return or(i.Long, i.Tag) + " (" + text.ShortDigest(i.Digest) + ")"
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// Track is what a person said.
type Track struct {
	// Repository, normalised, and its mirrors.
	Repository string
	Mirrors    []string
	Scheme     imagetag.Scheme
	// Tag that is followed, or the Tier whose newest is, of application versions
	// in the range Versions ("" is all).
	Tag      string
	Tier     imagetag.Tier
	Versions string
	// Auto are the classes that move by themselves, from MinAge after they were
	// first seen.
	Auto   map[Class]bool
	MinAge time.Duration
	Freeze bool
	// Critical: a target is needed by its node; only vouched security rebuilds move by
	// themselves.
	Critical  bool
	Approvals []Approval
	// Refused digests, with the reason.
	Refused map[string]string
}

// Approval is a person's word for a digest as it was at a serial.
type Approval struct {
	Digest   string
	Serial   int64
	AnyOrder bool
	// By whom and why, for the records.
	By, Reason string
}

// Look is what was found behind the followed tags.
type Look struct {
	Images []Image
	// Gone are followed tags that are not there.
	Gone []string
}

// Pointer is a followed tag in the State.
type Pointer struct {
	Image
	// Serial of the state when it got this digest.
	Serial int64
	Gone   bool
}

// RolledBack is a digest that somebody left.
type RolledBack struct {
	Digest, To, By string
	Serial         int64
	At             time.Time
}

// State is all that is remembered.
type State struct {
	// Serial counts tags that moved and roll-backs.
	Serial   int64
	Pointers []Pointer
	Approved *Image
	// History of what was approved before, the latest first.
	History    []Image
	RolledBack []RolledBack
	// Taken says how Approved was decided in this look, nil if it was before. It is
	// for the records, and is not remembered.
	Taken *Taken
}

// How much of the past the state keeps: where one can go back to, and what is
// not to come back.
const (
	maxHistory = 10
	maxLeft    = 64
)

// Known finds an image by a digest that names it.
func (s *State) Known(digest string) *Image {
	if s.Approved.Is(digest) {
		return s.Approved
	}
	for i := range s.Pointers {
		if s.Pointers[i].Is(digest) {
			return &s.Pointers[i].Image
		}
	}
	for i := range s.History {
		if s.History[i].Is(digest) {
			return &s.History[i]
		}
	}
	return nil
}

// Candidate is an image that could be taken.
type Candidate struct {
	Image
	Class    Class
	Decision Decision
	Why      string
	// Serial that an approval must have.
	Serial int64
}
