package agent

import (
	"context"
	"time"
)

// healthEvery is how often the node's health is looked at: certificates, etcd,
// the clock. It goes to the API server with the next heartbeat.
const (
	healthEvery = time.Minute
	// whileIll is how often it is looked at while etcd is not healthy: the gate
	// waits for it.
	whileIll = 10 * time.Second
)

func (a *Agent) healthLoop(ctx context.Context) {
	for a.health != nil && ctx.Err() == nil {
		wait := healthEvery
		call, cancel := context.WithTimeout(ctx, healthEvery)
		h := a.health(call)
		cancel()
		if h != nil && h.Etcd != nil && !h.Etcd.Healthy {
			wait = whileIll
		}
		a.update(func(s *state) { s.health = h })
		sleep(ctx, wait)
	}
}
