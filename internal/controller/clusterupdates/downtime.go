package clusterupdates

import (
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/controlplane"
)

// awayMeter measures how long the API server does not answer; see controlplane.DowntimeMeter.
type awayMeter interface {
	While(update string, moving bool)
	Read() controlplane.Downtime
}

// awayBase is what an update's status said of it when this process first looked at
// the update: what a process before measured.
type awayBase struct {
	update string
	v1alpha1.Unavailability
}

// measureAway writes how long the API server was away into an update's status: what
// an earlier process measured, and what this one did. It is computed anew at each
// look: the status that the cache shows may be older than the last write, so nothing
// is added to it.
func (r *Reconciler) measureAway(s *status, moving bool) {
	if r.Away == nil {
		return
	}
	uid := string(s.u.UID)
	r.Away.While(uid, moving)
	if r.awayBefore.update != uid {
		r.awayBefore = awayBase{update: uid}
		if s.out.APIUnavailable != nil {
			r.awayBefore.Unavailability = *s.out.APIUnavailable
		}
	}
	measured := r.Away.Read()
	if s.out.APIUnavailable == nil && measured.Total == 0 {
		return
	}
	sum := v1alpha1.Unavailability{Seconds: r.awayBefore.Seconds + whole(measured.Total), LongestSeconds: max(r.awayBefore.LongestSeconds, whole(measured.Longest))}
	sum.Seconds = max(sum.Seconds, sum.LongestSeconds) // each is rounded by itself
	s.out.APIUnavailable = &sum
}

func whole(d time.Duration) int64 { return int64(d.Round(time.Second) / time.Second) }
