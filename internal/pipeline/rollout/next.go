package rollout

import (
	"fmt"
	"slices"

	"github.com/refit-dev/refit/internal/model"
)

// Verbs of actions.
const (
	Stage       = "stage"    // have the node make ready what it boots next
	Exclude     = "exclude"  // mark with the attempt, and take out of external load balancers
	Cordon      = "cordon"   // mark with the attempt, and cordon
	DrainNode   = "drain"    // evict what must go
	Permit      = "run"      // let the node run its steps
	Undo        = "undo"     // let the node undo its steps
	Uncordon    = "uncordon" // uncordon a node that is done, and record it
	ReleaseNode = "release"  // uncordon a node that was undone
)

// Action is one thing to do to one node. Doing it twice is the same as once.
type Action struct {
	Verb string
	Node string
	// Attempt for exclude, cordon, run and undo.
	Attempt Attempt
	// UndoReason says, for an undo, what had failed.
	UndoReason string
}

// Decision is what to do and what to say.
type Decision struct {
	Actions  []Action
	Stages   Stages
	Blockers []model.Blocker
	// Halted: no further node starts until a person has checked what failed.
	Halted bool
	// Finished: every node of the plan was observed at its target, is Ready and
	// has soaked.
	Finished                  bool
	Done, Failed, Gone, Total int
	// Blocked: nothing moves, and nothing will before a person acts. A pause is none.
	Blocked bool
	// Current are the nodes that have started and are not done, in plan order.
	Current []string
}

// Reason words; the catalogue of the API has the same.
const (
	reasonPaused             = "Paused"
	reasonHalted             = "Halted"
	reasonStepFailed         = "StepFailed"
	reasonDrainBlocked       = "DrainBlocked"
	reasonDraining           = "Draining"
	reasonLeavingBalancers   = "LeavingLoadBalancers"
	reasonUpdating           = "Updating"
	reasonSettling           = "Settling"
	reasonSoaking            = "Soaking"
	reasonAgentHeartbeatLost = "AgentHeartbeatLost"
	reasonNodeNotReady       = "NodeNotReady"
	reasonNodeOnHold         = "NodeOnHold"
	reasonNodeLost           = "NodeLost"
	reasonUnhealthy          = "ControlPlaneUnhealthy"
	reasonEtcdQuorum         = "EtcdQuorum"
	reasonAddons             = "AddonsNotReady"
	reasonBudgetSpent        = "BudgetSpent"
	reasonOutsideWindow      = "OutsideWindow"
	reasonWindowInvalid      = "WindowInvalid"
	reasonVersionReverted    = "VersionReverted"
	reasonRetrying           = "Retrying"
	reasonUndoing            = "Undoing"
	reasonUndone             = "Undone"
	reasonUndoFailed         = "UndoFailed"
	reasonStaging            = "OSStaging"
	reasonNotStaged          = "OSNotStaged"
	reasonNodeInNoPool       = "NodeInNoPool"
	reasonOSUnhealthy        = "OSUnhealthy"
	reasonUndoArmed          = "UndoArmed"
	reasonUndoneByDeadline   = "UndoneByDeadline"
	reasonOSRolledBack       = "OSRolledBack"

	reasonJournalCorrupt    = "JournalCorrupt"
	reasonJournalUnreadable = "JournalUnreadable"
	reasonJournalUnwritable = "JournalUnwritable"
	reasonInsufficientSpace = "InsufficientSpace"
	reasonReadOnly          = "FileSystemReadOnly"
)

// Next decides.
func Next(in Input) Decision {
	in.align()
	total := len(in.Plan.Nodes)
	in.stages = make([]string, total)
	d := Decision{Stages: Stages{in.stages, in.at}, Total: total}
	for i := range in.Plan.Nodes { // by index: there may be thirty thousand
		d.classifyNode(&in, i)
	}
	d.Total -= d.Gone
	lines := makeLines(&in)
	d.checkHalt(&in, lines)
	d.checkFinished(&in, lines)
	if !d.Finished {
		d.stageNodes(&in, lines)
		d.startNodes(&in, lines)
		d.Blocked = !in.Paused && !d.Halted && len(d.Actions) == 0 && len(d.Current) == 0 && onlyPersonsHelp(d.Blockers)
	}
	return d
}

