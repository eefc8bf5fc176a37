package publish

import (
	"maps"
	"slices"
	"strconv"

	"github.com/refit-dev/refit/internal/imagetag"
)

// Labels (or annotations of the manifest) by which an image says what is inside.
const (
	LabelVersion    = "org.opencontainers.image.version"
	LabelBase       = "org.opencontainers.image.base.digest"
	LabelReference  = "org.opensuse.reference"    // a reference by the tag that names the build for good
	LabelDefinition = "dev.refit.definition"      // hash of the image definition
	LabelRev        = "dev.refit.rev"             // revision of the image definition
	LabelRelease    = "dev.refit.package-release" // release of the application's package
)

// Describe fills in what an image's labels say.
func (i *Image) Describe(labels map[string]string) {
	i.Version, i.Base = labels[LabelVersion], labels[LabelBase]
	i.Definition, i.Release = labels[LabelDefinition], labels[LabelRelease]
}

// FromTag fills in missing fields of the event from a candidate's long tag: version, variant,
// revision and build. A floating tag, and one of another scheme, has none. The tag's version is
// not the image's: the plan checks whether they agree.
func (e *Event) FromTag(s imagetag.Scheme, text string) {
	t, err := s.Parse(text)
	if err != nil || t.Tier == imagetag.Floating {
		return
	}
	if e.App == "" {
		e.App = t.App
	}
	if e.Variant == "" {
		e.Variant = t.Variant
	}
	if e.Rev == 0 {
		e.Rev = t.Rev
	}
	if e.Build == "" {
		e.Build = t.BuildText()
	}
}

// FromLabels fills in what the event does not say yet, from the image's labels. A
// reference counts only if it is one into these repositories: images inherit the
// labels of their base.
func (e *Event) FromLabels(s imagetag.Scheme, labels map[string]string, repositories ...string) {
	if rev, err := strconv.ParseUint(labels[LabelRev], 10, 64); err == nil && e.Rev == 0 {
		e.Rev = rev
	}
	if ref, err := imagetag.ParseRef(labels[LabelReference]); err == nil && e.Build == "" && slices.Contains(repositories, ref.Repository) {
		e.FromTag(s, ref.Tag)
	}
}

// Needs returns the digests whose content MakePlan inspects, sorted: the caller reads only
// these from a registry.
func Needs(pub Published, event Event, rules Rules) []string {
	p := &planner{pub: pub, event: event, rules: rules, plan: &Plan{}}
	if !p.sortTags() || !p.checkVersion() || !p.nameLongTag() {
		return nil
	}
	need := map[string]bool{}
	if p.findBefore(); p.before != nil {
		need[p.before.digest] = true
	}
	for _, digest := range pub.Tags {
		if p.pointOf(digest) == nil {
			need[digest] = true
		}
	}
	return slices.Sorted(maps.Keys(need))
}
