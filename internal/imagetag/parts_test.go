package imagetag

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What each scheme can tell and write.
func TestSchemeParts(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][3]bool{ // revision, build, writes
		"rev": {true, true, true}, "rev:alpine": {true, true, true}, "dotted": {true, true, true}, "dashed": {true, true, true}, "release": {false, true, true},
		"distro-r": {false, true, true}, "single": {false, false, true}, "semver": {false, false, true}, "date": {false, true, true}, "floating": {false, false, false},
		`regexp:(?P<app>\d+)`: {false, false, false}, `regexp:(?P<rev>\d+)-(?P<app>\d+)`: {true, false, false}, `regexp:(?P<build>\d+)-(?P<app>\d+)`: {false, true, false},
	} {
		s := scheme(t, name)
		if got := [3]bool{s.HasRev(), s.HasBuild(), s.CanWrite()}; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if s := (Scheme{}); s.HasRev() || s.HasBuild() || s.CanWrite() {
		t.Error("the zero scheme can do something")
	}
}

// The tier of a tag, by its parts and by the finest part of its scheme.
func TestTiers(t *testing.T) {
	t.Parallel()
	const revOnly, variantOnly, all = `regexp:(?P<app>\d+)(_r(?P<rev>\d+))?`, `regexp:(?P<app>\d+)-(?P<variant>[a-z]+)`, `regexp:(?P<app>\d+)(-(?P<variant>[a-z]+))?(_r(?P<rev>\d+))?(_b(?P<build>\d+))?`
	for _, c := range []struct {
		scheme, text string
		want         Tag
	}{
		{revOnly, "2_r1", Tag{Tier: Long, App: "2", Rev: 1}},
		{revOnly, "2", Tag{Tier: Short, App: "2"}},
		{variantOnly, "2-alpine", Tag{Tier: Long, App: "2", Variant: "alpine"}},
		{all, "2-alpine", Tag{Tier: Intermediate, App: "2", Variant: "alpine"}},
		{all, "2_r1", Tag{Tier: Intermediate, App: "2", Rev: 1}},
		{all, "2_b3", Tag{Tier: Long, App: "2", Build: []uint64{3}}},
		{all, "2", Tag{Tier: Short, App: "2"}},
		{all, "latest", Tag{Tier: Floating, App: "latest"}},
		{"distro-r", "1.2.3", Tag{Tier: Short, App: "1.2.3"}},
		{"rev:alpine", "2.6-alpine", Tag{Tier: Short, App: "2.6", Variant: "alpine"}},
		{"rev:alpine,slim", "3-slim-alpine", Tag{Tier: Short, App: "3-slim", Variant: "alpine"}},
		{"rev:alpine", "alpine", Tag{Tier: Floating, App: "alpine"}},
		{"floating", "2.6", Tag{Tier: Floating, App: "2.6"}},
		{"date", "2026-11", Tag{Tier: Floating, App: "2026-11"}},
		{"date", "202611", Tag{Tier: Floating, App: "202611"}},
		{"date", "20261120", Tag{Tier: Long, App: "20261120"}},
		{"date", "latest", Tag{Tier: Floating, App: "latest"}},
		{"semver", "1.2.3-rc.1_5", Tag{Tier: Long, App: "1.2.3-rc.1_5"}},
		{"semver", "latest", Tag{Tier: Floating, App: "latest"}},
	} {
		c.want.Text, c.want.Scheme = c.text, c.scheme
		got, err := scheme(t, c.scheme).Parse(c.text)
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s %s: %v %s", c.scheme, c.text, err, diff)
		}
	}
}

