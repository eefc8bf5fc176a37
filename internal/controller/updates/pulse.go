package updates

import (
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/gate"
)

// beat is an agent's heartbeat and when this process saw it change.
type beat struct{ said, seen time.Time }

// heard says when an agent was last heard, by this process's own clock: the
// clock of a node may be wrong. Only a heartbeat that was there before this
// process is believed as it stands, until the next one comes.
func (r *Reconciler) heard(nu *v1alpha1.NodeUpdate, now time.Time) time.Time {
	if nu == nil || nu.Status.Agent == nil || nu.Status.Agent.Heartbeat == nil {
		return time.Time{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pulse == nil {
		r.pulse = map[string]beat{}
	}
	said := nu.Status.Agent.Heartbeat.Time
	key := nu.Name + " " + string(nu.UID)
	b, known := r.pulse[key]
	switch {
	case !known:
		b = beat{said, said}
		if said.After(now) {
			b.seen = now
		}
	case !said.Equal(b.said):
		b = beat{said, now}
	}
	r.pulse[key] = b
	return b.seen
}

// silent reports whether an agent has not been heard for too long.
func (r *Reconciler) silent(nu *v1alpha1.NodeUpdate, now time.Time) bool {
	return now.Sub(r.heard(nu, now)) > gate.SilentAfter
}

// once reports true the first time it is asked about something.
func (r *Reconciler) once(what string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told == nil {
		r.told = map[string]bool{}
	}
	first := !r.told[what]
	r.told[what] = true
	return first
}
