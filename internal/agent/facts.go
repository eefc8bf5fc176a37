package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/authority"
	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// factsEvery is how often the node is looked at.
const factsEvery = 20 * time.Second

func (a *Agent) factsLoop(ctx context.Context) {
	each(ctx, a.wakeFacts, factsEvery, func(ctx context.Context) {
		call, cancel := context.WithTimeout(ctx, factsEvery)
		defer cancel()
		asked, config, hold := a.asked(call)
		a.repairDrift(call)
		o := a.facts.Observe(call, asked)
		o.Config = config
		if name, version, err := a.runtime.Version(call); err == nil {
			o.RuntimeName, o.RuntimeVersion = name, version
		} else if last := a.lastObserved(); last != nil {
			o.RuntimeName, o.RuntimeVersion = last.RuntimeName, last.RuntimeVersion
		}
		news := false
		a.update(func(s *state) {
			news = s.observedHold != hold
			s.observed, s.observedHold = &o, hold
		})
		if news {
			wake(a.wakeHold) // it waits for what is seen of the programs
		}
	})
}

// asked says what somebody wants to know of this node: for which configuration and
// which hold list.
func (a *Agent) asked(ctx context.Context) (asked Asked, config, hold string) {
	w := a.wanted()
	if w == nil {
		return Asked{}, "", ""
	}
	configs, whole := a.visible(ctx, w.Spec.Config, w.Rendered())
	if config = w.Spec.Config; !whole {
		config = "" // then it is not known what it would change
	}
	return Asked{Configs: configs, Payloads: w.Hold.Payloads, Find: a.payload}, config, w.Spec.Pins
}

// config is a rendered configuration that this node was told.
func (a *Agent) config(name string) (data string, ok bool) {
	w := a.wanted()
	if w == nil {
		return "", false
	}
	data, ok = w.Configs[name]
	return data, ok
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
	run := func(ctx context.Context) {
		a.runner.Run(ctx, a.permitted, func(r *v1alpha1.NodeRunStatus) {
			a.update(func(s *state) { s.run = r })
			wake(a.wakeFacts)
		})
	}
	each(ctx, a.wakeRun, runEvery, func(ctx context.Context) {
		run(ctx) // goes on with what has begun, and reports what has ended
		if a.approveRun(ctx) {
			run(ctx)
		}
	})
}

// permitted is the run that may begin. What was read from disk at the start
// permits none: it may have been taken back while this agent was away, and the
// node may be full of pods again. Neither does a run that no administrator stands
// behind (approveRun). A run that has begun needs no permission.
func (a *Agent) permitted() *v1alpha1.NodeRun {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.heard || a.want == nil {
		return nil
	}
	if r := a.want.Spec.Run; r != nil && authority.RunKey(r) == a.approvedRun {
		return r
	}
	return nil
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
		if d := a.policy(w).Decide(shelf.Bundle()); !d.Allowed {
			return no(d.Verdict.Message)
		}
	}
	p := shelf.Bundle().PayloadByName(name, platform())
	if p == nil {
		return no("the bundle has none for " + platform())
	}
	if !shelf.HasBlob(p.Blob) {
		return no("it was not copied to this node")
	}
	if err := a.sound(shelf, p); err != nil {
		return updaters.Payload{}, err
	}
	path, err := a.library.Blobs().Path(p.Digest)
	if err != nil {
		return no(err.Error())
	}
	return updaters.Payload{Path: path, Digest: p.Digest}, nil
}

// held finds a file that this node is to hold, of whichever bundle brings it.
func (a *Agent) held(name, digest string) (updaters.Payload, error) {
	err := fmt.Errorf("payload %s with digest %s: %w: no approved bundle brings it", name, digest, updaters.ErrNoPayload)
	w := a.wanted()
	if w == nil {
		return updaters.Payload{}, err
	}
	for _, p := range w.Hold.Payloads {
		if p.Name != name || p.Digest != digest {
			continue
		}
		var found updaters.Payload
		if found, err = a.payload(p.Bundle, name); err == nil {
			return found, nil
		}
	}
	return updaters.Payload{}, err
}

// sound compares a payload with its digest, once in this agent's life. One that
// rotted is fetched again, and whoever wants it comes again.
func (a *Agent) sound(shelf *bundlestore.Shelf, p *bundle.Payload) error {
	a.mu.Lock()
	done := a.compared[p.Digest]
	a.mu.Unlock()
	if done {
		return nil
	}
	if bad := shelf.Recheck([]int{p.Blob}); bad > 0 {
		wake(a.wakeBundles)
		return fmt.Errorf("payload %s has rotted on this node's disk (%d chunks) and is fetched again", p.Name, bad)
	}
	a.mu.Lock()
	a.compared[p.Digest] = true
	a.mu.Unlock()
	return nil
}
