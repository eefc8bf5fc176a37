package agent

import (
	"context"
	"net"
	"slices"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/statusreport"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/model"
)

// writeLocal writes the status for people at the machine: the file that `refit-agent status`
// reads, the page and the console. Without an API server they have nothing else. The file is best
// effort.
func (l *statusLoop) writeLocal(status *v1alpha1.NodeUpdateStatus, now time.Time) {
	local := l.localStatus(status.DeepCopy(), now)
	l.local.Store(local)
	if err := local.Write(l.conf.RunPath()); err != nil {
		l.log.Debug("failed to write the local status", "error", err)
	}
	l.showIssue()
	l.requestReboot()
	wake(l.wakeHook)
}

func (l *statusLoop) localStatus(status *v1alpha1.NodeUpdateStatus, now time.Time) *statusreport.Local {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.state
	out := &statusreport.Local{Node: l.conf.Node, Status: status, WrittenAt: now.UTC(), APIReachedAt: s.apiReachedAt.UTC(), APIError: s.apiError, Stored: s.stored}
	if w := l.want; w != nil {
		out.Permitted = statusreport.PermittedRun(w.Spec.Run)
		out.Approved = w.Approved()
	}
	for _, x := range []*model.Blocker{s.runVerdict, s.serverVerdict, s.unreadVerdict} {
		if x != nil {
			out.Blockers = append(out.Blockers, *x)
		}
	}
	out.Blockers = slices.Concat(out.Blockers, s.bundleVerdicts, s.imageVerdicts)
	return out
}

// restoreReached reads when an earlier agent of this boot reached the API server.
func (l *statusLoop) restoreReached() {
	before, err := statusreport.ReadLocal(l.conf.RunPath())
	if err != nil {
		return // none, or damaged: this agent writes it again
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if before.APIReachedAt.After(l.state.apiReachedAt) {
		l.state.apiReachedAt, l.state.apiError = before.APIReachedAt, "this agent has not reached it yet"
	}
}

// apiErrorBytes bounds the error of the API server in the local status.
const apiErrorBytes = 300

// recordAnswer records whether the API server answered. It wakes no loop.
func (sh *shared) recordAnswer(now time.Time, err error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if err != nil {
		sh.state.apiError = truncate(err.Error(), apiErrorBytes)
		return
	}
	sh.state.apiReachedAt, sh.state.apiError = now.Truncate(time.Second), ""
}

// nodeStatus is what this node reports about itself.
func (sh *shared) nodeStatus() statusreport.NodeStatus {
	local := sh.local.Load()
	if local == nil {
		local = &statusreport.Local{Node: sh.conf.Node}
	}
	return statusreport.MakeNodeStatus(local, statusreport.AgentRunning, time.Now())
}

// showIssue shows the state on the consoles. It reports a file that cannot be written once.
func (l *statusLoop) showIssue() {
	if l.issue == nil {
		return
	}
	err := l.issue.Update(l.nodeStatus())
	switch {
	case err != nil && !l.issueFailed:
		l.reportProblem(statefile.Problem{Reason: v1alpha1.ReasonStateNotWritable, Object: l.issue.Path, Message: err.Error() + "; the consoles of this node do not show its state",
			Fix: "Free space on the file system of " + l.issue.Path + ", or remove console from the agent's configuration."})
	case err == nil && l.issueFailed:
		l.problems.Clear(v1alpha1.ReasonStateNotWritable, l.issue.Path)
		wake(l.wakeProblems)
	}
	l.issueFailed = err != nil
}

// requestReboot asks reboot daemons for what the controller asks. It reports a file that cannot be
// written once. Before the first desired state is read, nothing is known, and the file stays.
func (l *statusLoop) requestReboot() {
	l.mu.Lock()
	want := l.want
	l.mu.Unlock()
	if want == nil {
		return
	}
	err := l.reboot.Update(want.Spec.Reboot)
	switch {
	case err != nil && !l.rebootFailed:
		l.reportProblem(statefile.Problem{Reason: v1alpha1.ReasonStateNotWritable, Object: l.reboot.Path, Message: err.Error() + "; reboot daemons do not learn that this node needs a reboot",
			Fix: "Make " + l.reboot.Path + " writable, or reboot the node by hand."})
	case err == nil && l.rebootFailed:
		l.problems.Clear(v1alpha1.ReasonStateNotWritable, l.reboot.Path)
		wake(l.wakeProblems)
	}
	l.rebootFailed = err != nil
}

// pageServer serves this node's state as a page, if the configuration names an address.
type pageServer struct{ *shared }

// pageRetry is the time after a failed listen: the address may appear later.
const pageRetry = 10 * time.Second

// Run listens until the context ends.
func (srv *pageServer) Run(ctx context.Context) {
	if srv.conf.StatusPage == "" {
		return
	}
	address, err := statusreport.PageAddress(srv.conf.StatusPage)
	if err != nil {
		srv.report("", err)
		return
	}
	for reported := ""; ctx.Err() == nil; sleep(ctx, pageRetry) {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err == nil {
			reported = srv.report(reported, nil)
			err = statusreport.ServePage(ctx, l, []string{srv.conf.Node}, srv.nodeStatus)
		}
		if ctx.Err() != nil {
			return
		}
		reported = srv.report(reported, err)
	}
}

// pageObject is the field of the configuration that a problem of the page is about.
const pageObject = "statusPage"

// report reports why the page is not served, unless that is what it reported last.
func (srv *pageServer) report(last string, err error) string {
	message := ""
	if err != nil {
		message = err.Error()
	}
	switch {
	case message == last:
	case err != nil:
		srv.reportProblem(statefile.Problem{Reason: agentconfig.ReasonInvalid, Object: pageObject, Message: "the page on this node is not served: " + message,
			Fix: "Set statusPage in the agent's configuration to an address of this node and a free port. Then: systemctl restart refit-agent."})
	default:
		srv.problems.Clear(agentconfig.ReasonInvalid, pageObject)
		wake(srv.wakeProblems)
	}
	return message
}
