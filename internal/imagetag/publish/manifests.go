package publish

import (
	"fmt"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/imagetag"
)

// Reference is an image reference in a manifest.
type Reference struct {
	Image string `json:"image"`
	// Where it is, as FILE:LINE.
	Where string `json:"where,omitempty"`
}

// checkManifests refuses a new version, and a fixed definition, while a manifest names an image
// before it: both have a new intermediate tag, and the old one stays. A rebuild moves the tags
// that manifests name already.
func (p *planner) checkManifests() {
	if p.rules.Manifests == nil || p.plan.Case != NewVersion && p.plan.Case != Fix {
		return
	}
	tag := p.manifestTag()
	fix := "change the manifests to " + p.pub.Repository + ":" + tag + ", and publish them after the image"
	found := 0
	var behind []string
	for _, r := range p.rules.Manifests {
		ref, err := imagetag.ParseRef(r.Image)
		if err != nil || ref.Repository != p.pub.Repository || !p.isVariant(ref.Tag) {
			continue
		}
		found++
		if !p.namesCandidate(ref) {
			behind = append(behind, strings.TrimPrefix(fmt.Sprintf("%s: %s", r.Where, r.Image), ": "))
		}
	}
	switch {
	case found == 0:
		p.refuse(reasonManifestOutdated, fix, "no manifest names an image of %s", p.pub.Repository)
	case len(behind) > 0:
		p.refuse(reasonManifestOutdated, fix, "the image gets the new tag %s, and %d of %d references in the manifests do not name it: %s", tag, len(behind), found, strings.Join(firstOf(behind, 5), ", "))
	}
}

// manifestTag is the tag for manifests: the intermediate one, or the long one where the scheme has
// none.
func (p *planner) manifestTag() string {
	for _, s := range p.plan.Steps {
		if t, err := p.scheme.Parse(s.Tag); err == nil && t.Tier == imagetag.Intermediate {
			return s.Tag
		}
	}
	return p.plan.Long
}

// isVariant reports whether a tag may be of the image's variant. One that cannot be read may be.
func (p *planner) isVariant(tag string) bool {
	t, err := p.scheme.Parse(tag)
	return err != nil || t.Tier == imagetag.Floating || t.Variant == p.event.Variant
}

// namesCandidate reports whether a reference names the new image once the plan is done.
func (p *planner) namesCandidate(ref imagetag.Ref) bool {
	if ref.Digest != "" {
		return ref.Digest == p.cand.digest
	}
	return p.pub.Tags[ref.Tag] == p.cand.digest || slices.ContainsFunc(p.plan.Steps, func(s Step) bool { return s.Tag == ref.Tag && s.To == p.cand.digest })
}
