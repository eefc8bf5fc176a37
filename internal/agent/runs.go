package agent

import (
	"context"
	"slices"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/authority"
	"github.com/refit-dev/refit/internal/model"
)

// runEvery is how often the loop checks for a permitted run without an event.
const runEvery = time.Minute

// runLoop starts the permitted run if administrators approved it, and continues an interrupted
// run.
type runLoop struct {
	*shared
	// running lists the digests of what a container of a static pod runs.
	running authority.RunningDigests
	// approvedRun is the key of the run that administrators approved; guarded by shared.mu.
	approvedRun string
}

// Run lets the runner continue a run, also one that a restart interrupted.
func (l *runLoop) Run(ctx context.Context) {
	run := func(ctx context.Context) {
		l.runner.Run(ctx, l.permitted, func(r *v1alpha1.NodeRunStatus) {
			l.update(func(s *state) { s.run = r })
			wake(l.wakeFacts)
		})
	}
	each(ctx, l.wakeRuns, runEvery, func(ctx context.Context) {
		run(ctx) // continues a started run, and reports a finished one
		if l.approve(ctx) {
			run(ctx)
		}
	})
}

// permitted returns the run that may start. The desired state from disk permits none: the
// controller may have withdrawn the run while this agent was stopped, and the node may run pods
// again. A run that administrators did not approve may not start either (see approve). A run
// that has started needs no permission.
func (l *runLoop) permitted() *v1alpha1.NodeRun {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.fromAPI || l.want == nil {
		return nil
	}
	if r := l.want.Spec.Run; r != nil && authority.RunKey(r) == l.approvedRun {
		return r
	}
	return nil
}

// approvalRetry is the pause before a check of a run that failed for a transient reason is repeated.
const approvalRetry = 5 * time.Second

// approve checks the permitted run against the objects of administrators, once for each
// content of it, and reports whether it may start now.
func (l *runLoop) approve(ctx context.Context) bool {
	run, over := l.uncheckedRun()
	var v *model.Blocker
	if run != nil && !over {
		v = authority.CheckRun(ctx, l.api, l.running, l.conf.Node, run)
	}
	if ctx.Err() != nil {
		return false
	}
	if v != nil && v.Reason == v1alpha1.ReasonApprovalUnreadable {
		time.AfterFunc(approvalRetry, func() { wake(l.wakeRuns) })
	}
	l.update(func(s *state) {
		s.runVerdict = v
		if run != nil && v == nil {
			l.approvedRun = authority.RunKey(run)
		}
	})
	if run == nil || v != nil {
		return false
	}
	if !over {
		l.acceptConfigs(run)
	}
	return true
}

// uncheckedRun returns the permitted run if it was not checked yet; over is true if it has
// finished on this node.
func (l *runLoop) uncheckedRun() (run *v1alpha1.NodeRun, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.fromAPI || l.want == nil || l.want.Spec.Run == nil || authority.RunKey(l.want.Spec.Run) == l.approvedRun {
		return nil, false
	}
	r, s := l.want.Spec.Run, l.state.run
	return r, s != nil && s.UID == r.UID && s.Attempt >= r.Attempt && s.State != v1alpha1.RunRunning
}

// acceptConfigs records the configurations of an approved run as approved.
func (l *runLoop) acceptConfigs(run *v1alpha1.NodeRun) {
	var names []string
	for _, s := range run.Steps {
		if name := s.Params[model.ParamConfig]; name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if !run.Undo {
		l.authority.Follow(names)
	}
}