// onlyPersonsHelp reports whether there are waits and none ends by itself.
func onlyPersonsHelp(vs []model.Blocker) bool {
	return len(vs) > 0 && !slices.ContainsFunc(vs, func(v model.Blocker) bool { return v.Waiting || v.Reason == reasonPaused })
}

// classifyNode finds the stage of one node, and continues a node that has started.
func (d *Decision) classifyNode(in *Input, i int) {
	stage, idle := stageOfIdleNode(in.row[i])
	if !idle {
		stage = stageOf(in, in.Plan.Nodes[i], *in.row[i])
	}
	in.stages[i] = stage
	switch stage {
	case StageGone:
		d.Gone++
	case StageDone:
		d.Done++
	case StageWaiting:
	default:
		d.continueNode(in, in.Plan.Nodes[i], *in.row[i], stage)
	}
}

// continueNode continues a node that has started, or tells of one that has failed.
func (d *Decision) continueNode(in *Input, np model.NodePlan, n Node, stage string) {
	switch stage {
	case StageFailed:
		d.Failed++
		if isLost(&np, &n) {
			d.addBlockers(lostBlocker(&np, &n))
		} else {
			d.addBlockers(failedBlocker(in, np, n))
		}
	case StageUndone:
		d.Failed++
		d.addBlockers(undoneBlocker(np, n))
		if n.Started && n.Ready {
			d.addAction(Action{Verb: ReleaseNode, Node: n.Name})
		}
	default:
		d.continueStarted(in, np, n, stage)
	}
	if n.Started || stage == StageUpdating {
		d.Current = append(d.Current, np.Node)
	}
}

// continueStarted continues a node that has started; a pause or a halt does not stop it.
func (d *Decision) continueStarted(in *Input, np model.NodePlan, n Node, stage string) {
	switch stage {
	case StageDraining:
		if !d.leaveBalancers(in, np, n) {
			d.drainNode(np, n)
		}
	case StageUpdating:
		if !n.Started {
			d.addAction(Action{Verb: Cordon, Node: n.Name, Attempt: n.Run.Attempt})
		}
		d.addBlockers(updatingBlocker(in, np, n))
	case StageRetrying:
		d.retryNode(in, np, n)
	case StageUndoing:
		d.undoNode(in, np, n)
	case StageSettling:
		d.addBlockers(settlingBlocker(n))
	case StageFinishing:
		d.addAction(Action{Verb: Uncordon, Node: n.Name})
	}
}

func (d *Decision) drainNode(np model.NodePlan, n Node) {
	switch {
	case hasStep(np, Cordoned) && !n.Unschedulable:
		d.addAction(Action{Verb: Cordon, Node: n.Name, Attempt: n.Attempt})
	case !hasStep(np, Drained) || n.Drain != nil && n.Drain.Left == 0:
		d.addAction(Action{Verb: Permit, Node: n.Name, Attempt: n.Attempt})
	default:
		d.addAction(Action{Verb: DrainNode, Node: n.Name})
		if n.Drain != nil {
			d.addBlockers(nodeBlocker(n.Name, reasonDraining, " is being drained"))
			d.addBlockers(n.Drain.Blockers...)
		}
	}
}

// Cordoned is the ID of the step that keeps new pods away; a plan without it only
// marks the node.
const Cordoned = "cordon"

// retryNode marks a node that has started with its next attempt.
func (d *Decision) retryNode(in *Input, np model.NodePlan, n Node) {
	wait := retryWait(in, n)
	if wait == "" {
		d.addAction(Action{Verb: Cordon, Node: n.Name, Attempt: nextAttempt(in, n)})
	}
	d.addBlockers(retryingBlocker(in, np, n, wait))
}

