package programs

import (
	"maps"
	"slices"
	"testing"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// What the planner wants, every node holds and this updater replaces is one list.
func TestKnownProgramsAreThoseOfABundle(t *testing.T) {
	if have, want := slices.Sorted(maps.Keys(replaceable)), bundle.Programs(); !slices.Equal(have, want) || PayloadPlugins != bundle.PayloadCNIPlugins {
		t.Fatalf("replaced here: %v\nin a bundle:  %v", have, want)
	}
}
