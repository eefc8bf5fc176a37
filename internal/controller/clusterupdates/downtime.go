package clusterupdates

import (
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/clusterfacts"
)

// downtimeMeter measures how long the API server does not answer; see
// clusterfacts.DowntimeMeter.
type downtimeMeter interface {
	Track(update string, moving bool)
	Measured() clusterfacts.Downtime
}

// earlierDowntime is the downtime in an update's status when this process first read it: what
// an earlier process measured.
type earlierDowntime struct {
	update string
	v1alpha1.Unavailability
}

// recordDowntime writes the API server's downtime to an update's status: what an earlier
// process measured plus what this one did. Each reconcile computes the sum anew, because the
// cached status may be older than the last write.
func (r *Reconciler) recordDowntime(s *status, moving bool) {
	if r.Downtime == nil {
		return
	}
	uid := string(s.u.UID)
	r.Downtime.Track(uid, moving)
	if r.downtimeBefore.update != uid {
		r.downtimeBefore = earlierDowntime{update: uid}
		if s.out.APIUnavailable != nil {
			r.downtimeBefore.Unavailability = *s.out.APIUnavailable
		}
	}
	measured := r.Downtime.Measured()
	if s.out.APIUnavailable == nil && measured.Total == 0 {
		return
	}
	sum := v1alpha1.Unavailability{Seconds: r.downtimeBefore.Seconds + wholeSeconds(measured.Total), LongestSeconds: max(r.downtimeBefore.LongestSeconds, wholeSeconds(measured.Longest))}
	sum.Seconds = max(sum.Seconds, sum.LongestSeconds) // each is rounded separately
	s.out.APIUnavailable = &sum
}

func wholeSeconds(d time.Duration) int64 { return int64(d.Round(time.Second) / time.Second) }
