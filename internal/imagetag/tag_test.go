package imagetag

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func scheme(t testing.TB, name string) Scheme {
	t.Helper()
	s, err := ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The test vectors of the tag grammar.
func TestCompare(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		scheme, a, b string
		want         Order
		why          string // a word of the reason
	}{
		"rev 10 is above rev 9":                             {"rev", "2.6.2-rev10-b1.1", "2.6.2-rev9-b1.1", Newer, "revision"},
		"rev 2 is below rev 10":                             {"rev", "2.6.2-rev2-b1.1", "2.6.2-rev10-b1.1", Older, "revision"},
		"build 10.1 is above 5.1":                           {"rev", "2.6.2-rev1-b10.1", "2.6.2-rev1-b5.1", Newer, "build"},
		"build 5.10 is above 5.9, it is no fraction":        {"rev", "2.6.2-rev1-b5.10", "2.6.2-rev1-b5.9", Newer, "build"},
		"a shorter build with the same beginning is below":  {"rev", "2.6.2-rev1-b5", "2.6.2-rev1-b5.1", Older, "build"},
		"a higher application wins over rev and build":      {"rev", "2.6.10-rev1-b1", "2.6.9-rev9-b9", Newer, "version"},
		"an intermediate tag is a pointer":                  {"rev", "2.6.2-rev1", "2.6.2", Incomparable, "pointer"},
		"two intermediate tags are pointers":                {"rev", "2.6.2-rev1", "2.6.2-rev2", Incomparable, "pointer"},
		"a pointer has no order with a point":               {"rev", "2.6.2", "2.6.2-rev1-b1.1", Incomparable, "pointer"},
		"latest is a pointer":                               {"rev", "latest", "2.6.2-rev1-b1.1", Incomparable, "pointer"},
		"one tag twice":                                     {"rev", "2.6.2-rev1-b1", "2.6.2-rev1-b1", Same, "one tag"},
		"one pointer twice may be two images":               {"rev", "latest", "latest", Same, "may move"},
		"a plus sign is illegal":                            {"rev", "2.6.2-rev1+5.1", "2.6.2-rev1-b5.1", Incomparable, "'+'"},
		"a real pre-release is below its release":           {"rev", "2.7.0-rc.1-rev1-b1", "2.7.0-rev1-b1", Older, "version"},
		"rc.2 is above rc.1":                                {"rev", "2.7.0-rc.2-rev1-b1", "2.7.0-rc.1-rev7-b9", Newer, "version"},
		"rc.10 is above rc.9":                               {"rev", "2.7.0-rc.10-rev1-b1", "2.7.0-rc.9-rev1-b1", Newer, "version"},
		"two precisions":                                    {"rev", "2.6-rev1-b1", "2.6.0-rev1-b1", Incomparable, "numbers"},
		"two variants":                                      {"rev:alpine", "2.6.2-alpine-rev1-b1", "2.6.2-rev1-b1", Incomparable, "variant"},
		"one variant":                                       {"rev:alpine", "2.6.2-alpine-rev1-b2", "2.6.2-alpine-rev1-b1", Newer, "build"},
		"a letter behind the number is above it":            {"rev", "1.1.1w-rev1-b1", "1.1.1-rev1-b1", Newer, "version"},
		"w is above k":                                      {"rev", "1.1.1w-rev1-b1", "1.1.1k-rev1-b1", Newer, "version"},
		"rc1 without a hyphen: unclear":                     {"rev", "1.0.0rc1-rev1-b1", "1.0.0-rev1-b1", Incomparable, "before or after"},
		"rc2 and rc1 without a hyphen":                      {"rev", "1.0.0rc2-rev1-b1", "1.0.0rc1-rev1-b1", Newer, "version"},
		"no version at all":                                 {"rev", "main-rev1-b1", "next-rev1-b1", Incomparable, "not both versions"},
		"dotted: build 100 is above 99":                     {"dotted", "2.6.1-1.100", "2.6.1-1.99", Newer, "build"},
		"dotted: image version 10 is above 9":               {"dotted", "2.6.1-10.1", "2.6.1-9.7", Newer, "revision"},
		"dotted: 2.6.1-1 is a pointer":                      {"dotted", "2.6.1-1", "2.6.1-1.99", Incomparable, "pointer"},
		"dashed: build 100 is above 99":                     {"dashed", "2.6.1-1-100", "2.6.1-1-99", Newer, "build"},
		"release: build 3.10 is above 3.2":                  {"release", "10.2.15-3.10", "10.2.15-3.2", Newer, "build"},
		"release: no revision is needed":                    {"release", "10.2.16-1.1", "10.2.15-3.2", Newer, "version"},
		"distro-r: r10 is above r7":                         {"distro-r", "1.2.3-debian-12-r10", "1.2.3-debian-12-r7", Newer, "build"},
		"distro-r: another distribution is another variant": {"distro-r", "1.2.3-debian-12-r10", "1.2.3-debian-11-r7", Incomparable, "variant"},
		"single: a plain version":                           {"single", "v1.31.2", "v1.31.10", Older, "version"},
		"single: 3.10 is above 3.9":                         {"single", "3.10", "3.9", Newer, "version"},
		"single: 2.6 may stand for 2.6.0 and others":        {"single", "2.6", "2.6.0", Incomparable, "numbers"},
		"single: with and without v":                        {"single", "v1.2.3", "1.2.3", Same, "two ways"},
		"semver: a pre-release is below":                    {"semver", "v1.2.3-rc.1", "v1.2.3", Older, "version"},
		"semver: numbers are below words":                   {"semver", "1.0.0-1", "1.0.0-alpha", Older, "version"},
		"semver: more identifiers are above":                {"semver", "1.0.0-alpha.1", "1.0.0-alpha", Newer, "version"},
		"semver: build metadata has no order":               {"semver", "1.2.3_5", "1.2.3_6", Incomparable, "underscore"},
		"semver: 1.2 is an aggregate":                       {"semver", "1.2", "1.2.3", Incomparable, "pointer"},
		"semver: not one":                                   {"semver", "1.2.3.4", "1.2.3", Incomparable, "semantic"},
		"date: days":                                        {"date", "20261120", "20261103", Newer, "version"},
		"date: builds of a day":                             {"date", "2026-11-20.10", "2026-11-20.9", Newer, "build"},
		"date: the first of a day has no build":             {"date", "2026-11-20", "2026-11-20.1", Older, "first"},
		"date: two ways to write a day":                     {"date", "2026-11-20", "20261120", Same, "two ways"},
		"date: a month is a pointer":                        {"date", "2026-11", "2026-11-20", Incomparable, "pointer"},
		"date: no such day":                                 {"date", "20261340", "20261120", Incomparable, "20261340"},
		"floating: all are pointers":                        {"floating", "stable", "2.6", Incomparable, "pointer"},
		"declared by a person":                              {`regexp:(?P<app>\d+\.\d+)_r(?P<rev>\d+)`, "2.6_r10", "2.6_r9", Newer, "revision"},
		"declared: without the finest part it is a pointer": {`regexp:(?P<app>\d+\.\d+)(_r(?P<rev>\d+))?`, "2.6", "2.6_r9", Incomparable, "pointer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scheme(t, c.scheme)
			got, why := s.Compare(c.a, c.b)
			if got != c.want || !strings.Contains(why, c.why) {
				t.Errorf("%s as seen from %s: %s (%s), want %s (%s)", c.a, c.b, got, why, c.want, c.why)
			}
			if back, why := s.Compare(c.b, c.a); back != opposite(c.want) {
				t.Errorf("%s as seen from %s: %s (%s), want %s", c.b, c.a, back, why, opposite(c.want))
			}
		})
	}
}

