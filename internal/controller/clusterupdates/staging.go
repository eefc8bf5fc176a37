package clusterupdates

import (
	"context"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/queue"
	"github.com/refit-dev/refit/internal/controller/ssa"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// aheadOf returns how far a node has prepared the OS configuration that its plan boots. It
// returns nil for an agent that does not report this: such an agent prepares nothing, and its
// step does all the work.
func aheadOf(np *model.NodePlan, nu *v1alpha1.NodeUpdate) *rollout.Staging {
	config := updateplan.ConfigToBoot(np)
	if config == "" || nu == nil || nu.Status.Observed == nil {
		return nil
	}
	ready, speaks := nu.Status.Observed.Fields[model.FieldOSPrepared]
	if !speaks {
		return nil
	}
	out := &rollout.Staging{Ordered: nu.Spec.Stage == config, Ready: nu.Spec.Stage == config && ready == config}
	if out.Ordered && !out.Ready {
		out.Problem = nu.Status.Observed.Fields[model.FieldOSProblem]
	}
	return out
}

// stage sets the OS configuration that a node prepares; empty stops the preparation.
func (r *Reconciler) stage(ctx context.Context, node, config string) error {
	nu, err := ssa.NodeSpec(ctx, r.Client, v1alpha1.FieldOwnerStage, node, &v1alpha1.NodeUpdateSpec{Stage: config})
	if err == nil {
		r.NodeIndex.PutUpdate(nu)
	}
	return err
}

// stagesNeedingConfig are the rollout stages in which a node still needs its prepared OS
// configuration.
var stagesNeedingConfig = map[string]bool{rollout.StageWaiting: true, rollout.StageDraining: true, rollout.StageUpdating: true, rollout.StageRetrying: true, rollout.StageSettling: true, rollout.StageFinishing: true}

// collectStaged adds the OS configurations that the nodes of a started update have to prepare.
func (r *Reconciler) collectStaged(plan model.Plan, d rollout.Decision) {
	if d.Finished {
		return
	}
	for i := range plan.Nodes {
		np := &plan.Nodes[i]
		if config := updateplan.ConfigToBoot(np); config != "" && stagesNeedingConfig[d.Stages.ByIndex(i)] {
			if r.wantStaged == nil {
				r.wantStaged = map[string]string{}
			}
			r.wantStaged[np.Node] = config
		}
	}
}

// unstage stops the preparation of OS configurations that no started update needs. It does
// nothing while a started update exists whose rollout was not evaluated in this reconcile.
func (r *Reconciler) unstage(ctx context.Context, w *rolloutSnapshot) error {
	want, rolloutSeen := r.wantStaged, r.rolloutSeen
	r.wantStaged, r.rolloutSeen = nil, false
	r.poolIndex.refresh(w)
	if r.poolIndex.staging == 0 || r.running(w) != "" && !rolloutSeen {
		return nil
	}
	var list []string
	for i := range r.poolIndex.rows {
		if name := w.nodes[i].Name; r.poolIndex.rows[i].stage && want[name] != w.reports[i].Spec.Stage {
			list = append(list, name)
		}
	}
	return queue.ForEach(ctx, list, func(node string) error { return r.stage(ctx, node, "") })
}
