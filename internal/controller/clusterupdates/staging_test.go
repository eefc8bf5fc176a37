package clusterupdates

import (
	"slices"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/model"
)

// A missing heartbeat of a node that prepares an OS is no event of any object: only
// another reconcile notices it.
func TestSilentStagingNodeIsReported(t *testing.T) {
	t.Parallel()
	w, u, plan := largeSnapshot(4, 1)
	const waits = 3
	np, nu := &plan.Nodes[waits], w.reports[waits]
	np.Steps = append(slices.Clone(np.Steps), model.Step{ID: "os-image", Updater: "os-image", By: model.ByAgent, Params: map[string]string{"config": "c"},
		Changes: []model.Change{{Path: model.FieldOSImage, From: "sha256:1", To: "sha256:2"}}})
	nu.Spec.Stage, nu.Status.Observed.Fields = "c", map[string]string{model.FieldOSPrepared: model.ValueNone}
	r := &Reconciler{Now: func() time.Time { return w.now }}
	for _, after := range []struct {
		passes time.Duration
		silent bool
	}{{0, false}, {time.Minute, false}, {time.Hour, true}} {
		w.now = w.now.Add(after.passes)
		in, _, err := r.rolloutInput(t.Context(), w, &status{u: u}, plan)
		if err != nil {
			t.Fatal(err)
		}
		n := in.NodeAt(waits)
		if n.Staging == nil || !n.Staging.Ordered || n.Staging.Ready || n.AgentHeartbeatLost != after.silent {
			t.Errorf("%s later: silent %t, want %t: %+v", after.passes, n.AgentHeartbeatLost, after.silent, n.Staging)
		}
	}
}
