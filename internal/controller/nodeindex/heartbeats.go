package nodeindex

import (
	"sync"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/gate"
)

// Heartbeats of all agents; the zero value is empty.
type Heartbeats struct {
	mu    sync.Mutex
	beats map[string]beat
}

// beat is an agent's heartbeat and when this process saw it change. It watches it since first.
type beat struct{ said, seen, first time.Time }

// LastHeard is when the heartbeat of an agent changed last, zero if it has none.
func (p *Heartbeats) LastHeard(nu *v1alpha1.NodeUpdate, now time.Time) time.Time {
	return p.look(nu, now).seen
}

func (p *Heartbeats) look(nu *v1alpha1.NodeUpdate, now time.Time) beat {
	if nu == nil || nu.Status.Agent == nil || nu.Status.Agent.Heartbeat == nil {
		return beat{first: now}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.beats == nil {
		p.beats = map[string]beat{}
	}
	said := nu.Status.Agent.Heartbeat.Time
	key := nu.Name + " " + string(nu.UID)
	b, known := p.beats[key]
	switch {
	case !known:
		b = beat{said, said, now}
		if said.After(now) {
			b.seen = now
		}
	case !said.Equal(b.said):
		b = beat{said, now, now}
	}
	p.beats[key] = b
	return b
}

// Watched is how long this process has seen no new heartbeat of an agent. It is not more than
// this process has run: what happened before may have been an API server that was unavailable.
func (p *Heartbeats) Watched(nu *v1alpha1.NodeUpdate, now time.Time) time.Duration {
	return now.Sub(p.look(nu, now).first)
}

// Silent reports whether the heartbeat of an agent is overdue.
func (p *Heartbeats) Silent(nu *v1alpha1.NodeUpdate, now time.Time) bool {
	every := int32(0)
	if nu != nil {
		every = nu.Spec.HeartbeatSeconds
	}
	return now.Sub(p.LastHeard(nu, now)) > gate.SilentAfter(every)
}
