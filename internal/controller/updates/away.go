package updates

import (
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/apiaway"
)

// counted is how much of what was measured for an update is in its status.
type counted struct {
	update string
	apiaway.Reading
}

// measureAway adds to an update's status how long the API server was away since
// the status was written last.
func (r *Reconciler) measureAway(s *status, moving bool) {
	if r.Away == nil {
		return
	}
	uid := string(s.u.UID)
	r.Away.While(uid, moving)
	if r.counted.update != uid {
		r.counted = counted{update: uid}
	}
	s.away = r.Away.Read()
	if s.away.Total == r.counted.Total {
		return
	}
	sum := v1alpha1.Away{}
	if s.out.APIAway != nil {
		sum = *s.out.APIAway
	}
	sum.Seconds += whole(s.away.Total) - whole(r.counted.Total)
	sum.LongestSeconds = max(sum.LongestSeconds, whole(s.away.Longest))
	s.out.APIAway = &sum
}

func whole(d time.Duration) int64 { return int64(d.Round(time.Second) / time.Second) }

// noteAway remembers what is in the status now.
func (r *Reconciler) noteAway(s *status) { r.counted.Reading = s.away }
