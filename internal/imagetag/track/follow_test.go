package track

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/imagetag"
)

var published = []string{"2.6.1", "2.6.1-rev9", "2.6.1-rev9-b1.1", "2.6.1-rev10", "2.6.1-rev10-b1.1", "2.6.2", "2.6.2-rev1", "2.6.2-rev1-b5.9", "2.6.2-rev1-b5.10",
	"2.7.0-rev1", "2.7.0-rev1-b1.1", "2.6.2-alpine-rev1", "latest", "2.6"}

// Which tags are asked for.
func TestFollow(t *testing.T) {
	tier := func(versions string) Track {
		return Track{Scheme: scheme("rev:alpine"), Tier: imagetag.Intermediate, Versions: versions}
	}
	on := func(text string) State { return State{Approved: &Image{Tag: text}} }
	for name, c := range map[string]struct {
		track Track
		state State
		want  []string
	}{
		"one tag":               {Track{Scheme: scheme("rev"), Tag: "2.6.2-rev1"}, State{}, []string{"2.6.2-rev1"}},
		"the newest of a tier":  {tier(""), State{}, []string{"2.7.0-rev1"}},
		"the newest in a range": {tier("~2.6"), State{}, []string{"2.6.2-rev1"}},
		"rev10 is above rev9":   {tier("2.6.1"), State{}, []string{"2.6.1-rev10"}},
		"what runs, its next revision, the next version":              {tier(""), on("2.6.1-rev9"), []string{"2.6.1-rev9", "2.6.1-rev10", "2.7.0-rev1"}},
		"of its own variant only":                                     {tier(""), on("2.6.2-alpine-rev1"), []string{"2.6.2-alpine-rev1"}},
		"what runs is asked for even when it is not in the range now": {tier("~2.7"), on("2.6.2-rev1"), []string{"2.6.2-rev1", "2.7.0-rev1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(c.want, Follow(c.track, c.state, published)); d != "" {
				t.Fatal(d)
			}
		})
	}
}

// Which long tags may name what is behind a pointer.
func TestLongTags(t *testing.T) {
	x := Track{Scheme: scheme("rev:alpine")}
	for pointer, want := range map[string][]string{
		"2.6.2-rev1":      {"2.6.2-rev1-b5.10", "2.6.2-rev1-b5.9"},
		"2.6.1":           {"2.6.1-rev10-b1.1", "2.6.1-rev9-b1.1"},
		"2.6":             {"2.6.2-rev1-b5.10", "2.6.2-rev1-b5.9", "2.6.1-rev10-b1.1", "2.6.1-rev9-b1.1"},
		"latest":          {"2.7.0-rev1-b1.1", "2.6.2-rev1-b5.10", "2.6.2-rev1-b5.9", "2.6.1-rev10-b1.1", "2.6.1-rev9-b1.1"},
		"2.6.2-rev1-b5.9": {"2.6.2-rev1-b5.9"},
		"3.0":             nil,
	} {
		if d := cmp.Diff(want, LongTags(x, pointer, published)); d != "" {
			t.Errorf("%s: %s", pointer, d)
		}
	}
}

// stepTrack follows the newest intermediate tag and takes new versions by itself.
func stepTrack() Track {
	return Track{Repository: "r.example/app", Scheme: scheme("rev:alpine"), Tier: imagetag.Intermediate, Auto: map[Class]bool{NewVersion: true, ImageFix: true}}
}

