package imagetag

import (
	"slices"
	"strings"
	"testing"
)

// Every operator with the versions around its bound: * is inside, . is outside.
func TestRangeTable(t *testing.T) {
	t.Parallel()
	versions := []string{"1.9.9", "2", "2.5.9", "2.6", "2.6.0", "2.6.1", "2.6.2-rc.1", "2.6.2", "2.6.2.1", "2.6.3", "2.7.0", "3.0.0", "10.0.0"}
	for text, want := range map[string]string{
		"*":            "******.******",
		"=2.6.2":       ".......**....",
		"2.6.2":        ".......**....",
		"2.6":          "...***.***...",
		"2.6.x":        "...***.***...",
		"2":            ".*****.****..",
		"2.x":          ".*****.****..",
		"!=2.6.2":      "******...****",
		"!=2.6":        "***.......***",
		">2.6.2":       ".........****",
		">=2.6.2":      ".......******",
		"<2.6.2":       "******.......",
		"<=2.6.2":      "******.**....",
		">2.6":         "..........***",
		">=2.6":        "...***.******",
		"<2.6":         "***..........",
		"<=2.6":        "******.***...",
		"~2.6.1":       ".....*.***...",
		"~2.6":         "...***.***...",
		"~2":           ".*****.****..",
		"^2.6.1":       ".....*.****..",
		"^2":           ".*****.****..",
		"^0":           ".............",
		">=2.6 <3":     "...***.****..",
		">=2.6,<3":     "...***.****..",
		">= 2.6 < 3":   "...***.****..",
		"<2 || >=3":    "*..........**",
		"2.6.2-rc.1":   "......*......",
		">=2.6.2-rc.1": "......*******",
		"v2.6.2":       ".......**....",
	} {
		r, err := ParseRange(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := ""
		for _, v := range versions {
			got += map[bool]string{true: "*", false: "."}[r.Has(v)]
		}
		if got != want || r.String() != text {
			t.Errorf("%-12s %s, want %s", text, got, want)
		}
	}
	for text, in := range map[string][2]string{"^0.2.3": {"0.2.9", "0.3.0"}, "^0.0.3": {"0.0.3", "0.0.4"}, "^0.0": {"0.0.9", "0.1.0"}, "^1.2": {"1.9.0", "2.0.0"}} {
		r, err := ParseRange(text)
		if err != nil || !r.Has(in[0]) || r.Has(in[1]) {
			t.Errorf("%s: %s %t, %s %t, %v", text, in[0], r.Has(in[0]), in[1], r.Has(in[1]), err)
		}
	}
	for _, bad := range []string{"", "||", "2 ||", "x.y", ">", "2.x-rc.1", "latest", ">=2.6 nonsense", "2..6"} {
		if r, err := ParseRange(bad); err == nil {
			t.Errorf("%q is %+v", bad, r)
		}
	}
	if (Range{}).Has("anything") != true {
		t.Error("the zero range has every version")
	}
}

// The words in which two tags are compared.
func TestCompareWords(t *testing.T) {
	t.Parallel()
	s, err := ByName("rev")
	if err != nil {
		t.Fatal(err)
	}
	for pair, want := range map[[2]string]string{
		{"2.6.2-rev1-b5.1", "2.6.2-rev1-b5.1"}:  "same: one tag",
		{"2.6.2-rev1", "2.6.2-rev1"}:            "same: one tag; it is intermediate and may move, so only digests say whether it was one image each time",
		{"2.6.2-rev1", "2.6.2-rev1-b5.1"}:       "incomparable: 2.6.2-rev1 is a pointer (intermediate) and may move: resolve it to its digest, then compare the long tag that has that digest",
		{"2.6.2-rev1-b5.1", "2.6.3-rev1-b1.1"}:  "older: version 2.6.2 is below 2.6.3",
		{"2.6.3-rev1-b1.1", "2.6.2-rev1-b5.1"}:  "newer: version 2.6.3 is above 2.6.2",
		{"2.6.2-rev2-b1.1", "2.6.2-rev1-b5.1"}:  "newer: revision 2 of 2.6.2 is above 1",
		{"2.6.2-rev1-b5.1", "2.6.2-rev2-b1.1"}:  "older: revision 1 of 2.6.2 is below 2",
		{"2.6.2-rev1-b5.2", "2.6.2-rev1-b5.1"}:  "newer: build",
		{"2.6.2-rev1-b9.1", "2.6.2-rev1-b10.1"}: "older: build",
		{"2.6-rev1-b1.1", "2.6.0-rev1-b1.1"}:    "incomparable: versions 2.6 and 2.6.0 have no order",
	} {
		order, why := s.Compare(pair[0], pair[1])
		if got := string(order) + ": " + why; !strings.HasPrefix(got, want) {
			t.Errorf("%v: %s, want %s", pair, got, want)
		}
	}
	for pair, want := range map[[2]string]Order{{"2.7.0-rc.1", "2.7.0"}: Older, {"2.7.0", "2.7.0"}: Same, {"2.8.0", "2.7.0"}: Newer, {"2.6", "2.6.0"}: Incomparable, {"x", "2.6.0"}: Incomparable} {
		if got, why := CompareApps(pair[0], pair[1]); got != want || want == Same && why != "version 2.7.0 is equal to 2.7.0" {
			t.Errorf("%v: %s (%s)", pair, got, why)
		}
	}
	for name, points := range map[string][2]Point{"two repositories": {{"a", "", "1"}, {"b", "", "1"}}, "two projects": {{"a", "x", "1"}, {"a", "y", "1"}}} {
		if got, why := s.ComparePoints(points[0], points[1]); got != Incomparable || !strings.Contains(why, name) {
			t.Errorf("%s: %s (%s)", name, got, why)
		}
	}
}

// What is written is read as what was meant, or it is not written.
func TestWriteAndPointers(t *testing.T) {
	t.Parallel()
	s, err := ByName("rev")
	if err != nil {
		t.Fatal(err)
	}
	good := Tag{App: "2.6.2", Rev: 1, Build: []uint64{5, 1}}
	if text, err := s.Write(good); err != nil || text != "2.6.2-rev1-b5.1" {
		t.Errorf("%s, %v", text, err)
	}
	for name, bad := range map[string]Tag{
		"a version that looks like a revision": {App: "2.6.2-rev3", Rev: 1, Build: []uint64{5, 1}},
		"a version that looks like a build":    {App: "2.6.2-rev1-b5", Rev: 0},
		"a variant that rev has not":           {App: "2.6.2", Variant: "alpine", Rev: 1, Build: []uint64{5, 1}},
		"a build without a revision":           {App: "2.6.2", Build: []uint64{5, 1}},
		"nothing":                              {},
	} {
		if text, err := s.Write(bad); err == nil {
			t.Errorf("%s: %s", name, text)
		}
	}
	if ps, err := s.Pointers("2.6.2-rev1-b5.1"); err != nil || !slices.Equal(ps, []string{"2.6.2-rev1", "2.6.2"}) {
		t.Errorf("%v, %v", ps, err)
	}
	if ps, err := s.Pointers("2.6.2-rev1"); err == nil {
		t.Errorf("%v", ps)
	}
	for app, want := range map[string]bool{"2.6.2": true, "2.6.2-rc.1": false, "2.6.2rc1": false, "latest": false, "2": true, "": false} {
		if got := IsRelease(app); got != want {
			t.Errorf("%s is a release: %t", app, got)
		}
	}
	for app, want := range map[string]string{"2.6.2": "2.6 2", "2": "", "2.6.2-rc.1": "", "x": ""} {
		if got := strings.Join(Aggregates(app), " "); got != want {
			t.Errorf("%s: %s", app, got)
		}
	}
	if names := Names(); len(names) < 6 || !slices.Contains(names, "rev") || !slices.Contains(names, "date") {
		t.Error(names)
	}
}

// Each character that a tag may have, at its edges, and the longest name and path.
func TestEdges(t *testing.T) {
	t.Parallel()
	for c := range rune(256) {
		want := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_.-", c)
		if got := Legal("a"+string(c)) == nil; got != want {
			t.Errorf("%q is legal: %t", c, got)
		}
		if first := Legal(string(c)) == nil; first != (want && c != '.' && c != '-') {
			t.Errorf("%q is legal at the beginning: %t", c, first)
		}
	}
	if Legal(strings.Repeat("a", 128)) != nil || Legal(strings.Repeat("a", 129)) == nil || Legal("") == nil {
		t.Error("length of a tag")
	}
	if _, err := ParseRef("r.example/" + strings.Repeat("a", 255)); err != nil {
		t.Error(err)
	}
	if _, err := ParseRef("r.example/" + strings.Repeat("a", 256)); err == nil {
		t.Error("256 characters of a repository")
	}
}
