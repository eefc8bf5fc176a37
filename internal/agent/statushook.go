package agent

import (
	"context"
	"time"

	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/statusreport"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
)

// statusHook runs the administrator's program for a light or a beeper, if the configuration names
// one. One loop runs it, so that it never runs twice at a time; after a run it continues with the
// last state.
type statusHook struct {
	*shared
	hook statusreport.Hook
	// retry is the time after which a hook that failed runs again with the same state.
	retry time.Duration
	// tried is the state of the last run, failedAt when that failed.
	tried    string
	failedAt time.Time
}

// hookRetry is the retry of a statusHook.
const hookRetry = time.Minute

// hookObject is the field of the configuration that a problem of the hook is about.
const hookObject = "statusHook"

// Run runs the hook after each change until the context ends.
func (h *statusHook) Run(ctx context.Context) {
	if h.conf.StatusHook == "" {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.wakeHook:
		case <-time.After(h.retry):
		}
		h.pass(ctx)
	}
}

// pass runs the hook if the state is new, or if the last run failed a while ago.
func (h *statusHook) pass(ctx context.Context) {
	n := h.nodeStatus()
	key := statusreport.HookKey(n)
	failed := !h.failedAt.IsZero()
	due := key != h.tried || failed && time.Since(h.failedAt) >= h.retry
	if h.local.Load() == nil || !due {
		return
	}
	err := h.hook.Run(ctx, n)
	if ctx.Err() != nil {
		return
	}
	h.report(err, failed)
	h.tried, h.failedAt = key, time.Time{}
	if err != nil {
		h.failedAt = time.Now()
	}
}

// report reports the first of several failures, and that they are over.
func (h *statusHook) report(err error, before bool) {
	switch {
	case err != nil && !before:
		h.reportProblem(statefile.Problem{Reason: agentconfig.ReasonInvalid, Object: hookObject,
			Message: truncate(err.Error(), apiErrorBytes) + "; the light or the beeper of this node may show an old state",
			Fix:     "Correct the program, or remove statusHook from the agent's configuration. The agent tries again by itself."})
	case err == nil && before:
		h.problems.Clear(agentconfig.ReasonInvalid, hookObject)
		wake(h.wakeProblems)
	}
}
