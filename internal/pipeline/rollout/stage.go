package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/refit-dev/refit/internal/model"
)

// Stages of a node, in order.
const (
	StageWaiting   = "Waiting"
	StageDraining  = "Draining"
	StageUpdating  = "Updating"
	StageRetrying  = "Retrying" // failed, and tried again
	StageUndoing   = "Undoing"  // failed, and its steps are being undone
	StageSettling  = "Settling"
	StageFinishing = "Finishing"
	StageDone      = "Done"
	StageUndone    = "Undone" // failed, and as it was before
	StageFailed    = "Failed"
	StageGone      = "Gone"
)

// stageOfIdleNode says where a node is that nothing is done to, as almost all are at
// any moment; idle is false for any other. It says what stageOf would.
func stageOfIdleNode(n *Node) (stage string, idle bool) {
	switch {
	case n.Gone:
		return StageGone, true
	case n.Started || n.Run != nil && !n.Run.finished():
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
	case isLost(&np, &n):
		return afterLoss(in, n)
	case !n.Started:
		return stageOfUnmarked(in, np, n)
	case n.Run != nil && n.Run.Attempt.Number >= n.Attempt.Number:
		return stageOfRun(in, np, n)
	case n.AtTarget && n.Ready && n.Run == nil && !restarts(np):
		return StageFinishing // an administrator updated it by hand
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

// stageOfUnmarked is where a node is that carries no mark.
func stageOfUnmarked(in *Input, np model.NodePlan, n Node) string {
	switch {
	case n.Run != nil && !n.Run.finished():
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
	case n.ReportsOldVersion, n.External != nil && n.External.Failed:
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
	case in.Pools[np.Pool].Undo && irreversible(np, n) == nil && !reverted(n) && !journalLost(n):
		return StageUndoing
	}
	return StageFailed
}

// afterLoss: a lost node hears of no other attempt and no undo. A person may ask for one, for
// when it is back.
func afterLoss(in *Input, n Node) string {
	if in.retriesRequested(n.Name) > n.lastAttempt().Retry {
		return StageRetrying
	}
	return StageFailed
}

// mayRetry: a person asked for it since, or the pool has attempts left. An undo, or a
// rollback of the OS image, ends the pool's attempts.
func mayRetry(in *Input, np model.NodePlan, n Node) bool {
	last := n.lastAttempt()
	if in.retriesRequested(np.Node) > last.Retry {
		return true
	}
	return !isFinal(n) && last.Try < max(1, in.Pools[np.Pool].Attempts)
}

// isFinal: another attempt would not help. The node was rolled back from its target, or it
// is unknown which steps it ran.
func isFinal(n Node) bool {
	return n.Run != nil && (n.Run.Undo || n.Run.Reason == reasonOSUnhealthy || n.Run.Reason == reasonOSRolledBack || n.Run.Reason == reasonUndoneByDeadline || journalLost(n))
}

// journalLost: the journal of the run does not say which of its steps were started.
func journalLost(n Node) bool {
	return n.Run != nil && n.Run.State == RunFailed && (n.Run.Reason == reasonJournalCorrupt || n.Run.Reason == reasonJournalUnreadable)
}

// nextAttempt is the one that a node needs next.
func nextAttempt(in *Input, n Node) Attempt {
	last, want := n.lastAttempt(), in.retriesRequested(n.Name)
	switch {
	case last.Number == 0, want > last.Retry:
		return Attempt{last.Number + 1, want, 1}
	}
	return Attempt{last.Number + 1, last.Retry, last.Try + 1}
}

// reverted: it was at its target, or said so, and is not any more.
func reverted(n Node) bool {
	return !n.AtTarget && (n.ReportsOldVersion || !n.Started && (!n.FinishedAt.IsZero() || n.Run != nil && n.Run.State == RunSucceeded))
}

// irreversible is the first started step that cannot be undone, nil if there is none.
func irreversible(np model.NodePlan, n Node) *model.Step {
	if n.Run == nil {
		return nil // no step started
	}
	for i := range np.Steps {
		s := &np.Steps[i]
		if n.External != nil && s.ID == n.External.Step {
			return s
		}
		if s.By == model.ByAgent && s.NotReversible != "" {
			return s
		}
		if n.External == nil && s.ID == n.Run.Step {
			return nil
		}
	}
	return nil
}

func drainExpired(in *Input, np model.NodePlan, n Node) bool {
	limit, since := in.Pools[np.Pool].DrainTimeout, n.StartedAt
	if end := n.ExcludedAt.Add(exclusion(&np, in.Pools[np.Pool])); end.After(since) {
		since = end
	}
	return limit > 0 && n.Drain != nil && n.Drain.Left > 0 && in.Now.Sub(since) > limit
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
	if n.Run == nil || n.Run.EndedAgo == 0 {
		return ""
	}
	byPerson := in.retriesRequested(n.Name) > n.lastAttempt().Retry
	switch {
	case n.Unsettled != "" && n.Run.EndedAgo < maxUnrest:
		return "when it has settled: " + n.Unsettled
	case !byPerson && n.Run.EndedAgo < pausePerTry*time.Duration(n.lastAttempt().Try):
		return "after a pause"
	}
	return ""
}

// APIServerClause says what becomes of the API server while a control-plane node of
// so many moves.
func APIServerClause(etcd map[string]bool, controlPlanes int) string {
	switch {
	case controlPlanes < 2:
		return "the API server is unavailable meanwhile, workloads continue to run"
	case len(etcd) == 2:
		return "etcd has two members, and one alone has no quorum: the API server hangs while either moves"
	case len(etcd) > 2:
		return fmt.Sprintf("etcd keeps its quorum of %d of %d members", len(etcd)/2+1, len(etcd))
	}
	return "the API server stays available"
}

// Blockers about nodes.

func nodeBlocker(node, reason, message string) model.Blocker {
	return model.Blocker{Reason: reason, Message: "node " + node + message, Object: "Node/" + node, Waiting: true}
}

// runWaits are the reasons of a run in progress that its node waits for something.
var runWaits = []string{reasonJournalUnwritable, reasonJournalUnreadable, reasonInsufficientSpace, reasonReadOnly, reasonUndoArmed}

func updatingBlocker(in *Input, np model.NodePlan, n Node) model.Blocker {
	v := nodeBlocker(n.Name, reasonUpdating, " is being updated")
	if n.Run.Undo {
		v = nodeBlocker(n.Name, reasonUndoing, " is being undone, because "+n.Run.UndoReason)
	}
	if n.Run.Step != "" {
		v.Message += " (step " + n.Run.Step + ")"
	}
	if np.Role == model.RoleControlPlane {
		if cps := in.ControlPlanes(); cps < 2 || len(in.ControlPlane.Etcd) == 2 {
			v.Message += "; " + APIServerClause(in.ControlPlane.Etcd, cps)
		}
	}
	if r := n.Run.Reason; slices.Contains(runWaits, r) {
		v.Reason = r
		v.Message += "; " + n.Run.Message
	}
	if n.AgentHeartbeatLost {
		v.Reason = reasonAgentHeartbeatLost
		v.Message = "the agent of node " + n.Name + " has not been heard for over three minutes"
		v.Fix = "on the node: systemctl status refit-agent; the agent of a control-plane node cannot report while its API server restarts"
	}
	return v
}

// silentAgent says of a node that waits that its agent does not speak.
func silentAgent(n *Node) model.Blocker {
	v := nodeBlocker(n.Name, reasonAgentHeartbeatLost, "")
	v.Message = "node " + n.Name + " does not start: its agent has not been heard for over three minutes, and it must stage the next OS image of the node"
	v.Fix = "on the node: systemctl status refit-agent; or let the others go on with `refit hold " + n.Name + "`"
	return v
}

func settlingBlocker(n Node) model.Blocker {
	v := nodeBlocker(n.Name, reasonSettling, " has run its steps")
	switch {
	case !n.Ready:
		v.Message += "; it is not Ready yet"
	case n.External != nil:
		v.Message += "; " + n.External.Message
	case n.NotYet != "":
		v.Message += "; " + n.NotYet
	}
	return v
}

func retryingBlocker(in *Input, np model.NodePlan, n Node, wait string) model.Blocker {
	next := nextAttempt(in, n)
	v := nodeBlocker(n.Name, reasonRetrying, " is tried again")
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
	case reverted(n):
		return "it was updated and came back at its old version: " + n.NotYet
	case n.Run != nil && n.Run.Undo:
		return n.Run.UndoReason
	case n.External != nil && n.External.Failed:
		return "step " + n.External.Step + " failed: " + n.External.Message
	case n.Run != nil && n.Run.Attempt.Number >= n.Attempt.Number:
		if n.Run.Step == "" {
			return n.Run.Message
		}
		return "step " + n.Run.Step + " failed: " + n.Run.Message
	case n.Drain != nil:
		s := fmt.Sprintf("the drain took longer than the %s that pool %s allows", FormatDuration(in.Pools[np.Pool].DrainTimeout), np.Pool)
		if len(n.Drain.Blockers) > 0 {
			s += ": " + n.Drain.Blockers[0].Message
		}
		return s
	}
	return "it failed"
}

// failedBlocker is the blocker on a node that has failed and is not tried again.
func failedBlocker(in *Input, np model.NodePlan, n Node) model.Blocker {
	v := nodeBlocker(n.Name, reasonStepFailed, ": "+whatFailed(in, np, n))
	v.Waiting = false
	v.Fix = "see to the cause, then `refit retry` (raise spec.retry by one); the node stays cordoned"
	switch {
	case reverted(n):
		v.Reason = reasonVersionReverted
		v.Fix = "find out what restored the old version, then `refit retry --node " + n.Name + "`"
	case n.Run == nil || n.Run.Attempt.Number < n.Attempt.Number:
		v.Reason = reasonDrainBlocked
	case n.Run.Undo:
		v.Reason = reasonUndoFailed
		v.Message += fmt.Sprintf("; the undo failed: step %s: %s", n.Run.Step, n.Run.Message)
	case n.External != nil:
		// the step's word stands
	case n.Run.Reason != "":
		v.Reason = n.Run.Reason
	}
	if s := irreversible(np, n); s != nil && in.Pools[np.Pool].Undo && !reverted(n) && v.Reason != reasonUndoneByDeadline {
		v.Message += "; it is not undone, because step " + s.ID + " is not reversible: " + s.NotReversible
	}
	return v
}

// undoneBlocker is the blocker of a node that failed and whose steps were undone.
func undoneBlocker(np model.NodePlan, n Node) model.Blocker {
	v := nodeBlocker(n.Name, reasonUndone, " failed and its steps were undone, back to "+np.From+"; "+n.Run.UndoReason)
	v.Waiting = false
	v.Fix = "see to the cause, then `refit retry` (raise spec.retry by one)"
	return v
}
