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
	"github.com/refit-dev/refit/internal/controller/externalupdaters"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// observeExternal has an external updater do its step on a node that has run its own, and
// notes how far it is. Whether it is done is what the agent sees. One that has failed is
// not asked again before the next attempt.
func (r *Reconciler) observeExternal(ctx context.Context, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, c *closer) error {
	n := w.byName[c.np.Node]
	if n == nil || !ranOwn(&c.rn) {
		return nil
	}
	step, missing, own := updateplan.NotYetExternal(*c.np, w.planNode(n, w.updates[n.Name]))
	if step == nil || own {
		return nil
	}
	name, _ := updateplan.OfExternal(*step)
	call := callOf(u, c, name, w.now)
	if !call.Failed {
		word, err := r.Outside.Work(ctx, externalupdaters.Job{Node: c.np.Node, Update: string(u.UID), Attempt: call.Attempt, Updater: name, Step: *step})
		if err != nil {
			return err
		}
		evaluateAnswer(&call, word, *step, missing, w.now)
	}
	c.outside = &call
	c.rn.Outside = &rollout.Outside{Step: step.ID, Says: call.Message, Failed: call.Failed}
	c.rn.SaysOld = false // its own part is there
	return nil
}

// ranOwn: the node has run its own steps in this attempt.
func ranOwn(n *rollout.Node) bool {
	return n.Run != nil && !n.Run.Undo && n.Run.State == rollout.RunSucceeded && n.Run.Attempt.Number >= n.Attempt.Number
}

// callOf goes on with what is in the status, or begins.
func callOf(u *v1alpha1.ClusterUpdate, c *closer, updater string, now time.Time) v1alpha1.ExternalCall {
	call := v1alpha1.ExternalCall{Node: c.np.Node, Updater: updater, Attempt: c.rn.Attempt.Number, Since: metav1.NewTime(now)}
	i := slices.IndexFunc(u.Status.External, func(x v1alpha1.ExternalCall) bool {
		return x.Node == call.Node && x.Updater == updater && x.Attempt == call.Attempt
	})
	if i >= 0 {
		return u.Status.External[i]
	}
	return call
}

// evaluateAnswer: the updater's own "done" is worth nothing before the agent sees it.
func evaluateAnswer(call *v1alpha1.ExternalCall, word externalupdaters.Word, step model.Step, missing string, now time.Time) {
	call.Failed, call.Message = word.Failed, word.Says
	if word.Done {
		call.Message += ", and " + missing + " as the node's agent sees it"
	}
	limit := time.Duration(step.DeadlineSeconds) * time.Second
	if !call.Failed && limit > 0 && now.Sub(call.Since.Time) > limit {
		call.Failed, call.Message = true, fmt.Sprintf("it did not end within %s: %s", limit, call.Message)
	}
	call.Message = text.Truncate(call.Message, maxMessage)
}

// maxExternal is how many calls a status tells.
const maxExternal = 100

func outsideOf(started []*closer) []v1alpha1.ExternalCall {
	var out []v1alpha1.ExternalCall
	for _, c := range started {
		if c.outside != nil {
			out = append(out, *c.outside)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Node < out[j].Node })
	return out[:min(len(out), maxExternal)]
}
