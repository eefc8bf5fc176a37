package clusterupdates

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/controlplane"
)

// readings is a meter that a test sets.
type readings struct{ controlplane.Downtime }

func (r *readings) While(string, bool)          {}
func (r *readings) Read() controlplane.Downtime { return r.Downtime }

// Whatever copy of the status a cache shows, and whichever write fails, the time
// without an answer never shrinks, and in all it is never less than in a row.
func TestTimeAwayAddsUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		meter := &readings{}
		r := &Reconciler{Away: meter}
		earlier := v1alpha1.Unavailability{Seconds: 40, LongestSeconds: 25} // by the leader before
		written := []*v1alpha1.Unavailability{&earlier}
		for range rapid.IntRange(1, 12).Draw(rt, "looks") {
			if away := time.Duration(rapid.SampledFrom([]int{0, 0, 1, 3, 33}).Draw(rt, "away")) * time.Second; away > 0 {
				meter.Total, meter.Longest = meter.Total+away, max(meter.Longest, away)
			}
			// The cache shows the last write, or one before.
			shown := written[max(0, len(written)-1-rapid.IntRange(0, 2).Draw(rt, "writes that the cache lacks"))]
			s := &status{u: &v1alpha1.ClusterUpdate{}}
			s.u.UID = types.UID("u")
			s.out.APIUnavailable = shown.DeepCopy()
			r.measureAway(s, true)
			got := *s.out.APIUnavailable
			if got.Seconds < got.LongestSeconds {
				rt.Fatalf("%d s in all, and %d s in a row", got.Seconds, got.LongestSeconds)
			}
			if want := earlier.Seconds + int64(meter.Total/time.Second); got.Seconds != want {
				rt.Fatalf("%d s, want %d", got.Seconds, want)
			}
			if want := max(earlier.LongestSeconds, int64(meter.Longest/time.Second)); got.LongestSeconds != want {
				rt.Fatalf("%d s in a row, want %d", got.LongestSeconds, want)
			}
			if rapid.Bool().Draw(rt, "the write succeeds") {
				written = append(written, &got)
			}
		}
	})
}
