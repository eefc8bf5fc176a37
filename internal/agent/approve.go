package agent

import (
	"context"
	"strings"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/authority"
	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/model"
)

// policy is what this node may load: what the controller named, as far as
// administrators stand behind it.
func (a *Agent) policy(w *desired.State) bundlestore.Policy {
	// A build before a release counts as that release.
	release, _, _ := strings.Cut(agentVersion(), "-")
	return a.authority.Policy(w.Approved(), w.Trust, release)
}

// authorityChanged has everything looked at again that depends on approvals.
func (a *Agent) authorityChanged() {
	for _, k := range []chan struct{}{a.wakeBundles, a.wakeHold, a.wakeMedia} {
		wake(k)
	}
}

func isUnbacked(v *model.Verdict) bool {
	return v.Reason == v1alpha1.ReasonApprovalNotFound || v.Reason == v1alpha1.ReasonApprovalUnreadable
}

// checkRunAgain is when a run is checked again that could not be checked.
const checkRunAgain = 5 * time.Second

// approveRun checks the permitted run against the objects of administrators, once for
// each word of it, and reports whether it may start now.
func (a *Agent) approveRun(ctx context.Context) bool {
	run, over := a.uncheckedRun()
	var v *model.Verdict
	if run != nil && !over {
		v = authority.CheckRun(ctx, a.api, a.running, a.conf.Node, run)
	}
	if ctx.Err() != nil {
		return false
	}
	if v != nil && v.Reason == v1alpha1.ReasonApprovalUnreadable {
		time.AfterFunc(checkRunAgain, func() { wake(a.wakeRun) })
	}
	a.update(func(s *state) {
		s.runVerdict = v
		if run != nil && v == nil {
			a.approvedRun = authority.RunKey(run)
		}
	})
	if run == nil || v != nil {
		return false
	}
	if !over {
		a.acceptConfigs(run)
	}
	return true
}

// uncheckedRun is the permitted run if it was not checked yet; over is true for one
// that has ended on this node.
func (a *Agent) uncheckedRun() (run *v1alpha1.NodeRun, over bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.heard || a.want == nil || a.want.Spec.Run == nil || authority.RunKey(a.want.Spec.Run) == a.approvedRun {
		return nil, false
	}
	r, s := a.want.Spec.Run, a.state.run
	return r, s != nil && s.UID == r.UID && s.Attempt >= r.Attempt && s.State != v1alpha1.RunRunning
}
