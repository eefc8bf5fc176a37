package clusterupdates

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/clusterfacts"
)

// readings is a meter that a test sets.
type readings struct{ clusterfacts.Downtime }

func (r *readings) Track(string, bool)              {}
func (r *readings) Measured() clusterfacts.Downtime { return r.Downtime }

// With every cached copy of the status and every failed write, the total downtime never
// shrinks and is never less than the longest downtime.
func TestDowntimeAddsUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		meter := &readings{}
		r := &Reconciler{Downtime: meter}
		earlier := v1alpha1.Unavailability{Seconds: 40, LongestSeconds: 25} // by the leader before
		written := []*v1alpha1.Unavailability{&earlier}
		for range rapid.IntRange(1, 12).Draw(rt, "looks") {
			if away := time.Duration(rapid.SampledFrom([]int{0, 0, 1, 3, 33}).Draw(rt, "away")) * time.Second; away > 0 {
				meter.Total, meter.Longest = meter.Total+away, max(meter.Longest, away)
			}
			// The cache shows the last write, or one before.
			shown := written[max(0, len(written)-1-rapid.IntRange(0, 2).Draw(rt, "writes missing in the cache"))]
			s := &status{u: &v1alpha1.ClusterUpdate{}}
			s.u.UID = types.UID("u")
			s.out.APIUnavailable = shown.DeepCopy()
			r.recordDowntime(s, true)
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
