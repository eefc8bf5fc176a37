package track

import (
	"testing"

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