func opposite(o Order) Order {
	switch o {
	case Older:
		return Newer
	case Newer:
		return Older
	}
	return o
}

func TestCompareAcrossHomes(t *testing.T) {
	t.Parallel()
	s := scheme(t, "rev")
	a := Point{Repository: "registry.example/app", Project: "product", Tag: "2.6.2-rev1-b5.1"}
	for name, c := range map[string]struct {
		repository, project string
		want                Order
	}{
		"same home":                  {a.Repository, a.Project, Newer},
		"another repository":         {"mirror.example/app", a.Project, Incomparable},
		"another build project":      {a.Repository, "devel", Incomparable},
		"no project against a known": {a.Repository, "", Incomparable},
	} {
		if got, why := s.ComparePoints(a, Point{c.repository, c.project, "2.6.2-rev1-b4.9"}); got != c.want {
			t.Errorf("%s: %s (%s), want %s", name, got, why, c.want)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		scheme, text string
		want         Tag
	}{
		"long":                       {"rev", "2.6.2-rev1-b5.1", Tag{Tier: Long, App: "2.6.2", Rev: 1, Build: []uint64{5, 1}}},
		"intermediate":               {"rev", "2.6.2-rev12", Tag{Tier: Intermediate, App: "2.6.2", Rev: 12}},
		"short":                      {"rev", "2.6.2", Tag{Tier: Short, App: "2.6.2"}},
		"floating":                   {"rev", "latest", Tag{Tier: Floating, App: "latest"}},
		"an application with hyphen": {"rev", "2.7.0-rc.1-rev1-b1", Tag{Tier: Long, App: "2.7.0-rc.1", Rev: 1, Build: []uint64{1}}},
		"the longest variant":        {"rev:slim,alpine-slim", "3-alpine-slim-rev1-b1", Tag{Tier: Long, App: "3", Variant: "alpine-slim", Rev: 1, Build: []uint64{1}}},
		"an undeclared variant":      {"rev", "3-alpine-rev1-b1", Tag{Tier: Long, App: "3-alpine", Rev: 1, Build: []uint64{1}}},
		"dotted long":                {"dotted", "2.6.1-1.100", Tag{Tier: Long, App: "2.6.1", Rev: 1, Build: []uint64{100}}},
		"dotted intermediate":        {"dotted", "2.6.1-1", Tag{Tier: Intermediate, App: "2.6.1", Rev: 1}},
		"dashed long":                {"dashed", "2.6.1-1-100", Tag{Tier: Long, App: "2.6.1", Rev: 1, Build: []uint64{100}}},
		"release long":               {"release", "10.2.15-3.2", Tag{Tier: Long, App: "10.2.15", Build: []uint64{3, 2}}},
		"release short":              {"release", "10.2.15", Tag{Tier: Short, App: "10.2.15"}},
		"distro-r long":              {"distro-r", "1.2.3-debian-12-r7", Tag{Tier: Long, App: "1.2.3", Variant: "debian-12", Build: []uint64{7}}},
		"distro-r intermediate":      {"distro-r", "1.2.3-debian-12", Tag{Tier: Intermediate, App: "1.2.3", Variant: "debian-12"}},
		"single":                     {"single", "v1.31.2", Tag{Tier: Long, App: "v1.31.2"}},
		"semver aggregate":           {"semver", "1.2", Tag{Tier: Floating, App: "1.2"}},
		"date":                       {"date", "2026.11.20.3", Tag{Tier: Long, App: "2026.11.20", Build: []uint64{3}}},
		"the greatest number":        {"rev", "1-rev18446744073709551615-b0", Tag{Tier: Long, App: "1", Rev: 18446744073709551615, Build: []uint64{0}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.want.Text, c.want.Scheme = c.text, c.scheme
			got, err := scheme(t, c.scheme).Parse(c.text)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ scheme, text, why string }{
		"empty":                     {"rev", "", "empty"},
		"129 characters":            {"rev", strings.Repeat("1", 129), "128"},
		"a plus":                    {"rev", "1.0+1", "'+'"},
		"a tilde":                   {"rev", "1.0~rc1", "'~'"},
		"an epoch":                  {"rev", "1:1.0", "':'"},
		"a hyphen first":            {"rev", "-x", "begins"},
		"a dot first":               {"rev", ".x", "begins"},
		"revision 0":                {"rev", "1.0-rev0-b1", "begins with 1"},
		"a leading zero in rev":     {"rev", "1.0-rev01-b1", "leading zero"},
		"a leading zero in build":   {"rev", "1.0-rev1-b01", "leading zero"},
		"rev beyond 64 bits":        {"rev", "1-rev18446744073709551616-b0", "64 bits"},
		"a build without number":    {"rev", "1.0-rev1-b", "-rev stands inside"},
		"two revs":                  {"rev", "1.0-rev1-rev2-b1", "-rev stands inside"},
		"a day that is none":        {"date", "20260230", "20260230"},
		"more than a semver":        {"semver", "1.2.3.4", "semantic"},
		"a leading zero in semver":  {"semver", "1.02.3", "semantic"},
		"not of a declared pattern": {`regexp:(?P<app>\d+)-(?P<build>\d+)`, "1.2.3", "not one of scheme"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := scheme(t, c.scheme).Parse(c.text)
			if err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%q: %+v, %v; want an error with %q", c.text, got, err, c.why)
			}
		})
	}
	if _, err := (Scheme{}).Parse("1.0"); err == nil {
		t.Error("an undeclared scheme reads tags")
	}
}

func TestByNameRefuses(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]string{
		"unknown": "guess", "a bad expression": "regexp:(", "no app": "regexp:(?P<rev>1)", "an unknown group": "regexp:(?P<app>1)(?P<day>2)", "an illegal variant": "rev:a+b", "empty variant": "rev:",
	} {
		if got, err := ByName(s); err == nil {
			t.Errorf("%s: %q gives %v", name, s, got)
		}
	}
}

