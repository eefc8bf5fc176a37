package rollout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// Stages of a node, in order.
const (
	StageWaiting   = "Waiting"
	StageDraining  = "Draining"
	StageUpdating  = "Updating"
	StageSettling  = "Settling"
	StageFinishing = "Finishing"
	StageDone      = "Done"
	StageFailed    = "Failed"
	StageGone      = "Gone"
)

// Verbs of actions.
const (
	Cordon   = "cordon"
	DrainIt  = "drain"
	Permit   = "run"
	Uncordon = "uncordon"
)

// Action is one thing to do to one node. Doing it twice is the same as once.
type Action struct {
	Verb string
	Node string
	// Attempt for cordon and run.
	Attempt int32
}

// Decision is what to do and what to say.
type Decision struct {
	Actions  []Action
	Stages   map[string]string
	Verdicts []model.Verdict
	// Halted: a node failed, nothing new starts.
	Halted bool
	// Finished: every node of the plan was observed at its target and is Ready.
	Finished                  bool
	Done, Failed, Gone, Total int
	// Current are the nodes that have started and are not done, in plan order.
	Current []string
}

// Reason words; the catalogue of the API has the same.
const (
	reasonPaused       = "Paused"
	reasonHalted       = "Halted"
	reasonStepFailed   = "StepFailed"
	reasonDrainBlocked = "DrainBlocked"
	reasonDraining     = "Draining"
	reasonUpdating     = "Updating"
	reasonSettling     = "Settling"
	reasonAgentSilent  = "AgentSilent"
	reasonNodeNotReady = "NodeNotReady"
	reasonUnhealthy    = "ControlPlaneUnhealthy"
	reasonBudgetSpent  = "BudgetSpent"
)

// Next decides.
func Next(in Input) Decision {
	d := Decision{Stages: map[string]string{}, Total: len(in.Plan.Nodes)}
	for _, np := range in.Plan.Nodes {
		d.look(&in, np)
	}
	d.Total -= d.Gone
	d.Halted = d.Failed > 0
	d.finish(&in)
	if !d.Finished {
		d.start(&in)
	}
	return d
}

// look judges one node and continues what has started.
func (d *Decision) look(in *Input, np model.NodePlan) {
	n, known := in.Nodes[np.Node]
	if !known {
		n.Gone = true
	}
	n.Name = np.Node
	stage := stageOf(in, np, n)
	d.Stages[np.Node] = stage
	switch stage {
	case StageGone:
		d.Gone++
		return
	case StageDone:
		d.Done++
		return
	case StageWaiting:
		return
	case StageFailed:
		d.Failed++
		d.say(failure(in, np, n))
	default:
		d.carryOn(in, np, n, stage)
	}
	d.Current = append(d.Current, np.Node)
}

func stageOf(in *Input, np model.NodePlan, n Node) string {
	switch {
	case n.Gone:
		return StageGone
	case !n.Started && n.AtTarget:
		return StageDone
	case !n.Started:
		return StageWaiting
	case n.Run != nil:
		return stageOfRun(in, n)
	case n.AtTarget && n.Ready:
		return StageFinishing // somebody did it by hand
	case drainExpired(in, np, n):
		return StageFailed
	}
	return StageDraining
}

func stageOfRun(in *Input, n Node) string {
	switch {
	case n.Run.State == RunFailed && n.Run.Attempt >= in.Attempt:
		return StageFailed
	case n.Run.State != RunSucceeded:
		return StageUpdating
	case n.AtTarget && n.Ready:
		return StageFinishing
	}
	return StageSettling
}

func drainExpired(in *Input, np model.NodePlan, n Node) bool {
	limit := in.Pools[np.Pool].DrainTimeout
	return limit > 0 && n.StartedAttempt >= in.Attempt && n.Drain != nil && n.Drain.Left > 0 && in.Now.Sub(n.StartedAt) > limit
}

