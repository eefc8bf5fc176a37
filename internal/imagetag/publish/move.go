package publish

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/imagetag"
)

// pointer is a tag that may move, and the points that it stands for.
type pointer struct {
	text   string
	what   string // for people
	has    func(point) bool
	needed bool // short and intermediate: a plan without them is refused
}

// planSteps makes the steps: the image, its point, then the pointers, the finest first.
func (p *planner) planSteps() {
	if p.pub.Tags[p.cand.tag.Text] == "" {
		if p.event.From != "" && p.event.From != p.pub.Repository {
			p.addStep(Copy, "", p.event.From, "promoted by digest, with what refers to it; not built again")
		}
		p.addStep(Create, p.cand.tag.Text, "", "names this build for good")
	}
	for _, ptr := range p.pointers() {
		p.placePointer(ptr)
	}
	if p.plan.Before != "" {
		p.plan.ReachableBy = p.reachable(p.plan.Before)
	}
	for _, s := range p.plan.Steps {
		if s.Verb == Move && len(p.reachable(s.From)) == 0 {
			p.warn("no tag names %s once %s has moved, so the registry may delete it: give it its long tag first", text.ShortDigest(s.From), s.Tag)
		}
	}
}

func (p *planner) addStep(verb, text, from, why string) {
	p.plan.Steps = append(p.plan.Steps, Step{Verb: verb, Tag: text, From: from, To: p.cand.digest, Why: why})
}

func (p *planner) leaveTag(text, why string) {
	p.plan.MustNot = append(p.plan.MustNot, Left{Tag: text, Digest: p.pub.Tags[text], Why: why})
}

// pointers that the new image could take, the finest first.
func (p *planner) pointers() []pointer {
	c := p.cand.tag
	var out []pointer
	own, err := p.scheme.Pointers(c.Text)
	if err != nil {
		p.refuse(reasonSchemeUnfit, "declare another scheme", "%v", err)
	}
	for _, text := range own {
		t, _ := p.scheme.Parse(text) // Pointers has read it
		out = append(out, pointer{text: text, needed: true, what: fmt.Sprintf("the newest image of %s", text), has: func(o point) bool {
			return o.tag.App == t.App && (t.Rev == 0 || o.tag.Rev == t.Rev)
		}})
	}
	for _, app := range imagetag.Aggregates(c.App) {
		if text := p.withVariant(app); !slices.Contains(own, text) && p.aggregated(app) {
			out = append(out, pointer{text: text, what: fmt.Sprintf("the newest image of %s", app), has: func(o point) bool {
				return imagetag.IsRelease(o.tag.App) && (o.tag.App == app || strings.HasPrefix(o.tag.App, app+"."))
			}})
		}
	}
	for _, text := range p.floating() {
		out = append(out, pointer{text: text, what: "the newest release", has: func(o point) bool { return imagetag.IsRelease(o.tag.App) }})
	}
	return out
}

func (p *planner) withVariant(app string) string {
	if p.event.Variant == "" {
		return app
	}
	return app + "-" + p.event.Variant
}

// aggregated says whether the repository has tags with so few numbers, and they
// are no versions of their own.
func (p *planner) aggregated(app string) bool {
	if slices.ContainsFunc(p.points, func(o point) bool { return o.tag.App == app }) {
		return false
	}
	parts := strings.Count(app, ".")
	for text := range p.pub.Tags {
		t, err := p.scheme.Parse(text)
		if err != nil || t.Point() || t.Variant != p.event.Variant || strings.Count(t.App, ".") != parts || t.Rev > 0 || !imagetag.IsRelease(t.App) {
			continue
		}
		if !slices.ContainsFunc(p.points, func(o point) bool { return o.tag.App == t.App }) {
			return true
		}
	}
	return false
}

