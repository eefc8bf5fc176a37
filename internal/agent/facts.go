package agent

import (
	"context"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// factsEvery is how often the node is looked at.
const factsEvery = 20 * time.Second

func (a *Agent) factsLoop(ctx context.Context) {
	each(ctx, a.kickFacts, factsEvery, func(ctx context.Context) {
		call, cancel := context.WithTimeout(ctx, factsEvery)
		defer cancel()
		o := a.facts.Observe(call)
		if name, version, err := a.runtime.Version(call); err == nil {
			o.RuntimeName, o.RuntimeVersion = name, version
		} else if last := a.lastObserved(); last != nil {
			o.RuntimeName, o.RuntimeVersion = last.RuntimeName, last.RuntimeVersion
		}
		a.update(func(s *state) { s.observed = &o })
	})
}

func (a *Agent) lastObserved() *v1alpha1.Observed {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state.observed
}

// runLoop has the runner go on with a run, also one that was cut off.
func (a *Agent) runLoop(ctx context.Context) {
	each(ctx, a.kickRun, time.Minute, func(ctx context.Context) {
		var permitted *v1alpha1.NodeRun
		if w := a.wanted(); w != nil {
			permitted = w.Spec.Run
		}
		a.runner.Run(ctx, permitted, func(r *v1alpha1.NodeRunStatus) {
			a.update(func(s *state) { s.run = r })
			kick(a.kickFacts)
		})
	})
}
