package osdeploy

import (
	"context"
	"errors"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/model"
)

// AgentCarrier brings the agent into a deployment whose image does not have it, before it is booted.
type AgentCarrier interface {
	// Carry verifies that the agent starts there. osdriver.ErrNoAgent: it would not, and cannot be
	// brought there.
	Carry(ctx context.Context, d *osdriver.Deployment) error
}

// WithAgent keeps the agent over images that do not have it.
func (u *Updater) WithAgent(a AgentCarrier) *Updater {
	u.agent = a
	return u
}

// carryAgent keeps the agent over the boot into a deployment. An extension takes no program away.
func (u *Updater) carryAgent(ctx context.Context, driver osdriver.Driver, next *osdriver.Deployment) error {
	if u.agent == nil || driver.Name() == osdriver.Sysext {
		return nil
	}
	return u.agent.Carry(ctx, next)
}

// stageWithAgent stages, and keeps the agent over the boot. A Result with a reason ends this call.
func (u *Updater) stageWithAgent(ctx context.Context, v *view) (updaters.Result, error) {
	if r, err := u.stage(ctx, v); err != nil || r.Failed || r.Reason != "" {
		return r, err
	}
	if err := u.carryAgent(ctx, v.driver, v.status.Next); err != nil {
		return u.refuseStaged(ctx, v, err)
	}
	return updaters.Result{}, nil
}

// refuseStaged drops what is staged: the node would lose its agent with any restart.
func (u *Updater) refuseStaged(ctx context.Context, v *view, why error) (updaters.Result, error) {
	r := updaters.Fail(v1alpha1.ReasonOSImageAgent, "%v; nothing was restarted", why)
	if !errors.Is(why, osdriver.ErrNoAgent) {
		r = u.retryLater(ctx, "the agent could not be kept over the boot", why)
	}
	if !r.Failed {
		return r, nil
	}
	if err := v.driver.Discard(ctx); err != nil {
		return u.retryLater(ctx, "the staged deployment could not be dropped", err), nil
	}
	return r, u.counter.Disarm(ctx)
}

// addCarried reports that this node keeps its agent, where deployments are files.
func (u *Updater) addCarried(out map[string]string, s osdriver.Status) {
	switch s.Driver {
	case osdriver.Bootc, osdriver.RPMOSTree, osdriver.OSTree:
		if u.agent != nil && !s.Composefs {
			out[model.FieldOSAgent] = model.ValueCarried
		}
	}
}
