package publish

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/model"
)

// planner holds what is worked out on the way to a plan.
type planner struct {
	pub    Published
	event  Event
	rules  Rules
	scheme imagetag.Scheme
	points []point // of the event's variant
	others []point // of other variants
	cand   point   // the new image under its long tag
	before *point  // the newest point of the same version below cand
	late   bool    // builds of the same version are published, all above cand
	plan   *Plan
}

// point is a tag that names one image for good.
type point struct {
	tag    imagetag.Tag
	digest string
}

// MakePlan plans what is pushed for one new image. It is never an error to ask: what
// cannot be done is refused in the plan.
func MakePlan(pub Published, event Event, rules Rules) Plan {
	p := &planner{pub: pub, event: event, rules: rules, plan: &Plan{
		Repository: pub.Repository, Scheme: pub.Scheme, Image: event.Image.Digest, Case: NoChange,
	}}
	if p.sortTags() && p.checkVersion() && p.nameLongTag() {
		p.classify()
		p.check()
		p.planSteps()
		p.checkRequested()
		p.checkManifests()
		if len(p.plan.Steps) == 0 && p.pub.Tags[p.cand.tag.Text] == p.cand.digest {
			p.plan.Case, p.plan.Changes = NoChange, []string{p.cand.tag.Text + " names this digest already, and no pointer has to move"}
		}
	}
	p.plan.Class = classes[p.plan.Case]
	p.plan.Automatic = !p.plan.Refused() && (p.plan.Case == Rebuild || p.plan.Case == Maintenance || p.plan.Case == NoChange)
	if p.plan.Refused() {
		p.plan.Steps = nil
	}
	return *p.plan
}

func (p *planner) refuse(reason, fix, format string, a ...any) {
	p.plan.Refusals = append(p.plan.Refusals, model.Blocker{Reason: reason, Message: fmt.Sprintf(format, a...), Fix: fix, Object: p.pub.Repository})
}

func (p *planner) warn(format string, a ...any) {
	p.plan.Warnings = append(p.plan.Warnings, fmt.Sprintf(format, a...))
}

// sortTags sorts what is published.
func (p *planner) sortTags() bool {
	var err error
	if p.scheme, err = imagetag.ByName(p.pub.Scheme); err != nil {
		p.refuse(reasonSchemeUnfit, "declare the scheme of the repository's tags with --scheme", "%v", err)
		return false
	}
	if !p.scheme.CanWrite() {
		p.refuse(reasonSchemeUnfit, "publish under rev, dotted, dashed, release, distro-r, single, semver or date", "tags of scheme %s can be read, not written", p.scheme.Name())
		return false
	}
	var unread []string
	for _, text := range slices.Sorted(maps.Keys(p.pub.Tags)) {
		t, err := p.scheme.Parse(text)
		switch {
		case err != nil:
			unread = append(unread, text)
		case t.Point() && t.Variant == p.event.Variant:
			p.points = append(p.points, point{t, p.pub.Tags[text]})
		case t.Point():
			p.others = append(p.others, point{t, p.pub.Tags[text]})
		}
	}
	if len(unread) > 0 {
		p.warn("%d tags are not of scheme %s and are left alone: %s", len(unread), p.scheme.Name(), strings.Join(firstOf(unread, 5), " "))
	}
	return true
}

func firstOf(list []string, n int) []string {
	if len(list) <= n {
		return list
	}
	return append(slices.Clone(list[:n]), "...")
}

// checkVersion settles the version that stands in the tag, and refuses one that is
// not inside the image.
func (p *planner) checkVersion() bool {
	inside := p.event.Image.Version
	if inside == "" {
		p.refuse(reasonVersionUnknown, "label the image with org.opencontainers.image.version, or say --inside VERSION as read from its packages",
			"image %s does not say which version of the application is inside, so its tag cannot be verified", text.ShortDigest(p.event.Image.Digest))
		return false
	}
	encoded, err := imagetag.Encode(inside, p.rules.Mapping)
	if p.event.App == "" {
		if err != nil {
			p.refuse(reasonTagIllegal, "set a mapping for the character, such as --map +=_", "%v", err)
			return false
		}
		p.event.App = encoded
	}
	if app, mapErr := imagetag.Encode(p.event.App, p.rules.Mapping); mapErr != nil {
		p.refuse(reasonTagIllegal, "set a mapping for the character, such as --map +=_", "%v", mapErr)
		return false
	} else if p.event.App = app; covers(app, encoded) {
		return true
	}
	p.refuseMismatch(inside)
	return false
}

// covers says whether a tag's version is that of the image, or the beginning of
// it: 10.2 stands for 10.2.15.
func covers(app, version string) bool {
	app, version = strings.TrimPrefix(app, "v"), strings.TrimPrefix(version, "v")
	return app == version || strings.HasPrefix(version, app+".")
}

