package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/rollout/window"
)

// Stages of a node, in order.
const (
	StageWaiting   = "Waiting"
	StageDraining  = "Draining"
	StageUpdating  = "Updating"
	StageRetrying  = "Retrying" // failed, and tried again
	StageUndoing   = "Undoing"  // failed, and taken back
	StageSettling  = "Settling"
	StageFinishing = "Finishing"
	StageDone      = "Done"
	StageUndone    = "Undone" // failed, and as it was before
	StageFailed    = "Failed"
	StageGone      = "Gone"
)

// stageOfMost says where a node is that nothing is done to, as almost all are at
// any moment; idle is false for any other. It says what stageOf would.
func stageOfMost(n *Node) (stage string, idle bool) {
	switch {
	case n.Gone:
		return StageGone, true
	case n.Started || n.Run != nil && !n.Run.over():
		return "", false
	case n.AtTarget:
		return StageDone, true
	case n.Run == nil && n.FinishedAt.IsZero():
		return StageWaiting, true
	}
	return "", false
}

// stageOf says where a node is.
func stageOf(in *Input, np model.NodePlan, n Node) string {
	switch {
	case n.Gone:
		return StageGone
	case !n.Started:
		return stageOfIdle(in, np, n)
	case n.Run != nil && n.Run.Attempt.Number >= n.Attempt.Number:
		return stageOfRun(in, np, n)
	case n.AtTarget && n.Ready && n.Run == nil && !restarts(np):
		return StageFinishing // somebody did it by hand
	case drainExpired(in, np, n):
		return afterFailure(in, np, n)
	}
	return StageDraining
}

// restarts reports whether a plan has a restart of the machine whose end no field shows:
// that all else is there does not say that it was done. Nor does it after an attempt that
// failed, whose last steps change nothing and only look.
func restarts(np model.NodePlan) bool {
	return slices.ContainsFunc(np.Steps, func(s model.Step) bool {
		return s.By == model.ByAgent && s.Disruption == model.DisruptionReboot && len(s.Changes) == 0
	})
}

// stageOfIdle is where a node is that carries no mark.
func stageOfIdle(in *Input, np model.NodePlan, n Node) string {
	switch {
	case n.Run != nil && !n.Run.over():
		return StageUpdating // the mark was taken away, by whomever
	case n.AtTarget:
		return StageDone
	case n.Run == nil && n.FinishedAt.IsZero():
		return StageWaiting
	case mayRetry(in, np, n):
		return StageWaiting // for its next attempt
	case n.Run != nil && n.Run.Undo && n.Run.State == RunUndone:
		return StageUndone
	}
	return StageFailed
}

func stageOfRun(in *Input, np model.NodePlan, n Node) string {
	switch {
	case n.Run.Undo:
		return stageOfUndo(in, np, n)
	case n.Run.State == RunFailed:
		return afterFailure(in, np, n)
	case n.Run.State != RunSucceeded:
		return StageUpdating
	case n.AtTarget && n.Ready:
		return StageFinishing
	case n.SaysOld, n.Outside != nil && n.Outside.Failed:
		return afterFailure(in, np, n)
	}
	return StageSettling
}

func stageOfUndo(in *Input, np model.NodePlan, n Node) string {
	switch n.Run.State {
	case RunUndone:
		return StageUndone
	case RunFailed, RunSucceeded:
		if mayRetry(in, np, n) {
			return StageRetrying
		}
		return StageFailed
	}
	return StageUndoing
}

// afterFailure: another attempt if there is one left, else undo if the pool
// asks for it and it can be done.
func afterFailure(in *Input, np model.NodePlan, n Node) string {
	switch {
	case mayRetry(in, np, n):
		return StageRetrying
	case in.Pools[np.Pool].Undo && irreversible(np, n) == nil && !cameBack(n) && !unknown(n):
		return StageUndoing
	}
	return StageFailed
}

// mayRetry: a person asked for it since, or the pool has attempts left. An undo, and
// an OS image that the node was taken back from, end the attempts that the pool gives.
func mayRetry(in *Input, np model.NodePlan, n Node) bool {
	last := n.last()
	if in.wanted(np.Node) > last.Retry {
		return true
	}
	return !final(n) && last.Try < max(1, in.Pools[np.Pool].Attempts)
}