// carryOn continues a node that has started; a pause or a halt does not stop it.
func (d *Decision) carryOn(in *Input, np model.NodePlan, n Node, stage string) {
	switch stage {
	case StageDraining:
		d.drain(in, np, n)
	case StageUpdating:
		if n.Run.State == RunFailed { // an attempt before the one that is wanted
			d.act(Action{Permit, n.Name, in.Attempt})
		}
		d.say(running(n))
	case StageSettling:
		d.say(settling(n))
	case StageFinishing:
		d.act(Action{Verb: Uncordon, Node: n.Name})
	}
}

func (d *Decision) drain(in *Input, np model.NodePlan, n Node) {
	switch {
	case hasStep(np, Cordoned) && !n.Unschedulable || n.StartedAttempt < in.Attempt:
		d.act(Action{Cordon, n.Name, in.Attempt})
	case !hasStep(np, Drained) || n.Drain != nil && n.Drain.Left == 0:
		d.act(Action{Permit, n.Name, in.Attempt})
	default:
		d.act(Action{Verb: DrainIt, Node: n.Name})
		if n.Drain != nil {
			d.say(model.Verdict{Reason: reasonDraining, Message: "node " + n.Name + " is being drained", Object: "Node/" + n.Name, Waiting: true})
			d.say(n.Drain.Verdicts...)
		}
	}
}

// Cordoned is the ID of the step that keeps new pods away; a plan without it only
// marks the node.
const Cordoned = "cordon"

// Drained is the ID of the step that empties a node; a plan without it leaves
// the pods in place.
const Drained = "drain"

func hasStep(np model.NodePlan, id string) bool {
	return slices.ContainsFunc(np.Steps, func(s model.Step) bool { return s.ID == id })
}

func (d *Decision) act(a Action)            { d.Actions = append(d.Actions, a) }
func (d *Decision) say(vs ...model.Verdict) { d.Verdicts = append(d.Verdicts, vs...) }

func running(n Node) model.Verdict {
	v := model.Verdict{Reason: reasonUpdating, Message: "node " + n.Name + " is being updated", Object: "Node/" + n.Name, Waiting: true}
	if n.Run.Step != "" {
		v.Message += " (step " + n.Run.Step + ")"
	}
	if n.AgentSilent {
		v.Reason = reasonAgentSilent
		v.Message = "the agent of node " + n.Name + " has not been heard for over three minutes"
		v.Fix = "on the node: systemctl status refit-agent; a control-plane node may be away while its API server moves"
	}
	return v
}

func settling(n Node) model.Verdict {
	v := model.Verdict{Reason: reasonSettling, Message: "node " + n.Name + " has run its steps", Object: "Node/" + n.Name, Waiting: true}
	switch {
	case !n.Ready:
		v.Message += "; it is not Ready yet"
	case n.NotYet != "":
		v.Message += "; " + n.NotYet
	}
	return v
}

func failure(in *Input, np model.NodePlan, n Node) model.Verdict {
	v := model.Verdict{Object: "Node/" + n.Name, Fix: "see to the cause, then `refit retry` (raise spec.retry by one); the node stays cordoned"}
	if n.Run == nil {
		v.Reason = reasonDrainBlocked
		v.Message = fmt.Sprintf("node %s: the drain took longer than the %s that pool %s allows", n.Name, in.Pools[np.Pool].DrainTimeout, np.Pool)
		if len(n.Drain.Verdicts) > 0 {
			v.Message += ": " + n.Drain.Verdicts[0].Message
		}
		return v
	}
	v.Reason = n.Run.Reason
	if v.Reason == "" {
		v.Reason = reasonStepFailed
	}
	v.Message = fmt.Sprintf("node %s: step %s failed: %s", n.Name, n.Run.Step, n.Run.Message)
	return v
}

// finish decides whether all is done: every node at its target, with no mark
// left, and Ready.
func (d *Decision) finish(in *Input) {
	if d.Done < d.Total {
		return
	}
	d.Finished = true
	for _, np := range in.Plan.Nodes {
		if n := in.Nodes[np.Node]; d.Stages[np.Node] == StageDone && !n.Ready {
			d.Finished = false
			d.say(model.Verdict{Reason: reasonNodeNotReady, Message: "node " + np.Node + " is at its target and not Ready", Object: "Node/" + np.Node, Waiting: true})
		}
	}
}