func TestPointers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		scheme, long string
		want         []string
	}{
		"rev":               {"rev", "2.6.2-rev1-b5.1", []string{"2.6.2-rev1", "2.6.2"}},
		"rev with variant":  {"rev:alpine", "2.6.2-alpine-rev1-b5", []string{"2.6.2-alpine-rev1", "2.6.2-alpine"}},
		"dotted":            {"dotted", "2.6.1-1.100", []string{"2.6.1-1", "2.6.1"}},
		"dashed":            {"dashed", "2.6.1-1-100", []string{"2.6.1-1", "2.6.1"}},
		"release":           {"release", "10.2.15-3.2", []string{"10.2.15"}},
		"distro-r":          {"distro-r", "1.2.3-debian-12-r7", []string{"1.2.3-debian-12", "1.2.3"}},
		"single has none":   {"single", "v1.31.2", nil},
		"semver has none":   {"semver", "1.31.2-rc.1", nil},
		"a day is no point": {"date", "20261120.3", nil},
	} {
		got, err := scheme(t, c.scheme).Pointers(c.long)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	if _, err := scheme(t, "rev").Pointers("2.6.2-rev1"); err == nil {
		t.Error("pointers of a pointer")
	}
	if _, err := scheme(t, `regexp:(?P<app>\d+)-(?P<build>\d+)`).Pointers("1-2"); err == nil {
		t.Error("a declared expression writes tags")
	}
}

