package agent

import (
	"context"
	"strings"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
)

// driftRepair undoes changes to the node that no run made. The facts loop
// runs it before it observes the node.
type driftRepair struct {
	*shared
	configs *configApproval
	// repair undoes the changes and returns what it undid; nil: nothing does.
	repair func(ctx context.Context, c *model.NodeConfig, busy func() bool) ([]string, error)
}

// run undoes drift and reports it, if the desired configuration asks for repair and
// administrators approved it.
func (dr *driftRepair) run(ctx context.Context) {
	w := dr.desiredState()
	if dr.repair == nil || w == nil || w.Spec.Config == "" {
		return
	}
	for _, r := range w.Rendered() {
		if r.Name == w.Spec.Config && r.Config.RepairsDrift() && dr.configs.configApproved(ctx, forDrift, r) {
			dr.repairConfig(ctx, r.Config)
		}
	}
}

func (dr *driftRepair) repairConfig(ctx context.Context, c *model.NodeConfig) {
	did, err := dr.repair(ctx, c, dr.runner.Busy)
	if err != nil {
		dr.log.Warn("failed to repair drift", "repaired", did, "error", err)
		return
	}
	if len(did) == 0 {
		return
	}
	dr.emitEvent(ctx, v1alpha1.ReasonDriftRepaired, truncate("restored the configured state of: "+strings.Join(did, ", "), messageBytes))
}
