package imagetag

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Order of one tag as seen from another.
type Order string

// Orders: the first word that `refit tags compare A B` prints, A as seen from B.
const (
	Older        Order = "older"
	Newer        Order = "newer"
	Same         Order = "same"
	Incomparable Order = "incomparable"
)

// Point is a tag with its home. Build numbers count per build project, so tags
// of two projects or repositories have no order.
type Point struct {
	Repository string // normalised, without tag: see Ref
	Project    string // who built it; "" if there is only one
	Tag        string
}

// ComparePoints is Compare for tags that may be of different homes.
func (s Scheme) ComparePoints(a, b Point) (Order, string) {
	switch {
	case a.Repository != b.Repository:
		return Incomparable, fmt.Sprintf("they are of two repositories, %s and %s: builds are counted in each by itself", a.Repository, b.Repository)
	case a.Project != b.Project:
		return Incomparable, fmt.Sprintf("they were built by two projects, %q and %q: builds are counted in each by itself", a.Project, b.Project)
	}
	return s.Compare(a.Tag, b.Tag)
}

// Compare returns the order of tag a relative to tag b of the same repository, and why. Same
// means equal text, or two spellings of one version.
func (s Scheme) Compare(a, b string) (Order, string) {
	ta, err := s.Parse(a)
	if err != nil {
		return Incomparable, err.Error()
	}
	tb, err := s.Parse(b)
	if err != nil {
		return Incomparable, err.Error()
	}
	return s.CompareTags(ta, tb)
}

// CompareTags is Compare for tags that this scheme has parsed.
func (s Scheme) CompareTags(a, b Tag) (Order, string) {
	if a.Text == b.Text {
		if !a.Point() {
			return Same, fmt.Sprintf("one tag; it is %s and may move, so only digests say whether it was one image each time", a.Tier)
		}
		return Same, "one tag"
	}
	for _, t := range []Tag{a, b} {
		if !t.Point() {
			return Incomparable, fmt.Sprintf("%s is a pointer (%s) and may move: resolve it to its digest, then compare the long tag that has that digest", t.Text, t.Tier)
		}
	}
	if a.Variant != b.Variant {
		return Incomparable, fmt.Sprintf("they are two variants, %q and %q", a.Variant, b.Variant)
	}
	c, why, ok := s.compareApps(a, b)
	if !ok {
		return Incomparable, why
	}
	if c != 0 {
		return orderOf(c), fmt.Sprintf("version %s is %s %s", a.App, sideOf(c), b.App)
	}
	return compareBuilds(a, b)
}

// compareBuilds orders two points of one version.
func compareBuilds(a, b Tag) (Order, string) {
	if (a.Rev == 0) != (b.Rev == 0) {
		return Incomparable, "one has a revision and the other has none: no revision is not revision 0"
	}
	if c := cmp.Compare(a.Rev, b.Rev); c != 0 {
		return orderOf(c), fmt.Sprintf("revision %d of %s is %s %d", a.Rev, a.App, sideOf(c), b.Rev)
	}
	if c := slices.Compare(a.Build, b.Build); c != 0 {
		if len(a.Build) == 0 || len(b.Build) == 0 {
			return orderOf(c), fmt.Sprintf("one is the first of %s, the other is a later build of it", a.App)
		}
		return orderOf(c), fmt.Sprintf("build %s of %s is %s %s", a.BuildText(), strings.TrimSuffix(a.Text, a.BuildText()), sideOf(c), b.BuildText())
	}
	return Same, "one version, written in two ways"
}

// compareApps orders the application's parts.
func (s Scheme) compareApps(a, b Tag) (order int, why string, ok bool) {
	if a.App == b.App {
		return 0, "", true
	}
	va, oka := s.version(a)
	vb, okb := s.version(b)
	if !oka || !okb {
		return 0, fmt.Sprintf("%s and %s are not both versions", a.App, b.App), false
	}
	c, why, ok := compareVersions(va, vb)
	if !ok {
		return 0, fmt.Sprintf("versions %s and %s have no order: %s", a.App, b.App, why), false
	}
	return c, "", true
}

func (s Scheme) version(t Tag) (version, bool) {
	app := t.App
	if s.kindOf() == "date" {
		app = dateDigits(app)
	}
	meta := ""
	if s.kindOf() == "semver" {
		app, meta, _ = strings.Cut(app, "_")
	}
	v, ok := parseVersion(app)
	v.meta = meta
	return v, ok
}

// kindOf is the scheme's name without its variants.
func (s Scheme) kindOf() string {
	head, _, _ := strings.Cut(s.name, ":")
	return head
}

// CompareApps orders two versions of an application as they stand in tags, with
// the rules of the application's part: 2.7.0-rc.1 is older than 2.7.0, and 2.6
// has no order with 2.6.0.
func CompareApps(a, b string) (Order, string) {
	s := schemes["single"]
	c, why, ok := s.compareApps(Tag{App: a}, Tag{App: b})
	if !ok {
		return Incomparable, why
	}
	return orderOf(c), fmt.Sprintf("version %s is %s %s", a, sideOf(c), b)
}

func orderOf(c int) Order {
	switch {
	case c < 0:
		return Older
	case c > 0:
		return Newer
	}
	return Same
}

func sideOf(c int) string {
	switch {
	case c < 0:
		return "below"
	case c > 0:
		return "above"
	}
	return "equal to"
}