func TestAggregates(t *testing.T) {
	t.Parallel()
	for app, want := range map[string][]string{"2.6.2": {"2.6", "2"}, "v2.6": {"v2"}, "3": nil, "2.7.0-rc.1": nil, "main": nil} {
		if d := cmp.Diff(want, Aggregates(app)); d != "" {
			t.Errorf("%s: %s", app, d)
		}
	}
}

func TestEncode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		app     string
		mapping map[string]string
		want    string // "" is refused
	}{
		"nothing to do":         {"1.2.3", nil, "1.2.3"},
		"plus, with mapping":    {"1.2.3+4", PlusAsUnderscore(), "1.2.3_4"},
		"plus, without":         {"1.2.3+4", nil, ""},
		"an epoch":              {"1:1.2.3", PlusAsUnderscore(), ""},
		"a tilde":               {"1.2~rc1", PlusAsUnderscore(), ""},
		"a tilde, with mapping": {"1.2~rc1", map[string]string{"~": "-"}, "1.2-rc1"},
		"mapped to no tag":      {"1.2~rc1", map[string]string{"~": "%"}, ""},
	} {
		got, err := Encode(c.app, c.mapping)
		if (err == nil) != (c.want != "") || (err == nil && got != c.want) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
}

func TestGuess(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tags []string
		want string
	}{
		"long tags":                {[]string{"2.6.2", "2.6.2-rev1", "2.6.2-rev1-b5.1", "latest"}, "rev"},
		"distribution revisions":   {[]string{"1.2.3", "1.2.3-debian-12", "1.2.3-debian-12-r7"}, "distro-r"},
		"days":                     {[]string{"20261120", "20261121", "latest"}, "date"},
		"semantic versions":        {[]string{"v1.31.2", "v1.31.3-rc.0", "v1.31"}, "semver"},
		"dotted or release or ...": {[]string{"2.6.1-1.100", "2.6.1-1.99"}, ""},
		"only pointers":            {[]string{"latest", "stable"}, ""},
		"nothing":                  {nil, ""},
	} {
		got, why := Guess(c.tags)
		if got.Name() != c.want || why == "" {
			t.Errorf("%s: %q (%s), want %q", name, got.Name(), why, c.want)
		}
	}
}

