package agent

import (
	"context"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// healthEvery is how often the node's health is looked at: certificates, etcd,
// the clock. It goes to the API server with the next heartbeat.
const healthEvery = time.Minute

func (a *Agent) healthLoop(ctx context.Context) {
	if a.health == nil {
		return
	}
	each(ctx, nil, healthEvery, func(ctx context.Context) {
		call, cancel := context.WithTimeout(ctx, healthEvery)
		defer cancel()
		h := a.health(call)
		a.update(func(s *state) { s.health = h })
	})
}

// quietHealth is health without what changes from look to look: that alone is
// worth no write.
func quietHealth(h *v1alpha1.NodeHealth) {
	if h == nil {
		return
	}
	h.ClockSkewSeconds = nil
	if h.Etcd != nil {
		h.Etcd.SizeBytes, h.Etcd.InUseBytes = 0, 0
	}
}
