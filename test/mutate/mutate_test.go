package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const sample = `package sample

const limit = 3

type gauge struct{ n int }

func (g *gauge) tooHigh(open bool) bool {
	if open && g.n > limit {
		return true
	}
	g.n++
	return false
}

func names(in []string) (out []string, err error) {
	for _, s := range in {
		if !keep(s) {
			continue
		}
		out = append(out, s)
	}
	x := len(out) + 1
	_ = x
	return out, nil
}

func keep(s string) bool { return func() bool { return s != "" }() }
`

func TestMutantsOfASource(t *testing.T) {
	t.Parallel()
	s := &subject{units: map[string][]*unit{}, sources: map[string][]byte{}, root: t.TempDir()}
	if err := os.WriteFile(filepath.Join(s.root, "sample.go"), []byte(sample), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.parse("sample.go"); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range s.mutants {
		got = append(got, m.Function+": "+m.Old+" => "+m.New)
	}
	want := []string{
		"limit: 3 => (3 + 1)",
		"gauge.tooHigh: open && g.n > limit => (open || g.n > limit)",
		"gauge.tooHigh: open && g.n > limit => open",
		"gauge.tooHigh: open && g.n > limit => g.n > limit",
		"gauge.tooHigh: g.n > limit => (g.n >= limit)",
		"gauge.tooHigh: open && g.n > limit => !(open && g.n > limit)",
		"gauge.tooHigh: true => false",
		"gauge.tooHigh: g.n++ => (removed)",
		"gauge.tooHigh: false => true",
		"names: !keep(s) => keep(s)",
		"names: continue => (removed)",
		"names: out = append(out, s) => (removed)",
		"names: len(out) + 1 => (len(out) - 1)",
		"names: 1 => (1 + 1)",
		"names: _ = x => (removed)",
		"names: return out, nil => return zero values",
		`keep: return func() bool { return s != "" }() => return zero values`,
		`keep: s != "" => (s == "")`,
		`keep: return s != "" => return zero values`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	woven := weave([]byte(sample), s.units["sample.go"], nil)
	if _, err := parser.ParseFile(token.NewFileSet(), "woven.go", woven, 0); err != nil {
		t.Errorf("%v\n%s", err, woven)
	}
	for i, line := range strings.Split(string(woven), "\n") {
		if strings.Contains(line, "out || g.n") && owner(woven, i+1) == 0 {
			t.Errorf("line %d belongs to no mutant: %s", i+1, line)
		}
	}
}

// The package below testdata has one function that its test covers wholly, and
// one that it covers in part.
func TestAPackageIsMeasured(t *testing.T) {
	t.Parallel()
	o := options{root: "../..", folder: "test/mutate/testdata", packages: []string{"test/mutate/testdata/sample"}, parallel: 2}
	r, err := o.measure()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range r.survivors {
		got = append(got, m.Function+": "+m.Old+" => "+m.New)
	}
	want := []string{"Half: a && b => b"}
	if !slices.Equal(got, want) {
		t.Errorf("survivors %q, want %q", got, want)
	}
	total := r.total()
	if total.equivalent != 1 || total.timedOut != 0 || total.killed < 5 || total.tested() != total.killed+1 {
		t.Errorf("%+v", total)
	}
	if !strings.Contains(r.String(), "sample.go:16: Half: a && b  =>  b\n") {
		t.Error(r)
	}

	o.functions = map[string]bool{"test/mutate/testdata/sample Full": true}
	if r, err = o.measure(); err != nil || len(r.survivors) != 0 || r.score() != 100 {
		t.Error(r, err)
	}
	o.functions = map[string]bool{"test/mutate/testdata/sample Gone": true}
	if _, err = o.measure(); err == nil {
		t.Error("a predicate that does not exist is passed over")
	}
}

func TestAnEquivalentNeedsAReason(t *testing.T) {
	t.Parallel()
	m := &mutant{Package: "p", File: "f.go", Function: "F", Old: "a", New: "b"}
	s := []*subject{{dir: "p", mutants: []*mutant{m}}}
	for line, ok := range map[string]bool{
		"p/f.go: F: a  =>  b  # the same":                          true,
		"p/f.go: F: a  =>  b":                                      false,
		"p/f.go: F: a  =>  b  # ":                                  false,
		"p/f.go: F: a  =>  c  # stale":                             false,
		"q/f.go: F: a  =>  c  # of a package that is not measured": true,
	} {
		if _, err := equivalents([]string{line}, s); (err == nil) != ok {
			t.Errorf("%q: %v", line, err)
		}
	}
}

// The lists of the repository fit its code.
func TestTheListsFit(t *testing.T) {
	t.Parallel()
	lines, err := readList("equivalent.txt")
	if err != nil {
		t.Fatal(err)
	}
	o := options{root: "../..", folder: "test/mutate"}
	if err := o.read("", true); err != nil {
		t.Fatal(err)
	}
	var subjects []*subject
	for _, dir := range pure {
		s, err := load("../..", dir, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		subjects = append(subjects, s)
	}
	if _, err := equivalents(lines, subjects); err != nil {
		t.Error(err)
	}
	o.packages = pure
	if _, err := o.choose(subjects); err != nil {
		t.Error(err)
	}
}
