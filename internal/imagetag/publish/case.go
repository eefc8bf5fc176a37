package publish

import (
	"fmt"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/imagetag"
)

// classify derives the case from what changed since the newest image of the same
// version.
func (p *planner) classify() {
	p.findBefore()
	if p.before == nil {
		p.firstOfVersion()
		return
	}
	p.plan.Before = p.before.digest
	was, known := p.pub.Images[p.before.digest]
	if !known {
		p.refuse(reasonFactUnknown, "let the registry answer for that digest, or give its content in --published FILE",
			"the content of %s (%s), which the new image follows, is not known, so what changed is not known either", p.before.tag.Text, text.ShortDigest(p.before.digest))
		return
	}
	if p.cand.tag.Rev > p.before.tag.Rev {
		p.fixed(was)
		return
	}
	p.rebuilt(was)
}

// findBefore finds the newest point of the same version below the new image.
func (p *planner) findBefore() {
	p.before = p.newestPoint(func(o point) bool { return p.sameApp(o) && o.digest != p.cand.digest && p.newer(p.cand, o) })
}

// firstOfVersion: case 1, unless builds of the version are published above it.
func (p *planner) firstOfVersion() {
	if slices.ContainsFunc(p.points, func(o point) bool { return p.sameApp(o) && o.digest != p.cand.digest }) {
		p.plan.Case, p.late = Rebuild, true
		return
	}
	p.plan.Case = NewVersion
	p.plan.Changes = append(p.plan.Changes, "version "+p.cand.tag.App+" is new")
	if p.cand.tag.Rev > 1 {
		p.warn("the first image of version %s has revision %d: revisions begin with 1 for each version", p.cand.tag.App, p.cand.tag.Rev)
	}
	for _, o := range p.points {
		if p.newer(o, p.cand) && sameLine(o.tag.App, p.cand.tag.App) {
			p.warn("version %s is below %s, which is published: no pointer of that line moves", p.cand.tag.App, o.tag.App)
			return
		}
	}
}

// sameLine says whether two versions differ in their last number only.
func sameLine(a, b string) bool {
	x, y := imagetag.Aggregates(a), imagetag.Aggregates(b)
	return len(x) > 0 && len(y) > 0 && x[0] == y[0]
}

// fixed: case 2, the revision was bumped.
func (p *planner) fixed(was Image) {
	p.plan.Case = Fix
	p.plan.Changes = append(p.plan.Changes, fmt.Sprintf("revision %d follows %d", p.cand.tag.Rev, p.before.tag.Rev))
	if p.cand.tag.Rev > p.before.tag.Rev+1 {
		p.warn("revision %d follows %d: revisions between them were never published", p.cand.tag.Rev, p.before.tag.Rev)
	}
	if changed, known, _ := definitionChanged(was, p.event.Image); known && !changed {
		p.warn("the revision was bumped, and the definition is the same: an automatic rebuild would have kept revision %d", p.before.tag.Rev)
	}
	p.backwards(was)
	p.content(was)
}

// rebuilt: version and revision are the same, so only what is below the
// definition may differ.
func (p *planner) rebuilt(was Image) {
	p.plan.Case = Rebuild
	changed, known, what := definitionChanged(was, p.event.Image)
	switch {
	case changed && p.scheme.HasRev():
		p.plan.Case = Fix
		p.refuse(reasonRevNotBumped, fmt.Sprintf("bump the revision in the definition to %d and build again", p.cand.tag.Rev+1),
			"%s differs from that of %s, and the revision is still %d: people who follow %s would get a fix as if it were a rebuild", what, p.before.tag.Text, p.cand.tag.Rev, intermediate(p.scheme, p.cand.tag))
	case changed:
		p.plan.Case = Fix
		p.plan.Changes = append(p.plan.Changes, what+" changed")
	case !known:
		p.warn("the definition of one of the two images is not known, so a fix of it would not be noticed: label images with dev.refit.definition")
	}
	if p.backwards(was); p.plan.Case == Rebuild && p.maintained(was) {
		p.plan.Case = Maintenance
	}
	p.content(was)
}

func intermediate(s imagetag.Scheme, t imagetag.Tag) string {
	if list, err := s.Pointers(t.Text); err == nil && len(list) > 0 {
		return list[0]
	}
	return t.App
}

// definitionChanged compares what a person wrote; where no hash of that is known,
// how a container starts.
func definitionChanged(was, is Image) (changed, known bool, what string) {
	if was.Definition != "" && is.Definition != "" {
		return was.Definition != is.Definition, true, "the image definition"
	}
	if was.Config != "" && is.Config != "" {
		return was.Config != is.Config, was.Config != is.Config, "the way a container starts (entry point, command, user, environment, ports, volumes)"
	}
	return false, false, ""
}

