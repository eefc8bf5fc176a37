package agent

import (
	"context"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// healthEvery is how often the loop observes the node's certificates, etcd and clock. The next
// heartbeat reports them.
const (
	healthEvery = time.Minute
	// unhealthyEvery is how often it observes them while etcd is unhealthy, because the
	// gate waits for etcd.
	unhealthyEvery = 10 * time.Second
)

// healthLoop observes the node's certificates, etcd and clock.
type healthLoop struct {
	*shared
	// health observes the node; nil: its health is not reported.
	health func(ctx context.Context) *v1alpha1.NodeHealth
}

// Run observes the health now and then.
func (l *healthLoop) Run(ctx context.Context) {
	for l.health != nil && ctx.Err() == nil {
		wait := healthEvery
		call, cancel := context.WithTimeout(ctx, healthEvery)
		h := l.health(call)
		cancel()
		if h != nil && h.Etcd != nil && !h.Etcd.Healthy {
			wait = unhealthyEvery
		}
		l.update(func(s *state) { s.health = h })
		sleep(ctx, wait)
	}
}
