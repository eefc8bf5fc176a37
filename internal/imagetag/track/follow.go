package track

import (
	"cmp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/refit-dev/refit/internal/imagetag"
)

// Follow returns the tags to resolve. For a single tag it is that tag, and listed may be empty.
// For a tier it is the approved image's tag, the newest tag of its application version, the newest
// of the next minor version, and the newest of all in range. listed are the repository's tags.
func Follow(t Track, s State, listed []string) []string {
	if t.Tag != "" {
		return []string{t.Tag}
	}
	var all []imagetag.Tag
	for _, text := range listed {
		if p, err := t.Scheme.Parse(text); err == nil && p.Tier == t.Tier && inRange(t.Versions, p.App) {
			all = append(all, p)
		}
	}
	var out []string
	add := func(text string) {
		if text != "" && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	current := imagetag.Tag{}
	if s.Approved != nil && s.Approved.Tag != "" {
		current, _ = t.Scheme.Parse(s.Approved.Tag)
		add(s.Approved.Tag)
		add(newestTag(all, func(p imagetag.Tag) bool { return p.Variant == current.Variant && p.App == current.App }))
	}
	add(newestTag(all, nextMinor(t, s, all)))
	add(newestTag(all, func(p imagetag.Tag) bool { return p.Variant == current.Variant }))
	return out
}

// newestTag of the tags that count; those that cannot be compared with it are
// passed over.
func newestTag(all []imagetag.Tag, counts func(imagetag.Tag) bool) string {
	var best imagetag.Tag
	for _, p := range all {
		if !counts(p) {
			continue
		}
		if o, _ := comparePointers(p, best); best.Text == "" || o == imagetag.Newer {
			best = p
		}
	}
	return best.Text
}

// comparePointers orders two names of lines, not of images: which names the
// newer application version, or its later revision.
func comparePointers(a, b imagetag.Tag) (imagetag.Order, string) {
	if a.Variant != b.Variant {
		return imagetag.Incomparable, "they are two variants"
	}
	if o, why := imagetag.CompareApps(a.App, b.App); o != imagetag.Same {
		return o, why
	}
	if c := cmp.Compare(a.Rev, b.Rev); c != 0 && a.Rev > 0 && b.Rev > 0 {
		return orderOf(c), "of one version, by revision"
	}
	if c := slices.Compare(a.Build, b.Build); c != 0 {
		return orderOf(c), "of one revision, by build"
	}
	if a.Rev != b.Rev {
		return imagetag.Incomparable, "one has a revision and the other has none"
	}
	return imagetag.Same, "one line"
}

func orderOf(c int) imagetag.Order {
	if c < 0 {
		return imagetag.Older
	}
	return imagetag.Newer
}

// inRange reports whether an application version is in a range; the empty range
// has all of them.
func inRange(versions, app string) bool {
	if versions == "" {
		return true
	}
	c, err := semver.NewConstraint(versions)
	if err != nil {
		return false
	}
	v, err := semver.NewVersion(app)
	return err == nil && c.Check(v)
}

// CheckVersions says why a range cannot be read, nil if it can.
func CheckVersions(versions string) error {
	if versions == "" {
		return nil
	}
	_, err := semver.NewConstraint(versions)
	return err
}

// maxNames is how many long tags are asked for the one of a digest.
const maxNames = 12

// LongTags are those that may name what is behind a pointer, the newest first:
// of its version and revision.
func LongTags(t Track, pointer string, listed []string) []string {
	want, err := t.Scheme.Parse(pointer)
	if err != nil {
		return nil
	}
	if want.Point() {
		return []string{pointer}
	}
	var points []imagetag.Tag
	for _, text := range listed {
		p, err := t.Scheme.Parse(text)
		if err == nil && p.Point() && mayBeBehind(p, want) {
			points = append(points, p)
		}
	}
	slices.SortStableFunc(points, func(a, b imagetag.Tag) int {
		switch o, _ := t.Scheme.CompareTags(a, b); o {
		case imagetag.Newer:
			return -1
		case imagetag.Older:
			return 1
		}
		return strings.Compare(b.Text, a.Text)
	})
	var out []string
	for _, p := range points[:min(len(points), maxNames)] {
		out = append(out, p.Text)
	}
	return out
}

// mayBeBehind reports whether a build may be behind a pointer.
func mayBeBehind(p, pointer imagetag.Tag) bool {
	switch {
	case pointer.Tier == imagetag.Floating && !beginsWithDigit(pointer.App):
		return true
	case pointer.Tier == imagetag.Floating, pointer.Tier == imagetag.Short: // 2.6 stands for 2.6.2 as well
		return (p.App == pointer.App || strings.HasPrefix(p.App, pointer.App+".")) && (pointer.Variant == "" || p.Variant == pointer.Variant)
	}
	return p.App == pointer.App && p.Variant == pointer.Variant && (pointer.Rev == 0 || p.Rev == pointer.Rev)
}

func beginsWithDigit(s string) bool {
	s = strings.TrimPrefix(s, "v")
	return s != "" && s[0] >= '0' && s[0] <= '9'
}
