package publish

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// builds is a repository with ten builds of 1.0.0, one a month, the last in
// November 2026; pointers name the newest.
func builds() Published {
	p := Published{Repository: "r.example/app", Scheme: "rev", Tags: map[string]string{}, Images: map[string]Image{}}
	for i := 1; i <= 10; i++ {
		d := sum(fmt.Sprint("build ", i))
		p.Images[d] = Image{Digest: d, Created: time.Date(2026, time.Month(i+1), 1, 0, 0, 0, 0, time.UTC), Children: []string{sum(fmt.Sprint("child ", i))}}
		p.Tags[fmt.Sprintf("1.0.0-rev1-b%d", i)] = d
	}
	p.Tags["1.0.0-rev1"], p.Tags["1.0.0"] = sum("build 10"), sum("build 10")
	return p
}

// deleted are the builds that a plan would delete.
func deleted(t *testing.T, pub Published, keep Keep) string {
	t.Helper()
	r, err := Retain(pub, keep, now)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	var out []string
	for _, f := range r.Delete {
		for _, tag := range f.Tags {
			out = append(out, strings.TrimPrefix(tag, "1.0.0-rev1-b"))
		}
		n += len(f.Tags)
	}
	for _, f := range r.Keep {
		if n += len(f.Tags); len(f.Why) == 0 {
			t.Errorf("%s stays without a reason", f.Tags)
		}
	}
	if n != len(pub.Tags) {
		t.Errorf("the plan has %d tags of %d", n, len(pub.Tags))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// Retention: stated times, first releases, bundles, pointers.
func TestRetain(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		keep   Keep
		change func(*Published)
		want   string
	}{
		"without a period nothing goes":                   {Keep{}, nil, ""},
		"ninety days after they were replaced":            {Keep{For: 90 * day}, nil, "1 2 3 4 5 6"},
		"a build is as old as its successor":              {Keep{For: 300 * day}, nil, ""},
		"the last five builds stay":                       {Keep{For: day, Builds: 5}, nil, "1 2 3 4 5"},
		"what a rollback takes stays":                     {Keep{For: day}, nil, "1 2 3 4 5 6 7 8"},
		"the first release stays, by tag":                 {Keep{For: day, First: []string{"1.0.0-rev1-b1"}}, nil, "2 3 4 5 6 7 8"},
		"the first release stays, by digest":              {Keep{For: day, First: []string{sum("build 2")}}, nil, "1 3 4 5 6 7 8"},
		"what a bundle lists stays":                       {Keep{For: day, Listed: []Listing{{"bundle edge-1", []string{sum("build 3")}}}}, nil, "1 2 4 5 6 7 8"},
		"what a bundle lists by platform stays":           {Keep{For: day, Listed: []Listing{{"bundle edge-1", []string{sum("child 4")}}}}, nil, "1 2 3 5 6 7 8"},
		"until a day to come":                             {Keep{For: day, Until: map[string]time.Time{"1.0.0-rev1-b5": now.Add(day)}}, nil, "1 2 3 4 6 7 8"},
		"until a day that is over":                        {Keep{For: day, Until: map[string]time.Time{"1.0.0-rev1-b5": now.Add(-day)}}, nil, "1 2 3 4 5 6 7 8"},
		"an unknown pointer stays":                        {Keep{For: day}, func(p *Published) { p.Tags["stable"] = sum("build 6") }, "1 2 3 4 7 8"},
		"an unreadable tag stays":                         {Keep{For: day}, func(p *Published) { p.Tags["1.0-rev1-rev2"] = sum("build 6") }, "1 2 3 4 5 7 8"},
		"a manifest of an index that stays":               {Keep{For: day}, func(p *Published) { p.Images[sum("build 10")] = Image{Children: []string{sum("build 6")}} }, "1 2 3 4 5 7 8"},
		"unknown since when: a build without a date":      {Keep{For: day}, func(p *Published) { p.Images[sum("build 4")] = Image{} }, "1 2 4 5 6 7 8"},
		"unknown since when: a date before all computers": {Keep{For: day}, func(p *Published) { p.Images[sum("build 4")] = Image{Created: time.Unix(0, 0)} }, "1 2 4 5 6 7 8"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := builds()
			if c.change != nil {
				c.change(&p)
			}
			if d := cmp.Diff(c.want, deleted(t, p, c.keep)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestRetainWarnsOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	r, err := Retain(builds(), Keep{First: []string{"0.9.0"}}, now)
	if err != nil || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "0.9.0") {
		t.Errorf("%v, %v", r.Warnings, err)
	}
	if _, err := Retain(Published{Scheme: "mine"}, Keep{}, now); err == nil {
		t.Error("an unknown scheme")
	}
}

// For any settings, nothing that a pointer, a bundle or a first release names is
// deleted.
func TestRetainNeverDeletesWhatIsNamed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := builds()
		any := rapid.SampledFrom([]string{sum("build 1"), sum("build 2"), sum("build 5"), sum("build 9"), sum("child 3")})
		for i := range rapid.IntRange(0, 4).Draw(t, "pointers") {
			p.Tags[fmt.Sprint("pointer", i)] = any.Draw(t, "at")
		}
		keep := Keep{Builds: rapid.IntRange(0, 4).Draw(t, "builds"), For: time.Duration(rapid.IntRange(0, 400).Draw(t, "days")) * 24 * time.Hour,
			First: rapid.SliceOfN(any, 0, 2).Draw(t, "first"), Listed: []Listing{{"b", rapid.SliceOfN(any, 0, 3).Draw(t, "listed")}}}
		r, err := Retain(p, keep, now)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.Delete {
			for _, text := range f.Tags {
				if !strings.Contains(text, "-b") {
					t.Fatalf("pointer %s would go", text)
				}
			}
			for _, d := range append([]string{f.Digest}, p.Images[f.Digest].Children...) {
				if slices.Contains(keep.First, d) && d == f.Digest || slices.Contains(keep.Listed[0].Digests, d) {
					t.Fatalf("%s would go, and is named", f.Tags)
				}
			}
		}
	})
}
