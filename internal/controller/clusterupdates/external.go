package clusterupdates

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/refit-dev/refit/internal/text"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/plans"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// observeExternal calls the external updater of a node that has run its own steps, and records
// its progress. The agent's observation decides whether the step is done. A failed call is not
// repeated before the next attempt.
func (r *Reconciler) observeExternal(ctx context.Context, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, c *startedNode) error {
	n, report := w.node(c.np.Node)
	if n == nil || !ranOwn(&c.rn) {
		return nil
	}
	step, missing, own := updateplan.NotYetExternal(*c.np, w.planNode(n, report))
	if step == nil || own {
		return nil
	}
	name, _ := updateplan.ExternalUpdater(*step)
	call := callOf(u, c, name, w.now)
	if !call.Failed {
		answer, err := r.External.Work(ctx, plans.ExternalJob{Node: c.np.Node, Update: u.RunUID(), Attempt: call.Attempt, Updater: name, Step: *step})
		if err != nil {
			return err
		}
		evaluateAnswer(&call, answer, *step, missing, w.now)
	}
	c.external = &call
	c.rn.External = &rollout.ExternalWait{Step: step.ID, Message: call.Message, Failed: call.Failed}
	c.rn.ReportsOldVersion = false // the node's own steps are done
	return nil
}

// ranOwn reports whether the node has run its own steps in this attempt.
func ranOwn(n *rollout.Node) bool {
	return n.Run != nil && !n.Run.Undo && n.Run.State == rollout.RunSucceeded && n.Run.Attempt.Number >= n.Attempt.Number
}

// callOf returns the call in the status, or a new one.
func callOf(u *v1alpha1.ClusterUpdate, c *startedNode, updater string, now time.Time) v1alpha1.ExternalCall {
	call := v1alpha1.ExternalCall{Node: c.np.Node, Updater: updater, Attempt: c.rn.Attempt.Number, Since: metav1.NewTime(now)}
	i := slices.IndexFunc(u.Status.External, func(x v1alpha1.ExternalCall) bool {
		return x.Node == call.Node && x.Updater == updater && x.Attempt == call.Attempt
	})
	if i >= 0 {
		return u.Status.External[i]
	}
	return call
}

// evaluateAnswer records an updater's answer. Its "done" counts only once the agent observes
// the result.
func evaluateAnswer(call *v1alpha1.ExternalCall, answer plans.ExternalAnswer, step model.Step, missing string, now time.Time) {
	call.Failed, call.Message = answer.Failed, answer.Says
	if answer.Done {
		call.Message += ", but the node's agent does not confirm it: " + missing
	}
	limit := time.Duration(step.DeadlineSeconds) * time.Second
	if !call.Failed && limit > 0 && now.Sub(call.Since.Time) > limit {
		call.Failed, call.Message = true, fmt.Sprintf("it did not finish within %s: %s", limit, call.Message)
	}
	call.Message = text.Truncate(call.Message, maxMessage)
}

// maxExternal is the number of calls in a status.
const maxExternal = 100

func externalCalls(started []*startedNode) []v1alpha1.ExternalCall {
	var out []v1alpha1.ExternalCall
	for _, c := range started {
		if c.external != nil {
			out = append(out, *c.external)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Node < out[j].Node })
	return out[:min(len(out), maxExternal)]
}