// floating tags that follow: latest where it is in use, and those that were asked for.
func (p *planner) floating() []string {
	var out []string
	if latest := p.withVariant("latest"); p.pub.Tags[latest] != "" {
		out = append(out, latest)
	}
	for _, text := range p.event.Floating {
		if err := imagetag.Legal(text); err != nil {
			p.refuse(reasonTagIllegal, "choose another name", "%v", err)
			continue
		}
		if t, err := p.scheme.Parse(text); err != nil || t.Tier != imagetag.Floating {
			p.refuse(reasonTagNotPlanned, "only names that are no version may float: latest, stable", "%s is no floating tag under scheme %s", text, p.scheme.Name())
			continue
		}
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// placePointer decides about one pointer: it goes to the new image only if that is the
// newest of what the pointer stands for, and not back.
func (p *planner) placePointer(ptr pointer) {
	at := p.pub.Tags[ptr.text]
	switch {
	case at == p.cand.digest:
		return
	case !ptr.has(p.cand):
		p.leaveTag(ptr.text, fmt.Sprintf("it names %s, and %s is no release", ptr.what, p.cand.tag.App))
		return
	}
	above := p.newestPoint(func(o point) bool {
		order, _ := p.scheme.CompareTags(p.cand.tag, o.tag)
		return ptr.has(o) && o.digest != p.cand.digest && order != imagetag.Newer
	})
	if above != nil {
		order, why := p.scheme.CompareTags(p.cand.tag, above.tag)
		p.leaveTag(ptr.text, fmt.Sprintf("it names %s, and seen from %s this one is %s: %s", ptr.what, above.tag.Text, order, why))
		return
	}
	if at == "" {
		p.addStep(Create, ptr.text, "", ptr.what)
		return
	}
	p.leaveOrMove(ptr, at)
}

// leaveOrMove decides about a pointer that exists, by the image that it has.
func (p *planner) leaveOrMove(ptr pointer, at string) {
	now := p.pointOf(at)
	if now == nil {
		p.unknown(ptr, at)
		return
	}
	if order, why := p.scheme.CompareTags(p.cand.tag, now.tag); order != imagetag.Newer {
		p.leaveTag(ptr.text, fmt.Sprintf("it names %s, and seen from there this one is %s: %s", now.tag.Text, order, why))
		return
	}
	p.addStep(Move, ptr.text, at, fmt.Sprintf("%s; it was %s", ptr.what, now.tag.Text))
}

// pointOf is the newest point that names a digest, of the same variant if there
// is one; nil if none does.
func (p *planner) pointOf(digest string) *point {
	if own := p.newestPoint(func(o point) bool { return o.digest == digest }); own != nil {
		return own
	}
	if i := slices.IndexFunc(p.others, func(o point) bool { return o.digest == digest }); i >= 0 {
		return &p.others[i]
	}
	return nil
}

// unknown: the pointer's image has no point, so whether it is older is not known,
// unless its version says so.
func (p *planner) unknown(ptr pointer, at string) {
	why := fmt.Sprintf("its image %s has no long tag, so whether this one is newer is not known", text.ShortDigest(at))
	if was := p.pub.Images[at].Version; was != "" {
		if order, reason := imagetag.CompareApps(p.event.Image.Version, was); order != imagetag.Same {
			if order == imagetag.Newer {
				p.addStep(Move, ptr.text, at, fmt.Sprintf("%s; %s", ptr.what, reason))
			} else {
				p.leaveTag(ptr.text, fmt.Sprintf("seen from its image this one is %s: %s", order, reason))
			}
			return
		}
	}
	switch {
	case p.rules.Adopt:
		p.addStep(Move, ptr.text, at, ptr.what+"; its image had no long tag, and moving it was allowed")
	case ptr.needed:
		p.refuse(reasonPointerUnknown, "give that image its long tag first, so that it stays reachable; or allow it once with --adopt", "%s cannot be moved: %s", ptr.text, why)
	default:
		p.leaveTag(ptr.text, why)
	}
}

// reachable are the tags that name a digest after the steps, points first.
func (p *planner) reachable(digest string) []string {
	moved := map[string]bool{}
	for _, s := range p.plan.Steps {
		moved[s.Tag] = true
	}
	var points, rest []string
	for _, text := range slices.Sorted(maps.Keys(p.pub.Tags)) {
		if p.pub.Tags[text] != digest || moved[text] {
			continue
		}
		if t, err := p.scheme.Parse(text); err == nil && t.Point() {
			points = append(points, text)
		} else {
			rest = append(rest, text)
		}
	}
	return append(points, rest...)
}

// checkRequested refuses requested tags that the plan does not have.
func (p *planner) checkRequested() {
	for _, text := range p.event.Want {
		if slices.ContainsFunc(p.plan.Steps, func(s Step) bool { return s.Tag == text }) || p.pub.Tags[text] == p.cand.digest {
			continue
		}
		p.unwanted(text)
	}
}

func (p *planner) unwanted(tag string) {
	i := slices.IndexFunc(p.plan.MustNot, func(l Left) bool { return l.Tag == tag })
	t, err := p.scheme.Parse(tag)
	switch {
	case err != nil:
		p.refuse(reasonTagIllegal, "leave it out", "%v", err)
	case i >= 0:
		p.refuse(reasonTagWouldRegress, "leave it out: it stays where it is", "%s must not go to this image: %s", tag, p.plan.MustNot[i].Why)
	case t.Point() && p.pub.Tags[tag] != "":
		p.refuse(reasonTagTaken, "leave it out; the long tag of this image is "+p.plan.Long, "%s names %s, and what names one build is never moved", tag, text.ShortDigest(p.pub.Tags[tag]))
	case t.Tier != imagetag.Floating && t.App != p.cand.tag.App && !covers(t.App, p.cand.tag.App):
		p.refuse(reasonTagVersionMismatch, "leave it out", "%s says version %s, and the image has %s", tag, t.App, p.event.Image.Version)
	default:
		p.refuse(reasonTagNotPlanned, "leave it out, or name a floating tag with --floating", "%s does not follow from this image; what does is %s", tag, strings.Join(p.stepTags(), " "))
	}
}

func (p *planner) stepTags() []string {
	var out []string
	for _, s := range p.plan.Steps {
		if s.Tag != "" {
			out = append(out, s.Tag)
		}
	}
	return out
}