func TestSort(t *testing.T) {
	t.Parallel()
	got := scheme(t, "rev:alpine").Sort([]string{"latest", "2.6.2-rev10-b1", "2.6.2-rev9-b1", "2.6.2", "2.7.0-rev1-b1", "2.7.0-rc.1-rev1-b1", "2.7.0rc1-rev1-b1", "2.6-rev1-b1", "2.6.2-alpine-rev1-b2", "2.6.2-rev1-b01"})
	want := Sorted{
		Lines: []Line{
			{Tags: []string{"2.6-rev1-b1"}},
			{Tags: []string{"2.6.2-rev9-b1", "2.6.2-rev10-b1", "2.7.0-rc.1-rev1-b1", "2.7.0-rev1-b1"}},
			{Tags: []string{"2.7.0rc1-rev1-b1"}},
			{Variant: "alpine", Tags: []string{"2.6.2-alpine-rev1-b2"}},
		},
		Pointers: []string{"2.6.2", "latest"},
		Refused:  []Refused{{"2.6.2-rev1-b01", `tag "2.6.2-rev1-b01" is not one of scheme rev:alpine: build: number 01 has a leading zero`}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestInRange(t *testing.T) {
	t.Parallel()
	s := scheme(t, "rev")
	for name, c := range map[string]struct {
		tag, text string
		want      bool
	}{
		"the revision does not take it out": {"2.6.2-rev1-b1.1", "~2.6", true},
		"the next minor":                    {"2.7.0-rev1-b1.1", "~2.6", false},
		"wildcard":                          {"2.6.2-rev1-b1.1", "2.6.x", true},
		"above":                             {"2.6.2-rev1", ">=2.6.0", true},
		"alternatives":                      {"4.1.9", ">=2.6 <3 || ~4.1", true},
		"between":                           {"3.0.0", ">= 2.6, <3", false},
		"a pre-release that the range does not name": {"2.7.0-rc.1-rev1-b1", ">=2.6", false},
		"a pre-release that was named":               {"2.7.0-rc.2-rev1-b1", ">=2.7.0-rc.1", true},
		"no version":                                 {"latest", "*", false},
	} {
		r, err := ParseRange(c.text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.InRange(c.tag, r); err != nil || got != c.want {
			t.Errorf("%s: %s in %s: %v, %v", name, c.tag, c.text, got, err)
		}
	}
	for _, bad := range []string{"", "||", ">=", "=>1", "one", "~2.6 ||"} {
		if _, err := ParseRange(bad); err == nil {
			t.Errorf("range %q is read", bad)
		}
	}
}
