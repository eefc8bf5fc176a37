package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/coldstart"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
)

// lockAgent makes sure that only one agent runs on a node. The lock is on a memory file system:
// the agent starts even if the disk is full or read-only.
func lockAgent(conf agentconfig.Config) (unlock func(), err error) {
	if err := os.MkdirAll(conf.RunPath(), 0o755); err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	unlock, err = fsutil.Lock(conf.RunPath("agent.lock"))
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("another agent uses %s: %w", conf.StateDir, err)
	}
	return unlock, err
}

// problemsEvery is how often the loop lists problems without an event: an administrator may
// have disabled the check, and repaired problems expire after a day.
const problemsEvery = 10 * time.Second

// problemLoop reports the problems of this node's agent in the status and as events, and
// watches whether the check before the kubelet's start ran.
type problemLoop struct {
	*shared
	// off says why the check before the kubelet starts is switched off, empty if it is not.
	off func() string
}

// Run reports the problems in the status, and emits an event about each.
func (l *problemLoop) Run(ctx context.Context) {
	each(ctx, l.wakeProblems, problemsEvery, func(ctx context.Context) {
		l.checkColdStart()
		all := l.problems.List(time.Now())
		l.update(func(s *state) { s.problems = all })
		for _, p := range all {
			if !p.Reported && l.recordEvent(ctx, p) {
				p.Reported = true
				l.problems.Add(p)
			}
		}
	})
}

// recordEvent emits an event about a problem. The next pass retries it if it fails.
func (l *problemLoop) recordEvent(ctx context.Context, p statefile.Problem) bool {
	t, ok := l.api.(eventRecorder)
	return ok && t.EmitEvent(ctx, p.Reason, p.Message+". Fix: "+p.Fix) == nil
}

// checkColdStart reports a kubelet that started before the check of its images finished, and a
// check that is disabled.
func (l *problemLoop) checkColdStart() {
	listed := l.problems.List(time.Now())
	for _, p := range []statefile.Problem{
		{Reason: v1alpha1.ReasonColdStartCheckOff, Message: l.off(),
			Fix: "Enable the check: remove the file, or the word on the kernel command line."},
		{Reason: v1alpha1.ReasonColdStartCheckFailed, Message: l.startedUnchecked(),
			Fix: "Find the cause with journalctl -b -u refit-preflight -u kubelet. Remove it, then restart the node."},
	} {
		p.Object = "refit-preflight.service"
		known := slices.ContainsFunc(listed, func(x statefile.Problem) bool { return x.Reason == p.Reason })
		switch {
		case p.Message == "" && known:
			l.problems.Clear(p.Reason, p.Object)
		case p.Message != "" && !known:
			l.reportProblem(p)
		}
	}
}

// startedUnchecked returns why the kubelet started in this boot before its images were checked;
// empty if they were.
func (l *problemLoop) startedUnchecked() string {
	l.mu.Lock()
	boot := ""
	if l.state.observed != nil {
		boot = l.state.observed.BootID
	}
	l.mu.Unlock()
	if r, err := coldstart.ReadReport(l.conf); err == nil && r.BootID == boot && r.Released != "" && !r.Off {
		return "the kubelet started without a finished check of its images: " + r.Released
	}
	if why := coldstart.ReleasedByUnit(l.conf, boot); why != "" {
		return "the kubelet started without a check of its images: " + why
	}
	return ""
}

// Limits of the problems in a status: their number, and the bytes of a sentence.
const (
	maxProblems  = 8
	problemBytes = 300
)

// nodeProblems converts problems to the API, the first few of them.
func nodeProblems(all []statefile.Problem) (out []v1alpha1.NodeProblem) {
	for _, p := range all[:min(len(all), maxProblems)] {
		out = append(out, v1alpha1.NodeProblem{Reason: p.Reason, Object: truncate(p.Object, 200), Message: truncate(p.Message, problemBytes), Fix: truncate(p.Fix, problemBytes), Repaired: p.Repaired})
	}
	return out
}
