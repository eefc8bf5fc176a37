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

// aheadOf says how far a node is with what its plan has it boot. An agent that does
// not speak of it makes nothing ready, and its step does all.
func aheadOf(np *model.NodePlan, nu *v1alpha1.NodeUpdate) *rollout.Ahead {
	config := updateplan.Boots(np)
	if config == "" || nu == nil || nu.Status.Observed == nil {
		return nil
	}
	ready, speaks := nu.Status.Observed.Fields[model.FieldOSPrepared]
	if !speaks {
		return nil
	}
	out := &rollout.Ahead{Told: nu.Spec.Stage == config, Ready: nu.Spec.Stage == config && ready == config}
	if out.Told && !out.Ready {
		out.Problem = nu.Status.Observed.Fields[model.FieldOSProblem]
	}
	return out
}

// stage tells a node what to make ready; empty: nothing any more.
func (r *Reconciler) stage(ctx context.Context, node, config string) error {
	nu, err := ssa.NodeSpec(ctx, r.Client, v1alpha1.FieldOwnerStage, node, &v1alpha1.NodeUpdateSpec{Stage: config})
	if err == nil {
		r.Roster.PutUpdate(nu, r.Now())
	}
	return err
}

// needed are the stages in which a node still has use for what was made ready.
var needed = map[string]bool{rollout.StageWaiting: true, rollout.StageDraining: true, rollout.StageUpdating: true, rollout.StageRetrying: true, rollout.StageSettling: true, rollout.StageFinishing: true}

// wanted notes what the nodes of an update that moves are to have ready.
func (r *Reconciler) wanted(plan model.Plan, d rollout.Decision) {
	if d.Finished {
		return
	}
	for i := range plan.Nodes {
		np := &plan.Nodes[i]
		if config := updateplan.Boots(np); config != "" && needed[d.Stages.At(i)] {
			if r.ready == nil {
				r.ready = map[string]string{}
			}
			r.ready[np.Node] = config
		}
	}
}

// unstage tells nodes to drop what no update that moves wants any more. Nothing is
// dropped while an update has started and was not looked at.
func (r *Reconciler) unstage(ctx context.Context, w *rolloutSnapshot) error {
	want, looked := r.ready, r.looked
	r.ready, r.looked = nil, false
	r.census.refresh(w)
	if r.census.staging == 0 || r.running(w) != "" && !looked {
		return nil
	}
	var list []string
	for i := range r.census.rows {
		if name := w.nodes[i].Name; r.census.rows[i].stage && want[name] != w.reports[i].Spec.Stage {
			list = append(list, name)
		}
	}
	return queue.ForEach(ctx, list, func(node string) error { return r.stage(ctx, node, "") })
}