// What is refused, with its reason.
func TestRefusals(t *testing.T) {
	t.Parallel()
	rev := scheme(t, "rev")
	parse := func(scheme Scheme, text string) error { _, err := scheme.Parse(text); return err }
	write := func(name string, tag Tag) error { _, err := scheme(t, name).Write(tag); return err }
	pointers := func(name, text string) error { _, err := scheme(t, name).Pointers(text); return err }
	byName := func(name string) error { _, err := ByName(name); return err }
	ref := func(text string) error { _, err := ParseRef(text); return err }
	ranged := func(text string) error { _, err := ParseRange(text); return err }
	inRange := func(text string) error {
		in, err := rev.InRange(text, Range{})
		if in {
			return nil
		}
		return err
	}
	const custom = `regexp:(?P<app>\d+)`
	for want, err := range map[string]error{
		"a build follows a day, not a month":                                                      parse(scheme(t, "date"), "202611.5"),
		`parsing time "202613": month out of range`:                                               parse(scheme(t, "date"), "202613"),
		"it is no semantic version":                                                               parse(scheme(t, "semver"), "2.6-rc.1"),
		"scheme " + custom + " can read tags, not write them":                                     write(custom, Tag{App: "1"}),
		`tag "1" would be read as version 1, revision 0, build : choose another form for version`: write("single", Tag{App: "1", Rev: 3}),
		`tag "2" would be read as version 2, revision 0, build : choose another form for version`: write("single", Tag{App: "2", Build: []uint64{5}}),
		`tag "3-4" would be read as version 3, revision 0, build 4`:                               write("release", Tag{App: "3", Rev: 7, Build: []uint64{4}}),
		`tag "4-5" would be read as version 4, revision 0, build 5`:                               write("release", Tag{App: "4-5"}),
		`tag "a+b"`:                                   pointers("rev", "a+b"),
		`tag "2.6.2-rev1" is a pointer itself`:        pointers("rev", "2.6.2-rev1"),
		`tag scheme "regexp" is not known`:            byName("regexp"),
		`tag scheme "other" is not known`:             byName("other"),
		`"r_x.example:5000" is no host of a registry`: ref("r_x.example:5000/app"),
		`"App" is no repository`:                      ref("r.example/App"),
		`"18446744073709551616" is no version`:        ranged(">=18446744073709551616"),
		`tag "c+d"`:                                   inRange("c+d"),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// The order of two versions in the application's part, with the whole reason, and
// the reverse the other way.
func TestVersionOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want Order
		why  string
	}{
		{"1.1.1w10", "1.1.1w9", Newer, "version 1.1.1w10 is above 1.1.1w9"},
		{"1.1.1_w", "1.1.1.w", Newer, "version 1.1.1_w is above 1.1.1.w"},
		{"1.0-", "1.0", Newer, "version 1.0- is above 1.0"},
		{"1.0.0rc10", "1.0.0rc9", Newer, "version 1.0.0rc10 is above 1.0.0rc9"},
		{"1.0.0-rc.01", "1.0.0-rc.9", Older, "version 1.0.0-rc.01 is below 1.0.0-rc.9"},
		{"1.0.0-100000", "1.0.0-a", Older, "version 1.0.0-100000 is below 1.0.0-a"},
		{"1.0.0-alpha", "1.0.0-rc", Older, "version 1.0.0-alpha is below 1.0.0-rc"},
		{"1.0.0-rc", "1.0.0-rc.1", Older, "version 1.0.0-rc is below 1.0.0-rc.1"},
		{"1.0.0-rc.1", "1.0.0w", Older, "version 1.0.0-rc.1 is below 1.0.0w"},
		{"1.0.0rc1", "1.0.0", Incomparable, `versions 1.0.0rc1 and 1.0.0 have no order: it is unclear whether "rc1" comes before or after the release`},
		{"1.0.0-x", "1.0.0beta", Incomparable, `versions 1.0.0-x and 1.0.0beta have no order: it is unclear whether "beta" comes before or after the release`},
		{"2.6", "2.6.0", Incomparable, "versions 2.6 and 2.6.0 have no order: 2 and 3 numbers: the shorter may stand for many of the longer"},
		{"main", "2.6.0", Incomparable, "main and 2.6.0 are not both versions"},
		{"2.6.0", "main", Incomparable, "2.6.0 and main are not both versions"},
		{"18446744073709551616", "1", Incomparable, "18446744073709551616 and 1 are not both versions"},
		{"18446744073709551615", "1", Newer, "version 18446744073709551615 is above 1"},
	} {
		if got, why := CompareApps(c.a, c.b); got != c.want || why != c.why {
			t.Errorf("%s, %s: %s (%s), want %s (%s)", c.a, c.b, got, why, c.want, c.why)
		}
		if got, why := CompareApps(c.b, c.a); got != opposite(c.want) {
			t.Errorf("%s, %s: %s (%s)", c.b, c.a, got, why)
		}
	}
	for _, c := range []struct {
		scheme, a, b string
		want         Order
		why          string
	}{
		{"semver", "1.2.4-rc.1_5", "1.2.4-rc.2_6", Older, "version 1.2.4-rc.1_5 is below 1.2.4-rc.2_6"},
		{"semver", "1.2.4_5", "1.2.4_6", Incomparable, "versions 1.2.4_5 and 1.2.4_6 have no order: they differ only in what follows the underscore, which has no order"},
		{"date", "20261120", "20261120.1", Older, "one is the first of 20261120, the other is a later build of it"},
		{"date", "20261120.1", "20261120", Newer, "one is the first of 20261120, the other is a later build of it"},
		{"date", "20261120.2", "20261120.1", Newer, "build 2 of 20261120. is above 1"},
		{`regexp:(?P<app>\d+)(-r(?P<rev>\d+))?-b(?P<build>\d+)`, "1-b2", "1-r1-b2", Incomparable, "one has a revision and the other has none: no revision is not revision 0"},
		{`regexp:(?P<app>\d+)(-r(?P<rev>\d+))?-b(?P<build>\d+)`, "1-r1-b2", "1-b2", Incomparable, "one has a revision and the other has none: no revision is not revision 0"},
		{"rev", "main-rev1-b1", "2.6-rev1-b1", Incomparable, "main and 2.6 are not both versions"},
		{"rev", "main-rev1-b2", "main-rev1-b1", Newer, "build 2 of main-rev1-b is above 1"},
	} {
		if got, why := scheme(t, c.scheme).Compare(c.a, c.b); got != c.want || why != c.why {
			t.Errorf("%s, %s: %s (%s), want %s (%s)", c.a, c.b, got, why, c.want, c.why)
		}
	}
}

