package statusreport

import (
	"cmp"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/text"
)

// States of a node's agent.
const (
	AgentRunning = "Running"
	// AgentHung is an agent whose process exists and that writes no status.
	AgentHung    = "NotResponding"
	AgentStopped = "Stopped"
	// AgentStarting is an agent that has not started since the machine did, a moment ago.
	AgentStarting = "Starting"
)

const (
	// LocalInterval is the longest time between two writes of the local status.
	LocalInterval = time.Minute
	// hungAfter is the age of a local status from which its agent counts as hung.
	hungAfter = 5 * LocalInterval
)

// Answers to the question whether the medium may be pulled.
const (
	MediumYes  = "yes"
	MediumNo   = "no"
	MediumNone = "none" // there is none
	// MediumUnknown: the agent does not report whether there is one.
	MediumUnknown = "unknown"
)

// NodeStatus is what a node reports about itself to people at the machine.
type NodeStatus struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Node       string `json:"node,omitempty"`
	// Sentence is what a technician needs to know; Colour is green, blue, yellow or red.
	Sentence string `json:"sentence"`
	Colour   string `json:"colour"`
	// Progress names what Percent is a part of: Copied, Steps or Updated.
	Progress string `json:"progress,omitempty"`
	Percent  int    `json:"percent"`
	// MayPullMedium is yes, no, none without a medium, or unknown without an agent.
	MayPullMedium string `json:"mayPullMedium"`
	// Agent is Running, Starting, NotResponding or Stopped.
	Agent string `json:"agent"`
	Phase string `json:"phase,omitempty"`
	// Step runs now, or failed; StepsDone of StepsTotal are done. Update is the object of the run.
	Step       string `json:"step,omitempty"`
	StepsDone  int    `json:"stepsDone,omitempty"`
	StepsTotal int    `json:"stepsTotal,omitempty"`
	Update     string `json:"update,omitempty"`
	// Waiting is what the node waits for; Problems do not stop it.
	Waiting  []explain.Blocker `json:"waiting,omitempty"`
	Problems []explain.Blocker `json:"problems,omitempty"`
	// APIReached is true if the API server answered at the last try; APIReachedAt is its last
	// answer, APIError why it does not answer.
	APIReached   bool      `json:"apiReached"`
	APIReachedAt time.Time `json:"apiReachedAt,omitzero"`
	APIError     string    `json:"apiError,omitempty"`
	// WrittenAt is when the agent observed this; ReadAt when it was read.
	WrittenAt time.Time `json:"writtenAt,omitzero"`
	ReadAt    time.Time `json:"readAt"`
	// Status is that of the NodeUpdate; the page on the node leaves it out.
	Status *v1alpha1.NodeUpdateStatus `json:"status,omitempty"`
}

// MakeNodeStatus explains a local status. process is AgentRunning, AgentStarting or AgentStopped.
func MakeNodeStatus(l *Local, process string, now time.Time) NodeStatus {
	out := NodeStatus{APIVersion: "refit.dev/nodestatus/v1", Kind: "NodeStatus", Node: l.Node, Agent: agentState(l, process, now),
		APIReached: l.APIError == "" && !l.APIReachedAt.IsZero(), APIReachedAt: l.APIReachedAt.UTC(), APIError: l.APIError,
		WrittenAt: l.WrittenAt.UTC(), ReadAt: now.UTC().Truncate(time.Second), Status: l.Status}
	out.APIReached = out.APIReached && out.Agent == AgentRunning
	m := machine(l, out.Agent)
	out.setTechnician(explain.MakeMachine(m))
	if s := l.Status; s != nil {
		out.Phase = s.Phase
		out.setRun(l)
		out.Waiting, out.Problems = waits(l), problems(s.Problems)
	}
	return out
}

// agentState classifies the agent. A clock that was set forward makes an agent count as hung until it
// writes again.
func agentState(l *Local, process string, now time.Time) string {
	if process == AgentRunning && !l.WrittenAt.IsZero() && now.Sub(l.WrittenAt) > hungAfter {
		return AgentHung
	}
	return process
}