// A track that is three minor versions behind takes them one after the other, of each the newest,
// and not the fixes in between.
func TestMinorVersionsOneAfterTheOther(t *testing.T) {
	t.Parallel()
	listed := []string{"2.6.0-rev1", "2.6.5-rev1", "2.7.0-rev1", "2.7.3-rev1", "2.8.0-rc.1-rev1", "2.8.1-rev1", "2.10.0-rev2", "2.9.0-alpine-rev1", "2.9.0", "latest"}
	for name, c := range map[string]struct {
		change func(*Track)
		want   []string
		// says is a part of why the newest is blocked at the end, "" if it is not.
		says string
	}{
		"by default":              {func(*Track) {}, []string{"2.7.3-rev1", "2.8.1-rev1", "2.10.0-rev2"}, ""},
		"where a jump is allowed": {func(x *Track) { x.SkipVersions = true }, []string{"2.10.0-rev2"}, ""},
		"a range leaves one out":  {func(x *Track) { x.Versions = "~2.7 || ~2.10" }, []string{"2.7.3-rev1"}, "skip 2.8"},
		"a range begins later":    {func(x *Track) { x.Versions = ">=2.8" }, nil, "skip 2.7, which"},
		"the step was refused":    {func(x *Track) { x.Refused = map[string]string{d("2.7.3-rev1"): "breaks"} }, nil, "skip 2.7, 2.8"},
		"an approval is no jump": {func(x *Track) {
			x.Auto, x.Approvals = nil, []Approval{{Digest: d("2.10.0-rev2"), Serial: 99, AnyOrder: true}}
		}, nil, "skip 2.7, 2.8"},
		"it moves to one far tag":  {func(x *Track) { x.Tier, x.Tag = "", "2.10.0-rev2" }, nil, "skip 2.7, 2.8"},
		"to the tag that is next":  {func(x *Track) { x.Tier, x.Tag = "", "2.7.0-rev1" }, []string{"2.7.0-rev1"}, ""},
		"dates are no versions":    {func(x *Track) { x.Scheme = scheme("date") }, nil, ""},
		"of another variant":       {func(x *Track) { x.Versions = "~2.9" }, nil, ""},
		"fixes of what runs first": {func(x *Track) { x.Versions = "~2.6" }, []string{"2.6.5-rev1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := stepTrack()
			c.change(&x)
			s := runs(Image{Digest: d("2.6.0-rev1"), Tag: "2.6.0-rev1"})
			var got []string
			var left []Candidate
			for range 6 {
				l := Observation{Minors: MinorVersions(x, s, listed)}
				for _, tag := range Follow(x, s, listed) {
					l.Images = append(l.Images, Image{Digest: d(tag), Tag: tag})
				}
				before := s.Approved.Tag
				s, left = Decide(x, Observe(s, l, noon), Found{}, noon)
				if s.Approved.Tag != before {
					got = append(got, s.Approved.Tag)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Fatal(diff)
			}
			says := ""
			for _, x := range left {
				if len(x.Skips) > 0 && x.Decision == Blocked {
					says = x.Why
				}
			}
			if !strings.Contains(says, c.says) || (c.says == "") != (says == "") {
				t.Fatalf("%+v", left)
			}
		})
	}
}

// After a rollback the versions between are still known, although no poll was made since.
func TestNoJumpAfterARollback(t *testing.T) {
	t.Parallel()
	listed := []string{"2.6.0-rev1", "2.7.0-rev1", "2.8.0-rev1"}
	x := stepTrack()
	old, mid := Image{Digest: d("6"), Tag: "2.6.0-rev1"}, Image{Digest: d("7"), Tag: "2.7.0-rev1"}
	s := runs(mid)
	s.History = []Image{old}
	x.MinAge = time.Hour
	s = Observe(s, Observation{Images: []Image{mid, {Digest: d("8"), Tag: "2.8.0-rev1"}}, Minors: MinorVersions(x, s, listed)}, noon)
	x.Refused = map[string]string{d("7"): "breaks"}
	s, _ = Decide(x, s, Found{}, noon)
	s, left := Decide(x, s, Found{}, noon.Add(2*time.Hour))
	if s.Approved.Tag != "2.6.0-rev1" || len(left) != 2 || len(left[0].Skips) != 1 {
		t.Fatalf("it runs %s: %+v", s.Approved.Tag, left)
	}
}

// Which minor versions are remembered: those of the followed tier and variant, above the oldest
// image, once, in order.
func TestMinorVersions(t *testing.T) {
	t.Parallel()
	listed := []string{"2.10.0-rev1", "2.8.0-rev1", "2.8.1-rev1", "2.5.0-rev1", "2.6.0-rev1", "2.11.0-rc.1-rev1", "2.9.0-alpine-rev1", "2.12.0", "3.0.0-rev1-b1.1", "latest", "x y"}
	approved := Image{Tag: "2.8.1-rev1"}
	for name, c := range map[string]struct {
		state State
		want  string
	}{
		"above the approved one":          {State{Approved: &approved}, "2.10"},
		"above one to roll back to":       {State{Approved: &approved, History: []Image{{Tag: "2.5.0-rev1"}}}, "2.6 2.8 2.10"},
		"by the long tag":                 {State{Approved: &Image{Tag: "latest", Long: "2.6.0-rev1-b1.1"}}, "2.8 2.10"},
		"a pre-release is of its version": {State{Approved: &Image{Tag: "2.6.0-rc.1-rev1"}}, "2.8 2.10"},
		"nothing is known":                {State{}, ""},
		"no version is known":             {State{Approved: &Image{Tag: "latest"}}, ""},
	} {
		if got := strings.Join(MinorVersions(stepTrack(), c.state, listed), " "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("3.%d.0-rev1", 99-i))
	}
	if got := MinorVersions(stepTrack(), State{Approved: &approved}, many); len(got) != 64 || got[0] != "3.0" || got[63] != "3.63" {
		t.Errorf("%d: %v", len(got), got)
	}
}

// Which versions a change skips, from a pre-release and to one too.
func TestSkippedMinors(t *testing.T) {
	t.Parallel()
	to := func(tag string, class Class) *Candidate { return &Candidate{Image: Image{Tag: tag}, Class: class} }
	known := State{Minors: []string{"2.6", "2.7", "2.8", "2.9", "bad"}, History: []Image{{Digest: d("6"), Tag: "2.6.0-rev1"}, {Digest: d("8"), Tag: "2.8.0-rev1"}, {Digest: d("0"), Tag: "latest"}}}
	approved := func(tag string) State {
		s := known
		s.Approved = &Image{Tag: tag}
		return s
	}
	for name, c := range map[string]struct {
		state State
		found Found
		to    *Candidate
		want  string
	}{
		"the next one":                     {approved("2.6.0-rev1"), Found{}, to("2.7.0-rev1", NewVersion), ""},
		"the one after it":                 {approved("2.6.0-rev1"), Found{}, to("2.8.0-rev1", NewVersion), "2.7"},
		"a pre-release of it":              {approved("2.6.0-rev1"), Found{}, to("2.8.0-rc.1-rev1", NewVersion), "2.7"},
		"from a pre-release":               {approved("2.6.0-rc.1-rev1"), Found{}, to("2.8.0-rev1", NewVersion), "2.7"},
		"another class":                    {approved("2.6.0-rev1"), Found{}, to("2.8.0-rev1", Backwards), ""},
		"no version":                       {approved("2.6.0-rev1"), Found{}, to("latest", NewVersion), ""},
		"from no version":                  {approved("latest"), Found{}, to("2.8.0-rev1", NewVersion), ""},
		"what runs is the start":           {known, Found{Running: []string{d("8")}}, to("2.9.0-rev1", NewVersion), ""},
		"the oldest of what runs counts":   {known, Found{Running: []string{d("8"), d("6")}}, to("2.9.0-rev1", NewVersion), "2.7 2.8"},
		"so does what a template names":    {known, Found{Workloads: []Workload{{Named: d("6")}}}, to("2.8.0-rev1", NewVersion), "2.7"},
		"an image without a version is no": {known, Found{Running: []string{d("0"), d("f")}}, to("2.9.0-rev1", NewVersion), ""},
	} {
		if got := strings.Join(skippedMinors(stepTrack(), c.state, c.found, c.to), " "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