// A guess needs at least half of the tags that a version begins.
func TestGuessThreshold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tags []string
		want string
		why  string
	}{
		"half of them":                          {[]string{"1.0-rev1-b1", "1.0-rev0"}, "rev", "a guess: 1 of 2 tags are long tags of scheme rev; declare it before anything is done by it"},
		"less than half":                        {[]string{"1.0-rev1-b1", "1.0-rev0", "2.0-rev0"}, "", "no guess: the 3 tags follow no known form, so whether any of them names one build is not known; declare a scheme"},
		"floating tags count for nothing":       {[]string{"1.0-rev1-b1", "1.0-rev0", "2.0-rev0", "latest"}, "", "no guess: the 4 tags follow no known form, so whether any of them names one build is not known; declare a scheme"},
		"one tag that several schemes read":     {[]string{"2.6.1-1.100"}, "", "no guess: 1 of 1 tags could be of scheme dotted, dashed, release or semver, and each reads them differently; declare one"},
		"one semantic version":                  {[]string{"v1.31.2"}, "semver", "a guess: 1 of 1 tags are semantic versions; declare it before anything is done by it"},
		"one semantic version of two":           {[]string{"v1.31.2", "1.2.3.4"}, "", "no guess: the 2 tags follow no known form, so whether any of them names one build is not known; declare a scheme"},
		"one semantic version and an aggregate": {[]string{"v1.31.2", "v1.31"}, "semver", "a guess: 1 of 2 tags are semantic versions; declare it before anything is done by it"},
	} {
		if got, why := Guess(c.tags); got.Name() != c.want || why != c.why {
			t.Errorf("%s: %q (%s)", name, got.Name(), why)
		}
	}
}