// undoNode lets a failed node undo the steps that it started.
func (d *Decision) undoNode(in *Input, np model.NodePlan, n Node) {
	d.Failed++
	if n.Run == nil || !n.Run.Undo {
		because, last := whatFailed(in, np, n), n.lastAttempt()
		d.addAction(Action{Verb: Undo, Node: n.Name, Attempt: Attempt{last.Number + 1, last.Retry, last.Try}, UndoReason: because})
		d.addBlockers(nodeBlocker(n.Name, reasonUndoing, " is being undone, because "+because))
		return
	}
	d.addBlockers(updatingBlocker(in, np, n))
}

// Drained is the ID of the step that empties a node; a plan without it leaves
// the pods in place.
const Drained = "drain"

func hasStep(np model.NodePlan, id string) bool {
	return slices.ContainsFunc(np.Steps, func(s model.Step) bool { return s.ID == id })
}

func (d *Decision) addAction(a Action)              { d.Actions = append(d.Actions, a) }
func (d *Decision) addBlockers(vs ...model.Blocker) { d.Blockers = append(d.Blockers, vs...) }

// isFailure reports whether a stage is a failure that a person must see.
func isFailure(stage string) bool {
	return stage == StageFailed || stage == StageUndone || stage == StageUndoing
}

// isSettled reports whether a stage keeps no later wave or zone from its turn.
func isSettled(stage string) bool {
	return stage == StageDone || stage == StageGone || stage == StageFailed || stage == StageUndone
}

// Moves reports whether a node in a stage has still to move, or is at it.
func Moves(stage string) bool { return !isSettled(stage) && stage != StageUndoing }

// Stages says where every node of a plan is.
type Stages struct {
	row []string
	at  map[string]int
}

// ByIndex is the stage of the i-th node of the plan.
func (s Stages) ByIndex(i int) string { return s.row[i] }

// ByNode is the stage of a node, empty if the plan does not have it.
func (s Stages) ByNode(node string) string {
	if i, planned := s.at[node]; planned {
		return s.row[i]
	}
	return ""
}

// StagesOf says where every node of the plan is.
func StagesOf(in Input) Stages {
	in.align()
	out := Stages{make([]string, len(in.Plan.Nodes)), in.at}
	for i := range out.row {
		out.row[i] = stageOf(&in, in.Plan.Nodes[i], *in.row[i])
	}
	return out
}

// checkHalt: a control-plane node or a canary failed, a pool has as many failures as
// it bears, or nothing is left but what failed. Nodes that an image took count over all pools
// that boot it: what one pool has seen, the next one must not learn again.
func (d *Decision) checkHalt(in *Input, lines map[string]*line) {
	if d.Failed == 0 {
		return
	}
	counts, images := map[string]int{}, imageFailures(in)
	open := false
	for i := range in.Plan.Nodes {
		np, stage := &in.Plan.Nodes[i], in.stages[i]
		open = open || !isSettled(stage)
		if !isFailure(stage) {
			continue
		}
		counts[np.Pool]++
		if np.Role == model.RoleControlPlane || lines[np.Pool].canary[np.Node] || max(counts[np.Pool], images[bootedAt(in, i)]) >= max(1, in.Pools[np.Pool].MaxFailures) {
			d.Halted = true
		}
	}
	d.Halted = d.Halted || !open
}

// checkFinished decides whether all is done: every node at its target, with no mark
// left, Ready, and watched for as long as its pool asks.
func (d *Decision) checkFinished(in *Input, lines map[string]*line) {
	if d.Done < d.Total {
		return
	}
	d.Finished = true
	for i, n := range in.row {
		if in.stages[i] == StageDone && !n.Ready {
			d.Finished = false
			d.addBlockers(nodeBlocker(n.Name, reasonNodeNotReady, " is at its target and not Ready"))
		}
	}
	d.finishedWaits(lines)
	until, who := soakEnd(in, lines)
	if d.Finished && until.After(in.Now) {
		d.Finished = false
		d.addBlockers(model.Blocker{Reason: reasonSoaking, Object: "Node/" + who, Waiting: true,
			Message: fmt.Sprintf("every node is done; node %s is watched until %s", who, formatTime(until))})
	}
}
