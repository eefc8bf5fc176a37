package agent

import (
	"context"
	"time"
)

// factsEvery is how often the loop observes the node.
const factsEvery = 20 * time.Second

// factsLoop observes the node: versions, file systems, fields of configurations. It repairs
// drift first, so that it reports the repaired node.
type factsLoop struct {
	*shared
	payloads *payloadFinder
	configs  *configApproval
	drift    *driftRepair
	facts    Facts
}

// Run observes the node at every wake-up and now and then.
func (l *factsLoop) Run(ctx context.Context) {
	each(ctx, l.wakeFacts, factsEvery, func(ctx context.Context) {
		call, cancel := context.WithTimeout(ctx, factsEvery)
		defer cancel()
		asked, config, hold := l.asked(call)
		l.drift.run(call)
		o := l.facts.Observe(call, asked)
		o.Config = config
		if name, version, err := l.runtime.Version(call); err == nil {
			o.RuntimeName, o.RuntimeVersion = name, version
		} else if last := l.lastObserved(); last != nil {
			o.RuntimeName, o.RuntimeVersion = last.RuntimeName, last.RuntimeVersion
		}
		news := false
		l.update(func(s *state) {
			news = s.observedPins != hold
			s.observed, s.observedPins = &o, hold
		})
		if news {
			wake(l.wakeImages) // it waits for the observation of the programs
		}
	})
}

// asked returns what to observe, and the names of the configuration and the pin set that it
// is for.
func (l *factsLoop) asked(ctx context.Context) (asked Asked, config, hold string) {
	w := l.desiredState()
	if w == nil {
		return Asked{}, "", ""
	}
	configs, whole := l.configs.publishable(ctx, w.Spec.Config, w.Rendered())
	if config = w.Spec.Config; !whole {
		config = "" // without all its fields its changes are unknown
	}
	return Asked{Configs: configs, Payloads: w.Pins.Payloads, Find: l.payloads.findPayload}, config, w.Spec.Pins
}
