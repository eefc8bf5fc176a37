package publish

import (
	"time"

	"github.com/refit-dev/refit/internal/model"
)

// Image is what is known of an image's content. Unknown parts are empty, and
// nothing is concluded from them.
type Image struct {
	// Digest of the index, or of the manifest if there is one platform.
	Digest string `json:"digest"`
	// Version of the application, found inside and in its true form: 1.2.3+4, not 1.2.3_4.
	Version string `json:"version,omitempty"`
	// Release of the package that the application comes from.
	Release string `json:"release,omitempty"`
	// Definition is a hash of what a person wrote to have the image built.
	Definition string `json:"definition,omitempty"`
	// Config is a hash of how a container of it starts (entry point, user,
	// environment, ports ...). It stands in for an unknown Definition.
	Config string `json:"config,omitempty"`
	// Base is the digest of the base image.
	Base string `json:"base,omitempty"`
	// Layers of the first platform by digest, the base's first.
	Layers []string `json:"layers,omitempty"`
	// Platforms as os/arch.
	Platforms []string `json:"platforms,omitempty"`
	// Children are the manifests of an index.
	Children []string `json:"children,omitempty"`
	// Created is only used to tell how long a build has been replaced, never for order.
	Created time.Time `json:"created,omitzero"`
}

// Published is what a repository holds.
type Published struct {
	Repository string `json:"repository"`
	// Scheme of its tags, by name (internal/imagetag).
	Scheme string `json:"scheme"`
	// Project that counts its builds; "" if there is only one.
	Project string            `json:"project,omitempty"`
	Tags    map[string]string `json:"tags"`             // tag to digest
	Images  map[string]Image  `json:"images,omitempty"` // digest to content
}

// Event is a new image and what its publisher says of it.
type Event struct {
	Image Image `json:"image"`
	// App is the version as it is to stand in the tag; empty: Image.Version.
	App string `json:"app,omitempty"`
	// Variant of the image, one of those that the scheme declares.
	Variant string `json:"variant,omitempty"`
	// Rev of the image definition; 0: as published, 1 for a new version.
	Rev uint64 `json:"rev,omitempty"`
	// Build number, or "next": one above the greatest, given when it is published.
	Build string `json:"build,omitempty"`
	// Project that counted Build; empty: the repository's.
	Project string `json:"project,omitempty"`
	// Case that the publisher takes it for; empty: not said.
	Case Case `json:"case,omitempty"`
	// Floating tags that follow, additional to latest if the repository has it.
	Floating []string `json:"floating,omitempty"`
	// Want are tags that the publisher requests: the plan must have each of them.
	Want []string `json:"want,omitempty"`
	// From is the repository with the image, if it is another one: the image is promoted
	// from there by digest, not built again.
	From string `json:"from,omitempty"`
}

// Rules are settings of a publisher.
type Rules struct {
	// Gate lets only Approved digests be published.
	Gate     bool     `json:"gate,omitempty"`
	Approved []string `json:"approved,omitempty"`
	// FewerPlatforms lets the set of platforms shrink.
	FewerPlatforms bool `json:"fewerPlatforms,omitempty"`
	// Adopt lets pointers move away from images that have no long tag.
	Adopt bool `json:"adopt,omitempty"`
	// Mapping of characters that a version has and no tag may have.
	Mapping map[string]string `json:"mapping,omitempty"`
	// Manifests are the image references of the manifests that are published with the
	// image; nil if they are not checked.
	Manifests []Reference `json:"manifests,omitempty"`
}

// Case of an update.
type Case string

// Cases: which tags are new, which move, and who decides.
const (
	NewVersion      Case = "1"  // all tags are new
	Fix             Case = "2"  // short moves; intermediate and long are new
	Rebuild         Case = "3"  // short and intermediate move; long is new
	Maintenance     Case = "4a" // as a rebuild: the application's package was updated, its version was not
	VersionMismatch Case = "4b" // the version inside is not the tag's: refused
	NoChange        Case = "none"
)

// classes name the cases for people and for policies.
var classes = map[Case]string{
	NewVersion: "new-version", Fix: "fix", Rebuild: "rebuild", Maintenance: "maintenance", VersionMismatch: "tag-mismatch", NoChange: "none",
}

// Verbs of a step.
const (
	Copy   = "copy"   // the image, with what refers to it, by digest
	Create = "create" // a tag that does not exist
	Move   = "move"   // a pointer
)

// Step of a plan. Steps are done in order, points before pointers, so that one
// that breaks off leaves no pointer without its point.
type Step struct {
	Verb string `json:"verb"`
	Tag  string `json:"tag,omitempty"` // empty for copy
	// From is the digest that the tag must have now, or for copy the repository.
	// A tag with another digest was moved by another publisher: stop, and plan again.
	From string `json:"from,omitempty"`
	To   string `json:"to"` // digest
	Why  string `json:"why"`
}

// Left is a tag that stays where it is, though one might expect it to move.
type Left struct {
	Tag    string `json:"tag"`
	Digest string `json:"digest,omitempty"` // empty: it does not exist and is not made
	Why    string `json:"why"`
}

// Plan of what is pushed for one image.
type Plan struct {
	Repository string `json:"repository"`
	Scheme     string `json:"scheme"`
	Image      string `json:"image"` // digest
	Case       Case   `json:"case"`
	Class      string `json:"class"`
	// Automatic is true if no person has to decide: nothing but a dependency changed.
	Automatic bool `json:"automatic"`
	// Long is the tag that names this image for good.
	Long    string   `json:"long,omitempty"`
	Changes []string `json:"changes,omitempty"` // what differs from the image before
	Steps   []Step   `json:"steps"`
	MustNot []Left   `json:"mustNot,omitempty"`
	// Before is the digest that the new image follows, ReachableBy the tags that
	// still name it afterwards.
	Before      string          `json:"before,omitempty"`
	ReachableBy []string        `json:"reachableBy,omitempty"`
	Refusals    []model.Blocker `json:"refusals,omitempty"`
	Warnings    []string        `json:"warnings,omitempty"`
	// Instead is the plan that would be right, where that is known.
	Instead *Plan `json:"instead,omitempty"`
}

// Refused says whether nothing may be pushed.
func (p Plan) Refused() bool { return len(p.Refusals) > 0 }

// Reason words of refusals (api/v1alpha1, Reason...).
const (
	reasonTagVersionMismatch  = "TagVersionMismatch"
	reasonTagTaken            = "TagTaken"
	reasonTagIllegal          = "TagIllegal"
	reasonTagNotPlanned       = "TagNotPlanned"
	reasonSchemeUnfit         = "SchemeUnfit"
	reasonRevNotBumped        = "RevNotBumped"
	reasonBuildNotGreater     = "BuildNotGreater"
	reasonPlatformsLost       = "PlatformsLost"
	reasonTagWouldRegress     = "TagWouldRegress"
	reasonPointerUnknown      = "PointerUnknown"
	reasonCaseDiffers         = "CaseDiffers"
	reasonVersionUnknown      = "VersionUnknown"
	reasonImageUnapproved     = "ImageUnapproved"
	reasonReleaseWouldRegress = "ReleaseWouldRegress"
	reasonFactUnknown         = "FactUnknown"
	reasonManifestOutdated    = "ManifestOutdated"
)