// Versions that have more than numbers, at the bounds of a range.
func TestRangeEdges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		in   string
		out  string
	}{
		{">2.6.2", "2.6.2a 2.6.3", "2.6.2 2.6.2-rc.1 2.6.2rc1 latest"},
		{"<=2.6.2", "2.6.2 2.6.1z", "2.6.2a 2.6.3 2.6.1rc1 latest"},
		{">2.6.2-rc.1", "2.6.2-rc.2 2.6.2", "2.6.2-rc.1 2.6.1"},
		{"<=2.6.2-rc.1", "2.6.2-rc.1 2.6.1", "2.6.2 2.6.2-rc.2 latest"},
		{"<1.0.0-rc.1", "0.9.0 0.9.0-rc.1", "1.0.0 latest main 0.9rc1"},
		{"*", "1 1.2 1.2a", "1-rc.1 1rc1 latest"},
	} {
		r, err := ParseRange(c.text)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range strings.Fields(c.in) {
			if !r.Has(v) {
				t.Errorf("%s does not have %s", c.text, v)
			}
		}
		for _, v := range strings.Fields(c.out) {
			if r.Has(v) {
				t.Errorf("%s has %s", c.text, v)
			}
		}
	}
}

// Names of one word, and words that look like a registry.
func TestRefHosts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"localhost": "docker.io/library/localhost", "a.b": "docker.io/library/a.b", "localhost/a": "localhost/a", "a/b": "docker.io/a/b", "a.b/c": "a.b/c", "A/b": "A/b",
		"index.docker.io/a": "docker.io/library/a", "docker.io/a/b:1": "docker.io/a/b:1", "a:5000/b": "a:5000/b", "a:5000": "docker.io/library/a:5000",
	} {
		if got, err := ParseRef(text); err != nil || got.String() != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}

// Releases that latest may name, and the shorter names of a version.
func TestReleasesAndAggregates(t *testing.T) {
	t.Parallel()
	for app, want := range map[string]string{
		"1.1.1w": "true []", "1.1.1": "true [1.1 1]", "v1.1": "true [v1]", "1": "true []", "1.0-": "true []", "1.0rc1": "false []", "1.0-rc.1": "false []", "main": "false []", "18446744073709551616.1": "false []",
	} {
		if got := fmt.Sprint(IsRelease(app), Aggregates(app)); got != want {
			t.Errorf("%s: %s, want %s", app, got, want)
		}
	}
}

// The lines of a list are the same from whichever order it comes.
func TestSortOfEachPermutation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		scheme string
		tags   []string
		want   string
	}{
		"one line":        {"rev", []string{"1.0-rev1-b1", "1.0-rev1-b2", "1.0-rev2-b1", "1.1-rev1-b1", "1.10-rev1-b1"}, "[1.0-rev1-b1 1.0-rev1-b2 1.0-rev2-b1 1.1-rev1-b1 1.10-rev1-b1]"},
		"no versions":     {"rev", []string{"main-rev1-b1", "main-rev1-b2", "next-rev1-b1", "1-rev1-b1"}, "[main-rev1-b1 main-rev1-b2] [next-rev1-b1] [1-rev1-b1]"},
		"unclear":         {"rev", []string{"1.0-rev1-b1", "1.0rc1-rev1-b1", "1.0rc2-rev1-b1", "1.0w-rev1-b1", "1.1-rev1-b1"}, "[1.0-rev1-b1 1.0w-rev1-b1 1.1-rev1-b1] [1.0rc1-rev1-b1 1.0rc2-rev1-b1]"},
		"build metadata":  {"semver", []string{"1.0.0-rc.1", "1.0.0", "1.0.0_a", "1.0.0_b", "1.0.1"}, "[1.0.0-rc.1 1.0.0 1.0.1] [1.0.0_a] [1.0.0_b]"},
		"with and no v":   {"single", []string{"1.0", "v1.0", "1.1", "v0.9"}, "[v0.9 1.0 v1.0 1.1]"},
		"several lengths": {"single", []string{"2", "1.0", "1.0.0", "1.1.0", "1"}, "[1 2] [1.0] [1.0.0 1.1.0]"},
	} {
		permute(c.tags, func(tags []string) {
			var got []string
			for _, l := range scheme(t, c.scheme).Sort(slices.Clone(tags)).Lines {
				got = append(got, fmt.Sprint(l.Tags))
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("%s, from %v: %s", name, tags, s)
			}
		})
	}
}

// permute calls f with each order of a list.
func permute(list []string, f func([]string)) {
	if len(list) < 2 {
		f(list)
		return
	}
	for i := range list {
		rest := slices.Concat(list[:i], list[i+1:])
		permute(rest, func(p []string) { f(append([]string{list[i]}, p...)) })
	}
}
