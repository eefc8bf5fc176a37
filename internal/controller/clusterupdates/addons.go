package clusterupdates

import (
	"context"
	"time"

	"github.com/refit-dev/refit/internal/clusterfacts"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// addonsTime is how long further nodes wait for add-ons after a server is done. Add-ons that
// were broken before stay broken, so the wait ends.
const addonsTime = 5 * time.Minute

// observeAddons reads the add-ons of kube-system after a server of k3s, RKE2 or k0s has moved;
// cps are the places of the control-plane nodes in the plan.
func (r *Reconciler) observeAddons(ctx context.Context, in *rollout.Input, cps []int) (err error) {
	until := addonsUntil(in, cps)
	if !until.After(in.Now) {
		return nil
	}
	in.ControlPlane.AddonsUntil = until
	in.ControlPlane.Addons, err = clusterfacts.AddonsUnsettled(ctx, r.Live)
	return err
}

// addonsUntil is when the wait for the add-ons of the last server ends, zero if none was moved.
func addonsUntil(in *rollout.Input, cps []int) (until time.Time) {
	for _, i := range cps {
		np, n := &in.Plan.Nodes[i], in.NodeAt(i)
		if np.Role != model.RoleControlPlane || !updateplan.Supervised(np.To) || !updateplan.MovesKubernetes(*np) || n.FinishedAt.IsZero() {
			continue
		}
		if end := n.FinishedAt.Add(addonsTime); end.After(until) {
			until = end
		}
	}
	return until
}
