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
// for a known security fix. Its other values are Recommended and Disruptive.
const SecurityLabel = "dev.refit.severity"

// Severities that an image can declare in its label SecurityLabel. Disruptive takes rights away,
// so that it needs no signature; Recommended gives none.
const (
	Recommended = "recommended"
	Disruptive  = "disruptive"
)

// SeverityOf is the severity that labels declare; "" for none, for a security fix, and for a value
// that is not known.
func SeverityOf(labels map[string]string) string {
	if s := labels[SecurityLabel]; s == Recommended || s == Disruptive {
		return s
	}
	return ""
}

// Image is one image as a track knows it.
type Image struct {
	Digest string
	// Tag that is followed; Long names the build, "" if it is unknown.
	Tag, Long string
	// App is the version inside the image, "" if it declares none.
	App string
	// Same are digests below it that a runtime may report instead of it.
	Same []string
	// Security: a label declares a rebuild for a known security fix. Vouched: an approved
	// bundle has the image, and so the label, or it is signed as a rule says. A label alone proves nothing, because every
	// publisher can write it.
	Security, Vouched bool
	// Severity that a label declares: Recommended, Disruptive or "".
	Severity string
	// Fixes and ManifestsChange are of its release record, whose signature is not verified.
	Fixes           []string
	ManifestsChange bool
	// Size of a node's download, in bytes; 0 if unknown.
	Size int64
	// At is when it was first seen, or selected.
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
	// SkipVersions allows a change over minor versions that the repository has in between.
	SkipVersions bool
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

// Observation is what was found behind the followed tags.
type Observation struct {
	Images []Image
	// Gone are followed tags that are not there.
	Gone []string
	// Minors are the minor versions that the repository has: see MinorVersions.
	Minors []string
}

// Pointer is a followed tag in the State.
type Pointer struct {
	Image
	// Serial of the state when it got this digest.
	Serial int64
	Gone   bool
}

// RolledBack is a digest from which a user rolled back.
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
	// Minors are the minor versions that the repository has, in ascending order.
	Minors   []string
	Approved *Image
	// History of what was approved before, the latest first.
	History    []Image
	RolledBack []RolledBack
	// Selection says how Approved was decided in this look, nil if it was before. It is
	// for the records, and is not remembered.
	Selection *Selection
}

// Limits of the state: images to roll back to, and digests that must not return.
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
	// Skips are minor versions between what runs and the image.
	Skips []string
	// Serial that an approval must have.
	Serial int64
}
