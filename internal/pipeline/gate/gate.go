package gate

import (
	"time"

	"github.com/refit-dev/refit/internal/model"
)

// SilentAfter is how long an agent may be unheard before the gate closes.
const SilentAfter = 3 * time.Minute

// FileSystem is the room of one place on a node, in bytes.
type FileSystem struct {
	Name, ID string
	Free     int64
}

// Holding is what a node reports to hold.
type Holding struct {
	// Content is the hold list that the report is about.
	Content                               string
	ImagesTotal, ImagesHeld, ImagesPinned int32
	PayloadsTotal, PayloadsHeld           int32
	// Lacking are images that the node's updaters need and nobody brings.
	Lacking []string
	// Needed is the room still needed in bytes, by file system name.
	Needed map[string]int64
}

// Node is what the gate needs of a node.
type Node struct {
	Name         string
	ControlPlane bool
	// InPlan is true if the plan moves the node. Others must hold the images
	// too: the cluster's own pods run everywhere.
	InPlan bool
	Ready  bool
	// AgentKnown is true once an agent has reported; Heartbeat is when it last did.
	AgentKnown bool
	Heartbeat  time.Time
	// WantHold is the hold list the node was given; HoldsBundle is true if that
	// list has everything of the update's bundle.
	WantHold    string
	HoldsBundle bool
	// WantImages and WantPayloads are the lengths of that list.
	WantImages, WantPayloads int
	Holding                  *Holding
	FileSystems              []FileSystem
	// Stalled is what the agent says stops it, nil if nothing.
	Stalled *model.Verdict
}

// Budget is a PodDisruptionBudget.
type Budget struct {
	Namespace, Name string
	// Wanted pods of Expected must stay healthy.
	Wanted, Expected int32
}

// Input is everything the gate looks at.
type Input struct {
	Now time.Time
	// Bundle is the digest, Approved whether it may be loaded; if not, Approval
	// says why.
	Bundle   string
	Approved bool
	Approval *model.Verdict
	// Plan is what the planner said.
	PlanVerdicts, PlanWarnings []model.Verdict
	PlanDigest                 string
	// ApprovedPlan is the digest a person approved, empty if any will do.
	ApprovedPlan string
	// Running is the name of another update that has started, empty if none.
	Running string
	Nodes   []Node
	Budgets []Budget
}

// Result of asking every check.
type Result struct {
	Verdicts []model.Verdict
	// Warnings do not keep the gate closed.
	Warnings []model.Verdict
	// Closed names the checks that said no, in order.
	Closed []string
}

// Open reports whether the update may start.
func (r Result) Open() bool { return len(r.Verdicts) == 0 }

// Check is one question.
type Check struct {
	Name string
	// Ask returns every reason against, and what is only worth knowing.
	Ask func(*Input) (verdicts, warnings []model.Verdict)
}

// Checks in the order in which a person should read their answers.
func Checks() []Check {
	return []Check{
		{"bundle-approved", bundleApproved},
		{"plan", planned},
		{"plan-unchanged", planUnchanged},
		{"no-other-update", noOtherUpdate},
		{"space", space},
		{"agents", agents},
		{"nodes-ready", nodesReady},
		{"control-plane", controlPlane},
		{"images-held", imagesHeld},
		{"payloads-held", payloadsHeld},
		{"budgets", budgets},
	}
}

// Decide asks every check.
func Decide(in Input) Result {
	var r Result
	for _, c := range Checks() {
		verdicts, warnings := c.Ask(&in)
		if len(verdicts) > 0 {
			r.Closed = append(r.Closed, c.Name)
		}
		r.Verdicts = append(r.Verdicts, verdicts...)
		r.Warnings = append(r.Warnings, warnings...)
	}
	return r
}
