package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/authority"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/model"
)

const (
	// stageEvery is how often what cannot be made ready is tried again, and how soon
	// it is seen that somebody dropped it.
	stageEvery = time.Minute
	// stageTime is how long one try may take: images have gigabytes.
	stageTime = 40 * time.Minute
	// supersededEvery is how often a try looks whether it is still wanted.
	supersededEvery = time.Second
)

// stageLoop makes ready what the node boots next. While a run is under way its own
// step sees to it.
func (a *Agent) stageLoop(ctx context.Context) {
	if a.stager == nil {
		return
	}
	each(ctx, a.wakeStage, stageEvery, func(ctx context.Context) {
		a.mu.Lock()
		w := a.want
		a.mu.Unlock()
		if w == nil || a.runner.Busy() {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, stageTime)
		defer cancel()
		go a.endIfSuperseded(ctx, cancel, w.Spec.Stage)
		if err := a.stage(ctx, w.Spec.Stage, w.Configs[w.Spec.Stage]); err != nil && ctx.Err() == nil {
			a.log.Info("next boot is not staged yet", "configuration", w.Spec.Stage, "error", err)
		}
		wake(a.wakeFacts)
	})
}

// endIfSuperseded ends a try as soon as another configuration is to be made ready: an
// image that is on its way for half an hour would be fetched in vain, and in the way of
// the one that is wanted.
func (a *Agent) endIfSuperseded(ctx context.Context, end func(), name string) {
	t := time.NewTicker(supersededEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if w := a.wanted(); w == nil || w.Spec.Stage != name {
			end()
			return
		}
	}
}

func (a *Agent) stage(ctx context.Context, name, text string) error {
	if name == "" {
		return a.stager.Drop(ctx)
	}
	c := &model.NodeConfig{}
	if err := json.Unmarshal([]byte(text), c); err != nil {
		return fmt.Errorf("configuration %s: %w", name, err)
	}
	if !updaters.KnownConfig(c.Version) {
		return fmt.Errorf("configuration %s is of version %q, this agent knows %s: update refit on this node", name, c.Version, model.ConfigVersion)
	}
	if c.OS.Digest() != "" && !a.follows(ctx, forStage, name, func(ctx context.Context) *model.Verdict {
		return authority.CheckStage(ctx, a.api, a.conf.Node, name, c)
	}) {
		return fmt.Errorf("configuration %s: no administrator stands behind its OS image; status.problems says why", name)
	}
	return a.stager.Prepare(ctx, name, c)
}

// repairDrift undoes what somebody changed on the node since a run, if the configuration
// that is wanted now asks for it and administrators stand behind that, and reports it.
func (a *Agent) repairDrift(ctx context.Context) {
	w := a.wanted()
	if a.repair == nil || w == nil || w.Spec.Config == "" {
		return
	}
	for _, r := range w.Rendered() {
		if r.Name == w.Spec.Config && r.Config.Drift == model.DriftRepair && a.followsConfig(ctx, forDrift, r) {
			a.repairAs(ctx, r.Config)
		}
	}
}

func (a *Agent) repairAs(ctx context.Context, c *model.NodeConfig) {
	did, err := a.repair(ctx, c, a.runner.Busy)
	if err != nil {
		a.log.Warn("what somebody changed on this node cannot be put back", "what", did, "error", err)
		return
	}
	if len(did) == 0 {
		return
	}
	a.tell(ctx, v1alpha1.ReasonDriftRepaired, truncate("put back as refit had made it: "+strings.Join(did, ", "), messageBytes))
}