// final: nothing comes of doing the same again. The node was taken back, by whomever,
// from what it was to run; or nobody knows what it ran.
func final(n Node) bool {
	return n.Run != nil && (n.Run.Undo || n.Run.Reason == reasonOSUnhealthy || n.Run.Reason == reasonOSRolledBack || unknown(n))
}

// unknown: the journal of the run does not say which of its steps were started.
func unknown(n Node) bool {
	return n.Run != nil && n.Run.State == RunFailed && (n.Run.Reason == reasonJournalCorrupt || n.Run.Reason == reasonJournalUnreadable)
}

// attempt is the one that a node needs next.
func attempt(in *Input, n Node) Attempt {
	last, want := n.last(), in.wanted(n.Name)
	switch {
	case last.Number == 0, want > last.Retry:
		return Attempt{last.Number + 1, want, 1}
	}
	return Attempt{last.Number + 1, last.Retry, last.Try + 1}
}

// cameBack: it was at its target, or said so, and is not any more.
func cameBack(n Node) bool {
	return !n.AtTarget && (n.SaysOld || !n.Started && (!n.FinishedAt.IsZero() || n.Run != nil && n.Run.State == RunSucceeded))
}

// irreversible is the first step that was begun and cannot be taken back, nil if
// there is none.
func irreversible(np model.NodePlan, n Node) *model.Step {
	if n.Run == nil {
		return nil // nothing was begun
	}
	for i := range np.Steps {
		s := &np.Steps[i]
		if n.Outside != nil && s.ID == n.Outside.Step {
			return s
		}
		if s.By == model.ByAgent && s.NotReversible != "" {
			return s
		}
		if n.Outside == nil && s.ID == n.Run.Step {
			return nil
		}
	}
	return nil
}

func drainExpired(in *Input, np model.NodePlan, n Node) bool {
	limit := in.Pools[np.Pool].DrainTimeout
	return limit > 0 && n.Drain != nil && n.Drain.Left > 0 && in.Now.Sub(n.StartedAt) > limit
}

// Pauses before a failed node is tried again: what a failed attempt left behind
// must come to rest, or the next one mistakes it for the beginning. kubeadm, for
// one, returns before the kubelet has rolled its static pods back.
const (
	pausePerTry = 30 * time.Second
	maxUnrest   = 3 * time.Minute
)

// retryWait says why a failed node is not tried again yet, empty if it may be.
func retryWait(in *Input, n Node) string {
	if n.Run == nil || n.Run.Ended == 0 {
		return ""
	}
	byPerson := in.wanted(n.Name) > n.last().Retry
	switch {
	case n.Unsettled != "" && n.Run.Ended < maxUnrest:
		return "when it has settled: " + n.Unsettled
	case !byPerson && n.Run.Ended < pausePerTry*time.Duration(n.last().Try):
		return "after a pause"
	}
	return ""
}

// AwayClause says what becomes of the API server while a control-plane node of
// so many moves.
func AwayClause(etcd map[string]bool, controlPlanes int) string {
	switch {
	case controlPlanes < 2:
		return "the API server is away meanwhile, workloads go on"
	case len(etcd) == 2:
		return "etcd has two members, and one alone has no quorum: the API server hangs while either moves"
	case len(etcd) > 2:
		return fmt.Sprintf("etcd keeps its quorum of %d of %d members", len(etcd)/2+1, len(etcd))
	}
	return "the API server stays available"
}

// Verdicts about nodes.

func about(node, reason, message string) model.Verdict {
	return model.Verdict{Reason: reason, Message: "node " + node + message, Object: "Node/" + node, Waiting: true}
}

func running(in *Input, np model.NodePlan, n Node) model.Verdict {
	v := about(n.Name, reasonUpdating, " is being updated")
	if n.Run.Undo {
		v = about(n.Name, reasonUndoing, " is being taken back, because "+n.Run.Because)
	}
	if n.Run.Step != "" {
		v.Message += " (step " + n.Run.Step + ")"
	}
	if np.Role == model.RoleControlPlane {
		if cps := in.ControlPlanes(); cps < 2 || len(in.ControlPlane.Etcd) == 2 {
			v.Message += "; " + AwayClause(in.ControlPlane.Etcd, cps)
		}
	}
	if r := n.Run.Reason; r == reasonJournalUnwritable || r == reasonJournalUnreadable || r == reasonInsufficientSpace || r == reasonReadOnly {
		v.Reason = r
		v.Message += "; " + n.Run.Message
	}
	if n.AgentHeartbeatLost {
		v.Reason = reasonAgentHeartbeatLost
		v.Message = "the agent of node " + n.Name + " has not been heard for over three minutes"
		v.Fix = "on the node: systemctl status refit-agent; a control-plane node may be away while its API server moves"
	}
	return v
}

