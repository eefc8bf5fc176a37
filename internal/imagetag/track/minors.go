package track

import (
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/imagetag"
)

// maxMinors are remembered, the lowest first: the next step is among them.
const maxMinors = 64

// MinorVersions are those that the repository's tags have above the oldest image that is
// remembered, in ascending order. Only tags of the followed tier and variant count: a track
// could follow each of them. The range does not matter, because who moves it can skip a
// version without noticing.
func MinorVersions(t Track, s State, listed []string) []string {
	from, variant, ok := oldestMinor(t, s)
	if !ok {
		return nil
	}
	tier := t.Tier
	if t.Tag != "" {
		tier = parseTag(t, t.Tag).Tier
	}
	var minors []imagetag.Minor
	for _, text := range listed {
		p := parseTag(t, text)
		if m, ok := t.releasedMinor(p); ok && p.Tier == tier && p.Variant == variant && m.Compare(from) > 0 {
			minors = append(minors, m)
		}
	}
	slices.SortFunc(minors, imagetag.Minor.Compare)
	minors = slices.Compact(minors)
	var out []string
	for _, m := range minors[:min(len(minors), maxMinors)] {
		out = append(out, m.String())
	}
	return out
}

// oldestMinor of the images that a track could start from: the approved one, and those that a
// rollback may return to.
func oldestMinor(t Track, s State) (oldest imagetag.Minor, variant string, ok bool) {
	for _, i := range startImages(&s) {
		m, known := t.minorOf(i)
		if known && (!ok || m.Compare(oldest) < 0) {
			oldest, ok = m, true
		}
		variant = or(variant, parseTag(t, i.Tag).Variant)
	}
	return oldest, variant, ok
}

// LeavesMinor reports whether a track of one tag leaves the minor version that it is at, so that
// the versions between matter.
func LeavesMinor(t Track, s State) bool {
	m, ok := t.Scheme.MinorOf(parseTag(t, t.Tag))
	if !ok || t.SkipVersions {
		return false
	}
	return slices.ContainsFunc(startImages(&s)[:min(1, len(startImages(&s)))], func(i *Image) bool {
		at, known := t.minorOf(i)
		return known && at.Compare(m) < 0
	})
}

func startImages(s *State) (out []*Image) {
	if s.Approved != nil {
		out = append(out, s.Approved)
	}
	for i := range s.History {
		out = append(out, &s.History[i])
	}
	return out
}

// minorOf is the minor version of an image by its tags.
func (t Track) minorOf(i *Image) (imagetag.Minor, bool) {
	if m, ok := t.Scheme.MinorOf(parseTag(t, i.Long)); ok {
		return m, true
	}
	return t.Scheme.MinorOf(parseTag(t, i.Tag))
}

// releasedMinor is the minor version of a tag that is no pre-release: no step needs one.
func (t Track) releasedMinor(p imagetag.Tag) (imagetag.Minor, bool) {
	m, ok := t.Scheme.MinorOf(p)
	return m, ok && !t.Scheme.IsPreRelease(p)
}

// nextMinor reports for a tag whether it is of the lowest minor version above the image that runs
// now. It is what a track takes next when it skips none.
func nextMinor(t Track, s State, all []imagetag.Tag) func(imagetag.Tag) bool {
	images := startImages(&s)
	if t.SkipVersions || len(images) == 0 {
		return func(imagetag.Tag) bool { return false }
	}
	from, known := t.minorOf(images[0])
	variant := parseTag(t, images[0].Tag).Variant
	above := func(p imagetag.Tag) (imagetag.Minor, bool) {
		m, ok := t.releasedMinor(p)
		return m, ok && known && p.Variant == variant && m.Compare(from) > 0
	}
	var next *imagetag.Minor
	for _, p := range all {
		if m, ok := above(p); ok && (next == nil || m.Compare(*next) < 0) {
			next = &m
		}
	}
	return func(p imagetag.Tag) bool {
		m, ok := above(p)
		return ok && m == *next
	}
}

// skippedMinors are the minor versions that a change to an image would skip: those that the
// repository has between the image and the oldest one that it replaces.
func skippedMinors(t Track, s State, f Found, to *Candidate) (out []string) {
	end, ok := t.minorOf(&to.Image)
	if !ok || t.SkipVersions || to.Class != NewVersion {
		return nil
	}
	from := replacedImages(s, f)
	for _, text := range s.Minors {
		m, ok := imagetag.ParseMinor(text)
		if ok && m.Compare(end) < 0 && slices.ContainsFunc(from, func(i *Image) bool {
			begin, known := t.minorOf(i)
			return known && begin.Compare(m) < 0
		}) {
			out = append(out, text)
		}
	}
	return out
}

// replacedImages are those that a candidate takes the place of.
func replacedImages(s State, f Found) (out []*Image) {
	if s.Approved != nil {
		return []*Image{s.Approved}
	}
	for _, d := range append(slices.Clone(f.Running), namedDigests(f)...) {
		if i := s.Known(d); i != nil {
			out = append(out, i)
		}
	}
	return out
}

// describeSkipped says why an image is blocked that skips minor versions.
func describeSkipped(skips []string) string {
	return "it would skip " + strings.Join(skips, ", ") + ", which the repository has too: a track takes one minor version after the other; take " + skips[0] +
		" first (spec.follow must allow it), or set spec.follow.skipVersions"
}
