package track

import (
	"testing"

	"github.com/refit-dev/refit/internal/imagetag"
)

func TestUnfollowed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		scheme   string
		versions string
		listed   []string
		why      string
		unfit    bool
	}{
		"no tags": {"rev", "", nil, "it has no tags", false},
		"the scheme is not theirs": {"date", "", []string{"2.6.2-rev1-b5.2", "2.6.2-rev1", "2.6.2-rev2-b1.1", "latest"},
			"scheme date reads none of its 4 tags, for example 2.6.2-rev1, 2.6.2-rev1-b5.2, 2.6.2-rev2-b1.1; they look like scheme rev", true},
		"another tier":     {"rev", "", []string{"2.6.2", "2.6.3", "latest"}, "scheme rev reads 2 of its 3 tags, and none is of the tier that is followed, for example 2.6.2, 2.6.3", false},
		"out of the range": {"rev", "~3", []string{"2.6.2-rev1", "2.6.2-rev1-b1", "2.6.2"}, "1 of its 3 tags are of the tier that is followed, and none is in the range ~3, for example 2.6.2-rev1", false},
	} {
		tr := Track{Scheme: scheme(tc.scheme), Tier: imagetag.Intermediate, Versions: tc.versions}
		if got := Follow(tr, State{}, tc.listed); len(got) != 0 {
			t.Errorf("%s: follows %q", name, got)
		}
		if why, unfit := Unfollowed(tr, tc.listed); why != tc.why || unfit != tc.unfit {
			t.Errorf("%s: %t, %s", name, unfit, why)
		}
	}
}