// mute says of a node that waits that its agent does not speak.
func mute(n *Node) model.Verdict {
	v := about(n.Name, reasonAgentHeartbeatLost, "")
	v.Message = "node " + n.Name + " does not start: its agent has not been heard for over three minutes, and was to make ready what the node boots next"
	v.Fix = "on the node: systemctl status refit-agent; or let the others go on with `refit hold " + n.Name + "`"
	return v
}

func settling(n Node) model.Verdict {
	v := about(n.Name, reasonSettling, " has run its steps")
	switch {
	case !n.Ready:
		v.Message += "; it is not Ready yet"
	case n.Outside != nil:
		v.Message += "; " + n.Outside.Says
	case n.NotYet != "":
		v.Message += "; " + n.NotYet
	}
	return v
}

func retrying(in *Input, np model.NodePlan, n Node, wait string) model.Verdict {
	next := attempt(in, n)
	v := about(n.Name, reasonRetrying, " is tried again")
	if next.Try > 1 {
		v.Message += fmt.Sprintf(" (attempt %d of %d)", next.Try, in.Pools[np.Pool].Attempts)
	}
	if wait != "" {
		v.Message += " " + wait
	}
	v.Message += "; " + whatFailed(in, np, n)
	return v
}

// whatFailed says in a clause what went wrong on a node.
func whatFailed(in *Input, np model.NodePlan, n Node) string {
	switch {
	case cameBack(n):
		return "it was updated and came back at its old version: " + n.NotYet
	case n.Run != nil && n.Run.Undo:
		return n.Run.Because
	case n.Outside != nil && n.Outside.Failed:
		return "step " + n.Outside.Step + " failed: " + n.Outside.Says
	case n.Run != nil && n.Run.Attempt.Number >= n.Attempt.Number:
		if n.Run.Step == "" {
			return n.Run.Message
		}
		return "step " + n.Run.Step + " failed: " + n.Run.Message
	case n.Drain != nil:
		s := fmt.Sprintf("the drain took longer than the %s that pool %s allows", window.Span(in.Pools[np.Pool].DrainTimeout), np.Pool)
		if len(n.Drain.Verdicts) > 0 {
			s += ": " + n.Drain.Verdicts[0].Message
		}
		return s
	}
	return "it failed"
}

// failure is the verdict on a node that has failed and is not tried again.
func failure(in *Input, np model.NodePlan, n Node) model.Verdict {
	v := about(n.Name, reasonStepFailed, ": "+whatFailed(in, np, n))
	v.Waiting = false
	v.Fix = "see to the cause, then `refit retry` (raise spec.retry by one); the node stays cordoned"
	switch {
	case cameBack(n):
		v.Reason = reasonVersionReverted
		v.Fix = "find out what took it back, then `refit retry --node " + n.Name + "`"
	case n.Run == nil || n.Run.Attempt.Number < n.Attempt.Number:
		v.Reason = reasonDrainBlocked
	case n.Run.Undo:
		v.Reason = reasonUndoFailed
		v.Message += fmt.Sprintf("; it could not be taken back: step %s: %s", n.Run.Step, n.Run.Message)
	case n.Outside != nil:
		// the step's word stands
	case n.Run.Reason != "":
		v.Reason = n.Run.Reason
	}
	if s := irreversible(np, n); s != nil && in.Pools[np.Pool].Undo && !cameBack(n) {
		v.Message += "; it is not undone, because step " + s.ID + " cannot be taken back: " + s.NotReversible
	}
	return v
}

// undone is the verdict on a node that failed and was taken back.
func undone(np model.NodePlan, n Node) model.Verdict {
	v := about(n.Name, reasonUndone, " failed and was taken back to "+np.From+"; "+n.Run.Because)
	v.Waiting = false
	v.Fix = "see to the cause, then `refit retry` (raise spec.retry by one)"
	return v
}
