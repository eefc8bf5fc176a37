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

// lockAgent sees to it that one agent works on a node. The lock is in memory: a disk that
// takes no file keeps no agent from starting.
func lockAgent(conf agentconfig.Config) (unlock func(), err error) {
	if err := os.MkdirAll(conf.RunPath(), 0o755); err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	unlock, err = fsutil.Lock(conf.RunPath("agent.lock"))
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("another agent works on %s: %w", conf.StateDir, err)
	}
	return unlock, err
}

// note keeps a problem for the node's status and for an event.
func (a *Agent) note(p statefile.Problem) {
	a.log.Error("state of the agent damaged", "file", p.Object, "error", p.Message)
	a.problems.Add(p)
	wake(a.wakeProblems)
}

// knownProblems takes over those of the configuration; those of a file that was corrected
// meanwhile are over.
func (a *Agent) knownProblems() {
	for _, p := range a.problems.List(time.Now()) {
		if p.Reason == agentconfig.ReasonInvalid {
			a.problems.Clear(p.Reason, p.Object)
		}
	}
	for _, p := range a.conf.Problems {
		a.note(p)
	}
}

// problemsEvery is how often problems are listed without any event: a switch may have been
// turned, and repaired ones are over after a day.
const problemsEvery = 10 * time.Second

// problemsLoop keeps the status in line with the problems, and makes an event of each.
func (a *Agent) problemsLoop(ctx context.Context) {
	each(ctx, a.wakeProblems, problemsEvery, func(ctx context.Context) {
		a.noteColdStart()
		all := a.problems.List(time.Now())
		a.update(func(s *state) { s.problems = all })
		for _, p := range all {
			if !p.Told && a.tellProblem(ctx, p) {
				p.Told = true
				a.problems.Add(p)
			}
		}
	})
}

// tellProblem makes an event; one that does not get through is tried again.
func (a *Agent) tellProblem(ctx context.Context, p statefile.Problem) bool {
	t, ok := a.api.(eventTeller)
	return ok && t.Event(ctx, p.Reason, p.Message+". Fix: "+p.Fix) == nil
}

// noteColdStart notes a kubelet that started without a finished check of its images, and a
// check that is switched off.
func (a *Agent) noteColdStart() {
	listed := a.problems.List(time.Now())
	for _, p := range []statefile.Problem{
		{Reason: v1alpha1.ReasonColdStartCheckOff, Message: a.off(),
			Fix: "switch the check on again: remove the file, or the word from the kernel command line"},
		{Reason: v1alpha1.ReasonColdStartCheckFailed, Message: a.releasedBy(),
			Fix: "journalctl -b -u refit-preflight -u kubelet names the cause; restart the node when it is gone, and the images are checked"},
	} {
		p.Object = "refit-preflight.service"
		known := slices.ContainsFunc(listed, func(x statefile.Problem) bool { return x.Reason == p.Reason })
		switch {
		case p.Message == "" && known:
			a.problems.Clear(p.Reason, p.Object)
		case p.Message != "" && !known:
			a.note(p)
		}
	}
}

// releasedBy says why the kubelet was let go in this boot; empty if its images were
// checked.
func (a *Agent) releasedBy() string {
	a.mu.Lock()
	boot := ""
	if a.state.observed != nil {
		boot = a.state.observed.BootID
	}
	a.mu.Unlock()
	if r, err := coldstart.ReadReport(a.conf); err == nil && r.BootID == boot && r.Released != "" && !r.Off {
		return "the kubelet was started without a finished check of its images: " + r.Released
	}
	if why := coldstart.ReleasedByUnit(a.conf, boot); why != "" {
		return "the kubelet was started without a check of its images: " + why
	}
	return ""
}

// most problems and bytes of their sentences that a status holds.
const (
	mostProblems = 8
	problemBytes = 300
)

// nodeProblems are problems as the API has them.
func nodeProblems(all []statefile.Problem) (out []v1alpha1.NodeProblem) {
	for _, p := range all[:min(len(all), mostProblems)] {
		out = append(out, v1alpha1.NodeProblem{Reason: p.Reason, Object: truncate(p.Object, 200), Message: truncate(p.Message, problemBytes), Fix: truncate(p.Fix, problemBytes), Repaired: p.Repaired})
	}
	return out
}