// refuseMismatch refuses case 4b, and shows the plan of the new version that it is.
func (p *planner) refuseMismatch(inside string) {
	p.plan.Case = VersionMismatch
	size := "it is a patch release"
	if a, b := imagetag.Aggregates(strings.TrimPrefix(p.event.App, "v")), imagetag.Aggregates(strings.TrimPrefix(inside, "v")); len(a) == 0 || len(b) == 0 || a[0] != b[0] {
		size = "it is more than a patch release, so check the build first"
	}
	p.refuse(reasonTagVersionMismatch, "publish it as the new version that it is (the plan is given), once manifests and tests follow",
		"the tag would say version %s, inside is %s: %s", p.event.App, inside, size)
	other := p.event
	other.App, other.Rev, other.Case, other.Want = "", 0, "", nil
	if instead := MakePlan(p.pub, other, p.rules); !instead.Refused() {
		p.plan.Instead = &instead
	}
}

// nameLongTag works out the long tag.
func (p *planner) nameLongTag() bool {
	t := imagetag.Tag{App: p.event.App, Variant: p.event.Variant}
	if p.scheme.HasRev() {
		if t.Rev = p.event.Rev; t.Rev == 0 {
			t.Rev = p.greatestRev(t.App)
		}
	} else if p.event.Rev > 0 {
		p.warn("scheme %s has no revisions: revision %d of the definition is in no tag", p.scheme.Name(), p.event.Rev)
	}
	if p.scheme.HasBuild() && !p.setBuild(&t) {
		return false
	}
	text, err := p.scheme.Write(t)
	if err == nil {
		t, err = p.scheme.Parse(text)
	}
	if err == nil && !t.Point() {
		err = fmt.Errorf("tag %q names no build under scheme %s: it is %s", text, p.scheme.Name(), t.Tier)
	}
	if err != nil {
		p.refuse(reasonTagIllegal, "change the version or the mapping, or declare another scheme", "%v", err)
		return false
	}
	p.cand = point{t, p.event.Image.Digest}
	return p.reuseLongTag()
}

// reuseLongTag looks whether the digest has a long tag of the same version already,
// other than the one that was asked for. A build that gave the newest bytes again
// needs no second name; one that gave older bytes would be a step back.
func (p *planner) reuseLongTag() bool {
	defer func() { p.plan.Long = p.cand.tag.Text }()
	if p.pub.Tags[p.cand.tag.Text] != "" {
		return true
	}
	known := p.newestPoint(func(o point) bool { return o.digest == p.cand.digest && p.sameApp(o) })
	if known == nil {
		return true
	}
	if top := p.newestPoint(func(o point) bool { return p.sameApp(o) && o.tag.Rev == known.tag.Rev }); top.digest != known.digest {
		p.refuse(reasonReleaseWouldRegress, "a pointer never moves to an older image; to return to what an image had, build it again", "this digest is %s, and %s came after it", known.tag.Text, top.tag.Text)
		return false
	}
	p.cand = *known
	return true
}

// newestPoint of the points for which is holds, nil if there is none.
func (p *planner) newestPoint(is func(point) bool) *point {
	var found *point
	for i, o := range p.points {
		if is(o) && (found == nil || p.newer(o, *found)) {
			found = &p.points[i]
		}
	}
	return found
}

// greatestRev of a version that is published, 1 if none is.
func (p *planner) greatestRev(app string) uint64 {
	rev := uint64(1)
	for _, o := range p.points {
		if o.tag.App == app {
			rev = max(rev, o.tag.Rev)
		}
	}
	return rev
}

// setBuild reads or counts the build number.
func (p *planner) setBuild(t *imagetag.Tag) bool {
	if p.event.Build == "next" {
		t.Build = p.nextBuild(*t)
		return true
	}
	probe, err := imagetag.ByName("release")
	if err == nil && p.event.Build != "" {
		var b imagetag.Tag
		if b, err = probe.Parse("0-" + p.event.Build); err == nil && b.App == "0" && b.Build != nil {
			t.Build = b.Build
			return true
		}
	}
	p.refuse(reasonTagIllegal, "give the number of the build service with --build, or --build next to count here", "build %q is no number, or numbers with dots", p.event.Build)
	return false
}

// nextBuild is one above the greatest build of version and revision.
func (p *planner) nextBuild(t imagetag.Tag) []uint64 {
	var greatest []uint64
	for _, o := range p.points {
		if o.tag.App != t.App || o.tag.Rev != t.Rev {
			continue
		}
		if slices.Compare(o.tag.Build, greatest) > 0 {
			greatest = o.tag.Build
		}
	}
	if len(greatest) == 0 {
		return []uint64{1}
	}
	next := slices.Clone(greatest)
	next[len(next)-1]++
	return next
}

func (p *planner) sameApp(o point) bool { return o.tag.App == p.cand.tag.App }

// newer says whether point a is newer than point b.
func (p *planner) newer(a, b point) bool {
	o, _ := p.scheme.CompareTags(a.tag, b.tag)
	return o == imagetag.Newer
}
