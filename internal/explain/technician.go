package explain

import (
	"fmt"
	"slices"
)

// Technician is what a person without Kubernetes reads: one sentence, one colour, how far the
// work is, and whether the USB stick may be pulled.
type Technician struct {
	Sentence, Colour string
	Progress         *Progress
	// Medium is advice about the stick, empty without one.
	Medium string
}

// Progress of one stage, with its own name: copying and updating have other totals.
type Progress struct {
	Label   string
	Percent int
	Detail  string
	// Step is the step of the node that is being updated; see View.Step.
	Step string
}

// Advice about the stick.
const (
	MediumStay = "Leave the USB stick in the machine."
	MediumPull = "You may pull the USB stick."
)

// Signs show the same as the colours, for people who do not see colours.
var Signs = map[string]string{Green: "✓", Blue: "…", Yellow: "!", Red: "×"}

// sentence is about all machines, or about the one that shows it.
type sentence struct{ all, one string }

// sentences of phases.
var sentences = map[string]sentence{
	"Done":      {"Done: all machines are updated.", "Done: this machine is updated."},
	"Halted":    {"The update has stopped: call the administrator.", "The update of this machine has stopped: call the administrator."},
	"Blocked":   {"The update cannot go on: call the administrator.", "This machine cannot go on: call the administrator."},
	"Ready":     {"The machines are prepared, and the administrator starts the update.", "This machine is prepared: wait for the others and for the administrator."},
	"Starting":  {"The update starts now: leave the machines on.", "The update of this machine starts now: leave it on."},
	"Updating":  {"The update is running: leave the machines on.", "This machine is being updated: leave it on."},
	"Preparing": {"The machines are preparing the update: please wait.", "This machine is preparing the update: please wait."},
	// The other phases are those of Machine.
	"Undone":  {one: "The update of this machine was undone: call the administrator."},
	"Missing": {one: "This machine is missing a part of the update: plug in the USB stick."},
	"Stopped": {one: "refit does not work on this machine: call the administrator."},
	"Unknown": {one: "The state of this machine is not known yet: please wait."},
}

const (
	sentencePlug     = "Plug the USB stick into any machine."
	sentenceApprove  = "The USB stick was found, and the administrator must approve it."
	sentencePlan     = "The USB stick was accepted, and the administrator plans the update."
	sentencePaused   = "The administrator paused the update: please wait."
	sentenceUnusable = "This USB stick cannot be used: call the administrator."
)

// MakeTechnician makes the technician's view of all machines. media are the states of the media
// in nodes.
func MakeTechnician(v *View, media []string) Technician {
	return Technician{Sentence: sentenceOf(v), Colour: v.Colour, Progress: v.Progress(), Medium: mediumAdvice(v.Nodes, media)}
}

func sentenceOf(v *View) string {
	if v.Phase == "Idle" {
		return idleSentence(v)
	}
	if v.Paused && v.Phase != "Done" {
		return sentencePaused
	}
	if s, ok := sentences[v.Phase]; ok {
		return s.all
	}
	return sentences["Preparing"].all
}

func idleSentence(v *View) string {
	inUse := func(b Bundle) bool { return b.Use != "Released" && b.Digest != "" }
	switch i := slices.IndexFunc(v.Bundles, inUse); {
	case i < 0:
		return sentencePlug
	case !v.Bundles[i].Approved:
		return sentenceApprove
	}
	return sentencePlan
}

// Progress counts nodes and steps while nodes are updated, and bytes while they copy.
func (v *View) Progress() *Progress {
	switch v.Phase {
	case "Done", "Updating", "Halted":
		noun := "nodes"
		if v.NodesTotal == 1 {
			noun = "node"
		}
		return &Progress{Label: "Updated", Percent: v.Percent, Detail: fmt.Sprintf("%d of %d %s", v.NodesDone, v.NodesTotal, noun), Step: v.Step()}
	}
	var done, total int64
	for i := range v.Nodes {
		done, total = done+v.Nodes[i].BytesDone, total+v.Nodes[i].BytesTotal
	}
	return copied(done, total)
}

// copied is the progress of copying, nil if there is nothing to copy.
func copied(done, total int64) *Progress {
	if total == 0 {
		return nil
	}
	return &Progress{Label: "Copied", Percent: Percent(done, total), Detail: Bytes(done) + " of " + Bytes(total)}
}

// Percent rounds down, so that 100 is all.
func Percent(done, total int64) int {
	if total <= 0 {
		return 0
	}
	return int(min(100, max(0, float64(done)*100/float64(total))))
}

// mediumAdvice returns whether the medium may go, "" without a medium. It may when every node has
// all that it needs, or when all media were refused. A bundle that is not approved has not been
// copied.
func mediumAdvice(nodes []Node, media []string) string {
	copying := func(m string) bool { return m == "Found" || m == "Copying" }
	switch {
	case len(media) == 0:
		return ""
	case slices.ContainsFunc(media, copying), slices.ContainsFunc(nodes, needsMedium):
		return MediumStay
	}
	wanted := slices.ContainsFunc(nodes, func(n Node) bool { return n.ImagesTotal > 0 || n.BytesTotal > 0 })
	if wanted || !slices.Contains(media, "Copied") {
		return MediumPull
	}
	return MediumStay
}

