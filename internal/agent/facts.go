package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/update/updaters"
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

// runEvery is how often it is asked whether there is something to run.
const runEvery = time.Minute

// runLoop has the runner go on with a run, also one that was cut off.
func (a *Agent) runLoop(ctx context.Context) {
	permitted := func() *v1alpha1.NodeRun {
		if w := a.wanted(); w != nil {
			return w.Spec.Run
		}
		return nil
	}
	each(ctx, a.kickRun, runEvery, func(ctx context.Context) {
		a.runner.Run(ctx, permitted, func(r *v1alpha1.NodeRunStatus) {
			a.update(func(s *state) { s.run = r })
			kick(a.kickFacts)
		})
	})
}

// payload finds a file of an allowed bundle in the store.
func (a *Agent) payload(digest, name string) (updaters.Payload, error) {
	no := func(why string) (updaters.Payload, error) {
		return updaters.Payload{}, fmt.Errorf("payload %s of bundle %s: %w: %s", name, digest, updaters.ErrNoPayload, why)
	}
	shelf := a.library.Shelf(digest)
	if shelf == nil {
		return no("the bundle is not known here")
	}
	if w := a.wanted(); w != nil {
		for _, d := range w.Trust.RevokedDigests {
			if d == digest {
				return no("the bundle is revoked")
			}
		}
	}
	p := shelf.Bundle().PayloadByName(name, platform())
	if p == nil {
		return no("the bundle has none for " + platform())
	}
	if !shelf.HasBlob(p.Blob) {
		return no("it was not copied to this node")
	}
	path, err := a.library.Blobs().Path(p.Digest)
	if err != nil {
		return no(err.Error())
	}
	return updaters.Payload{Path: path, Digest: p.Digest}, nil
}