// machine converts a local status to facts.
func machine(l *Local, agent string) explain.Machine {
	m := explain.Machine{Stopped: agent == AgentStopped || agent == AgentHung}
	if len(l.Approved) > 0 {
		m.Wanted = l.Approved[0]
	}
	if p := l.Permitted; p != nil {
		m.Permitted = explain.MachineRun{UID: p.UID, Bundle: p.Bundle, StepsTotal: p.Steps}
	}
	s := l.Status
	if s == nil || s.Phase == "" || agent == AgentStarting {
		return m
	}
	m.Known, m.Phase, m.Run = true, s.Phase, machineRun(s.Run, m.Permitted)
	for _, c := range s.Conditions {
		if c.Type == v1alpha1.ConditionStalled {
			m.Stalled, m.Reason = c.Status == "True", c.Reason
		}
	}
	if p := s.Pins; p != nil {
		m.BytesDone, m.BytesTotal = p.BytesDone, p.BytesTotal
	}
	for _, x := range s.Media {
		m.Media = append(m.Media, explain.MachineMedium{State: x.State, Digest: x.Digest, Approved: contains(l.Approved, x.Digest), Whole: contains(l.Stored, x.Digest)})
	}
	return m
}

// machineRun converts a run. Only the permitted one has a known number of steps.
func machineRun(r *v1alpha1.NodeRunStatus, permitted explain.MachineRun) (out explain.MachineRun) {
	if r == nil {
		return out
	}
	out = explain.MachineRun{UID: r.UID, State: string(r.State), StepsDone: int(r.StepsDone)}
	if r.UID == permitted.UID {
		out.StepsTotal = permitted.StepsTotal
	}
	return out
}

func contains(all []string, digest string) bool {
	for _, d := range all {
		if d == digest && d != "" {
			return true
		}
	}
	return false
}

func (n *NodeStatus) setTechnician(t explain.Technician) {
	n.Sentence, n.Colour = t.Sentence, t.Colour
	if t.Progress != nil {
		n.Progress, n.Percent = t.Progress.Label, t.Progress.Percent
	}
	switch t.Medium {
	case explain.MediumPull:
		n.MayPullMedium = MediumYes
	case explain.MediumStay:
		n.MayPullMedium = MediumNo
	default:
		n.MayPullMedium = MediumNone
		if n.Agent != AgentRunning || n.Status == nil || n.Status.Phase == "" {
			n.MayPullMedium = MediumUnknown
		}
	}
}

// setRun sets the run that is in progress, or failed.
func (n *NodeStatus) setRun(l *Local) {
	r := l.Status.Run
	if r == nil || r.State != v1alpha1.RunRunning && r.State != v1alpha1.RunFailed {
		return
	}
	n.Step, n.StepsDone = r.Step, int(r.StepsDone)
	if p := l.Permitted; p != nil && p.UID == r.UID {
		n.StepsTotal, n.Update = p.Steps, p.Name
	}
}

// maxBlockers is how many reasons to wait are kept.
const maxBlockers = 8

// waits lists what the node waits for: its run first, then the rest.
func waits(l *Local) (out []explain.Blocker) {
	if r := l.Status.Run; r != nil && (r.State == v1alpha1.RunRunning || r.State == v1alpha1.RunFailed) && r.Message != "" {
		out = append(out, blocker(cmp.Or(r.Reason, v1alpha1.ReasonUpdating), r.Message, "", ""))
	}
	for _, b := range l.Blockers[:min(len(l.Blockers), maxBlockers)] {
		out = append(out, blocker(b.Reason, b.Message, b.Fix, b.Object))
	}
	return out
}

func problems(all []v1alpha1.NodeProblem) (out []explain.Blocker) {
	for _, p := range all {
		if !p.Repaired {
			out = append(out, blocker(p.Reason, p.Message, p.Fix, p.Object))
		}
	}
	return out
}

// blocker adds the fix of the catalogue to a reason without one.
func blocker(reason, message, fix, object string) explain.Blocker {
	if fix == "" {
		r, _ := explain.Lookup(reason)
		fix = r.Fix
	}
	return explain.Blocker{Reason: reason, Message: text.TruncateMiddle(message, 400, 1200, "\n...\n"), Fix: fix, Object: object}
}

// Public is what everyone who reaches the page on the node may see: no message, no name of an
// image, no address.
func (n NodeStatus) Public() NodeStatus {
	n.Status, n.Problems, n.APIError = nil, nil, ""
	waiting := make([]explain.Blocker, 0, len(n.Waiting))
	for _, w := range n.Waiting {
		waiting = append(waiting, explain.Blocker{Reason: w.Reason})
	}
	n.Waiting = waiting
	return n
}
