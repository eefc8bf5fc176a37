package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/refit-dev/refit/internal/agent/authority"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/model"
)

const (
	// stageEvery is how often the loop retries a failed preparation, and notices that an
	// administrator removed the staged boot.
	stageEvery = time.Minute
	// stageTime bounds one attempt: images have gigabytes.
	stageTime = 40 * time.Minute
	// supersededEvery is how often an attempt checks whether it is still desired.
	supersededEvery = time.Second
)

// stageLoop prepares the next boot while pods run.
type stageLoop struct {
	*shared
	configs *configApproval
	// stager prepares the next boot; nil: nothing does.
	stager Stager
}

// Run prepares what the node boots next. During a run, a step of the run does that.
func (l *stageLoop) Run(ctx context.Context) {
	if l.stager == nil {
		return
	}
	each(ctx, l.wakeStage, stageEvery, func(ctx context.Context) {
		l.mu.Lock()
		w := l.want
		l.mu.Unlock()
		if w == nil || l.runner.Busy() {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, stageTime)
		defer cancel()
		go l.endIfSuperseded(ctx, cancel, w.Spec.Stage)
		if err := l.stage(ctx, w.Spec.Stage, w.Configs[w.Spec.Stage]); err != nil && ctx.Err() == nil {
			l.log.Info("next boot is not staged yet", "configuration", w.Spec.Stage, "error", err)
		}
		wake(l.wakeFacts)
	})
}

// endIfSuperseded ends an attempt as soon as another configuration is desired. Otherwise the
// download of an unwanted image could delay the desired one for half an hour.
func (l *stageLoop) endIfSuperseded(ctx context.Context, end func(), name string) {
	t := time.NewTicker(supersededEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if w := l.desiredState(); w == nil || w.Spec.Stage != name {
			end()
			return
		}
	}
}

func (l *stageLoop) stage(ctx context.Context, name, text string) error {
	if name == "" {
		return l.stager.Drop(ctx)
	}
	c := &model.NodeConfig{}
	if err := json.Unmarshal([]byte(text), c); err != nil {
		return fmt.Errorf("configuration %s: %w", name, err)
	}
	if !updaters.KnownConfig(c.Version) {
		return fmt.Errorf("configuration %s has version %q, this agent supports %s: update refit on this node", name, c.Version, model.ConfigVersion)
	}
	if c.OS.Digest() != "" && !l.configs.approved(ctx, forStage, name, func(ctx context.Context) *model.Blocker {
		return authority.CheckStage(ctx, l.api, l.conf.Node, name, c)
	}) {
		return fmt.Errorf("configuration %s: its OS image is not approved; see status.problems", name)
	}
	return l.stager.Prepare(ctx, name, c)
}