// maintained says whether the application's own package is another one.
func (p *planner) maintained(was Image) bool {
	is := p.event.Image
	changed := false
	if was.Version != "" && was.Version != is.Version {
		p.plan.Changes = append(p.plan.Changes, fmt.Sprintf("the version inside was %s and is %s; the tag says %s, which covers both", was.Version, is.Version, p.cand.tag.App))
		changed = true
	}
	if was.Release != "" && is.Release != "" && was.Release != is.Release {
		p.plan.Changes = append(p.plan.Changes, fmt.Sprintf("the application's package had release %s and has %s", was.Release, is.Release))
		changed = true
	}
	return changed
}

// backwards refuses content that is older than what is published.
func (p *planner) backwards(was Image) {
	is := p.event.Image
	if o, _ := imagetag.CompareApps(is.Version, was.Version); was.Version != "" && o == imagetag.Older {
		p.refuse(reasonReleaseWouldRegress, "build from the newer package; for a deliberate step back publish a new version or revision",
			"inside is version %s, and %s has %s already", is.Version, p.before.tag.Text, was.Version)
		return
	}
	if o, _ := imagetag.CompareApps(is.Release, was.Release); is.Version == was.Version && is.Release != "" && was.Release != "" && o == imagetag.Older && p.plan.Case != Fix {
		p.refuse(reasonReleaseWouldRegress, "build from the newer package; for a deliberate step back publish a new revision",
			"the application's package has release %s, and %s has %s already", is.Release, p.before.tag.Text, was.Release)
	}
}

// content tells what else differs.
func (p *planner) content(was Image) {
	is := p.event.Image
	if was.Base != "" && is.Base != "" && was.Base != is.Base {
		p.plan.Changes = append(p.plan.Changes, fmt.Sprintf("the base image was %s and is %s", text.ShortDigest(was.Base), text.ShortDigest(is.Base)))
	}
	if len(was.Layers) > 0 && len(is.Layers) > 0 {
		same := 0
		for same < min(len(was.Layers), len(is.Layers)) && was.Layers[same] == is.Layers[same] {
			same++
		}
		if same < max(len(was.Layers), len(is.Layers)) {
			p.plan.Changes = append(p.plan.Changes, fmt.Sprintf("layers from number %d on differ; %d are kept", same+1, same))
		}
	}
	if len(p.plan.Changes) == 0 {
		p.plan.Changes = append(p.plan.Changes, "nothing that is known, but the digest: make the build reproducible, and such rebuilds need no new tag")
	}
}

// check refuses what does not depend on the case.
func (p *planner) check() {
	p.checkLong()
	p.checkPlatforms()
	if p.event.Case != "" && p.event.Case != p.plan.Case && !p.late {
		p.refuse(reasonCaseDiffers, "find out what else changed, or do not say a case",
			"it was declared as case %s, but its content is case %s (%s): %s", p.event.Case, p.plan.Case, classes[p.plan.Case], strings.Join(p.plan.Changes, "; "))
	}
	if p.rules.Gate && !slices.Contains(p.rules.Approved, p.cand.digest) {
		p.refuse(reasonImageUnapproved, "let the tests run against this digest, then give it with --approved", "publishing waits for an approval, and digest %s has none; approvals of other digests do not count", text.ShortDigest(p.cand.digest))
	}
	if p.event.Build != "next" && p.event.Project != "" && p.pub.Project != "" && p.event.Project != p.pub.Project {
		p.refuse(reasonBuildNotGreater, "promote it with a number counted here: --build next", "build %s was counted in project %s, those published in %s: there is no order between them", p.event.Build, p.event.Project, p.pub.Project)
	}
}

// checkLong: a point is made once, above all of its kind.
func (p *planner) checkLong() {
	tag := p.cand.tag.Text
	if d := p.pub.Tags[tag]; d != "" {
		if d != p.cand.digest {
			fix := "build again under a new number; --build next counts one here"
			if !p.scheme.HasBuild() {
				fix = "scheme " + p.scheme.Name() + " has no build numbers, so a rebuild has no name: publish a new version, or use scheme rev or release"
			}
			p.refuse(reasonTagTaken, fix, "%s names %s, and what names one build is never moved", tag, text.ShortDigest(d))
		}
		return
	}
	for _, o := range p.points {
		if !p.sameApp(o) || o.tag.Rev != p.cand.tag.Rev {
			continue
		}
		if order, why := p.scheme.CompareTags(p.cand.tag, o.tag); order != imagetag.Newer {
			p.refuse(reasonBuildNotGreater, "build again, or count here with --build next", "%s is published, and %s would not be above it: %s", o.tag.Text, tag, why)
			return
		}
	}
}

func (p *planner) checkPlatforms() {
	if p.before == nil || p.rules.FewerPlatforms {
		return
	}
	var lost []string
	for _, had := range p.pub.Images[p.before.digest].Platforms {
		if !slices.Contains(p.event.Image.Platforms, had) {
			lost = append(lost, had)
		}
	}
	if len(lost) > 0 {
		p.refuse(reasonPlatformsLost, "build for all platforms, or allow it with --fewer-platforms", "%s is there for %s, and the new image is not", p.before.tag.Text, strings.Join(lost, ", "))
	}
}