// start lets further nodes begin, as far as wave, budget and health allow.
func (d *Decision) start(in *Input) {
	waiting := d.wave(in)
	switch {
	case len(waiting) == 0:
		return
	case d.Halted:
		d.say(model.Verdict{Reason: reasonHalted, Message: fmt.Sprintf("halted: %d of %d nodes are done, no further node starts", d.Done, d.Total)})
		return
	case in.Paused:
		d.say(model.Verdict{Reason: reasonPaused, Message: "the update is paused: no further node starts", Fix: "`refit resume` (set spec.paused to false)"})
		return
	case d.controlPlaneMoves(in):
		return
	}
	taken := map[string][]string{}
	for _, np := range waiting {
		d.tryStart(in, np, taken)
	}
}

// wave gives the nodes that wait in the first wave that is not done.
func (d *Decision) wave(in *Input) []model.NodePlan {
	wave := -1
	var waiting []model.NodePlan
	for _, np := range in.Plan.Nodes {
		stage := d.Stages[np.Node]
		if stage == StageDone || stage == StageGone {
			continue
		}
		if wave < 0 || np.Wave < wave {
			wave, waiting = np.Wave, nil
		}
		if np.Wave == wave && stage == StageWaiting {
			waiting = append(waiting, np)
		}
	}
	return waiting
}

// controlPlaneMoves: while one does, nothing else starts.
func (d *Decision) controlPlaneMoves(in *Input) bool {
	for _, np := range in.Plan.Nodes {
		if np.Role == model.RoleControlPlane && slices.Contains(d.Current, np.Node) {
			return true
		}
	}
	return false
}

func (d *Decision) tryStart(in *Input, np model.NodePlan, taken map[string][]string) {
	pool, n := in.Pools[np.Pool], in.Nodes[np.Node]
	others := slices.DeleteFunc(slices.Clone(in.UnhealthyControlPlanes), func(s string) bool { return s == np.Node })
	used := append(slices.Clone(pool.Unavailable), taken[np.Pool]...)
	switch {
	case !n.Ready:
		d.say(model.Verdict{Reason: reasonNodeNotReady, Message: "node " + np.Node + " is not Ready and does not start", Fix: "repair the node, or remove it from the cluster", Object: "Node/" + np.Node,
			Waiting: true}) // after a control plane was away kubelets need a moment
	case pool.Paused:
		d.say(model.Verdict{Reason: reasonPaused, Message: "pool " + np.Pool + " is paused: node " + np.Node + " does not start", Fix: "set spec.paused of the UpdatePool to false", Object: "UpdatePool/" + np.Pool})
	case np.Role == model.RoleControlPlane && len(others) > 0:
		d.say(model.Verdict{Reason: reasonUnhealthy, Message: fmt.Sprintf("control-plane node %s does not start while %s is not Ready", np.Node, strings.Join(others, ", ")),
			Object: "Node/" + others[0], Waiting: true})
	case !slices.Contains(used, np.Node) && len(used) >= max(1, pool.Budget):
		d.overBudget(in, pool)
	default:
		if !slices.Contains(used, np.Node) {
			taken[np.Pool] = append(taken[np.Pool], np.Node)
		}
		d.act(Action{Cordon, np.Node, in.Attempt})
		d.Current = append(d.Current, np.Node)
		d.Stages[np.Node] = StageDraining
	}
}

// overBudget says so only when the budget is spent on nodes that this update
// did not take: waiting for one's turn is no news.
func (d *Decision) overBudget(in *Input, pool Pool) {
	var foreign []string
	for _, name := range pool.Unavailable {
		if n, ok := in.Nodes[name]; !ok || !n.Started {
			foreign = append(foreign, name)
		}
	}
	if len(foreign) == 0 {
		return
	}
	v := model.Verdict{Reason: reasonBudgetSpent, Object: "UpdatePool/" + pool.Name, Waiting: true,
		Message: fmt.Sprintf("pool %s allows %d unavailable nodes, and %s is cordoned or not Ready", pool.Name, pool.Budget, strings.Join(foreign, ", ")),
		Fix:     "repair or uncordon the node, or raise the pool's maxUnavailable"}
	if !slices.Contains(d.Verdicts, v) {
		d.say(v)
	}
}