// needsMedium reports whether a node may still need bytes of a medium.
func needsMedium(n Node) bool {
	return n.Phase == "NoAgent" || n.BytesDone < n.BytesTotal || n.ImagesPinned < n.ImagesTotal
}

// Machine has the facts that one node has about itself, without the API server.
type Machine struct {
	// Stopped: the node's agent does not run. Known is false if there is no status of it.
	Stopped, Known bool
	// Phase, Reason and Stalled are those of its NodeUpdate; Stalled means that a person must act.
	Phase, Reason string
	Stalled       bool
	// Wanted is the digest of the bundle that the node must prepare or run.
	Wanted string
	// Run is the last run on this node, and Permitted the run that the controller permits.
	Run, Permitted MachineRun
	// BytesDone and BytesTotal count what the node copies.
	BytesDone, BytesTotal int64
	Media                 []MachineMedium
}

// MachineRun is a run of steps on one node.
type MachineRun struct {
	UID, Bundle, State    string
	StepsDone, StepsTotal int
}

// MachineMedium is a medium in a machine. Approved: its bundle is. Whole: the machine stores all of
// its bundle.
type MachineMedium struct {
	State, Digest   string
	Approved, Whole bool
}

// phaseView is the phase of a machine in the words of View, and its colour.
type phaseView struct{ phase, colour string }

// MakeMachine makes the technician's view of the machine that shows it.
func MakeMachine(m Machine) Technician {
	p := m.phase()
	out := Technician{Sentence: sentences[p.phase].one, Colour: p.colour, Medium: m.mediumAdvice()}
	switch {
	case p.phase == "Idle":
		out.Sentence, out.Colour = m.idle()
	case p.phase == "Done" && slices.ContainsFunc(m.Media, awaitsApproval):
		out.Sentence, out.Colour = sentenceApprove, Yellow
	case m.Reason == "Paused" && p.phase == "Preparing":
		out.Sentence, out.Colour = sentencePaused, Yellow
	}
	switch p.phase {
	case "Updating", "Halted", "Undone":
		out.Progress = &Progress{Label: "Steps", Percent: Percent(int64(m.Run.StepsDone), int64(m.Run.StepsTotal)), Detail: fmt.Sprintf("%d of %d", m.Run.StepsDone, m.Run.StepsTotal)}
	case "Done":
		out.Progress = &Progress{Label: "Updated", Percent: 100}
	case "Preparing", "Ready", "Blocked", "Missing":
		out.Progress = copied(m.BytesDone, m.BytesTotal)
	}
	return out
}

// phase classifies the machine. What the agent reports counts before what a run left behind.
func (m *Machine) phase() phaseView {
	switch {
	case m.Stopped:
		return phaseView{"Stopped", Red}
	case !m.Known:
		return phaseView{"Unknown", Blue}
	case m.Phase == "Failed":
		return phaseView{"Halted", Red}
	case m.Phase == "Updating":
		return phaseView{"Updating", Blue}
	case m.Phase == "Waiting":
		return m.waiting()
	case m.Phase == "Idle":
		return phaseView{"Idle", Green}
	case m.Phase == "Ready":
		return m.ready()
	}
	return phaseView{"Preparing", Blue}
}

func (m *Machine) waiting() phaseView {
	switch {
	case m.Reason == "NoSource":
		return phaseView{"Missing", Yellow}
	case m.Stalled:
		return phaseView{"Blocked", Yellow}
	}
	return phaseView{"Preparing", Blue}
}

// ready distinguishes a machine before its update from one after it. The permission of the last
// run stays, so its bundle decides whether another release is wanted by now.
func (m *Machine) ready() phaseView {
	r := m.Permitted
	switch {
	case r.UID == "" || r.Bundle != m.Wanted:
		return phaseView{"Ready", Green}
	case m.Run.UID != r.UID:
		return phaseView{"Starting", Blue}
	case m.Run.State == "Succeeded":
		return phaseView{"Done", Green}
	case m.Run.State == "Undone":
		return phaseView{"Undone", Red}
	}
	return phaseView{"Ready", Green}
}

// idle is the sentence of a machine to which nothing is assigned.
func (m *Machine) idle() (text, colour string) {
	switch {
	case slices.ContainsFunc(m.Media, awaitsApproval):
		return sentenceApprove, Yellow
	case m.Wanted != "":
		return sentencePlan, Green
	case slices.ContainsFunc(m.Media, isUnusable):
		return sentenceUnusable, Yellow
	}
	return sentencePlug, Green
}

func awaitsApproval(x MachineMedium) bool { return x.State == "Found" && !x.Approved }

func isUnusable(x MachineMedium) bool { return x.State == "Refused" || x.State == "Unreadable" }

// mediumAdvice returns whether the medium in this machine may go. Other machines may need parts
// of it that this one does not. They all have them when a run is permitted, since the gate opens
// then, or when this machine stores the whole bundle.
func (m *Machine) mediumAdvice() string {
	if len(m.Media) == 0 {
		return ""
	}
	for _, x := range m.Media {
		everywhere := x.Whole || x.Digest != "" && x.Digest == m.Permitted.Bundle
		if !isUnusable(x) && (x.State != "Copied" || !everywhere) {
			return MediumStay
		}
	}
	return MediumPull
}
