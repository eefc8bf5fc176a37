package rollout

import (
	"time"

	"github.com/refit-dev/refit/internal/model"
)

// Run is what came of the permission that a node was given.
type Run struct {
	// Attempt that was permitted.
	Attempt int32
	// State the node reports for that attempt: "", Running, Succeeded, Failed.
	State string
	// Step that runs or failed.
	Step string
	// Reason and Message of the node's report.
	Reason, Message string
}

// States of a Run.
const (
	RunRunning   = "Running"
	RunSucceeded = "Succeeded"
	RunFailed    = "Failed"
)

// Drain is how far the emptying of a node is.
type Drain struct {
	// Left pods that must still go.
	Left int
	// Verdicts say why they do not.
	Verdicts []model.Verdict
}

// Node is what is seen of one node.
type Node struct {
	Name string
	// Gone nodes have left the cluster.
	Gone bool
	// Ready as the kubelet reports it.
	Ready bool
	// Unschedulable nodes are cordoned, by whomever.
	Unschedulable bool
	// Started is true while the node carries this update's mark; StartedAt and
	// StartedAttempt are in the mark.
	Started        bool
	StartedAt      time.Time
	StartedAttempt int32
	// AtTarget is true if everything the plan wants was observed; NotYet says
	// what was not.
	AtTarget bool
	NotYet   string
	// Run is what was permitted to the node in this update, nil if nothing was.
	Run *Run
	// Drain of a node that has started and does not run yet.
	Drain *Drain
	// AgentSilent is true if the agent has not been heard for too long.
	AgentSilent bool
}

// Pool is what the rollout needs of a pool.
type Pool struct {
	Name string
	// Budget is how many of its nodes may be unavailable at once, at least 1.
	Budget int
	// Unavailable are all its nodes that are cordoned, not Ready or started,
	// also those the plan does not touch.
	Unavailable []string
	Paused      bool
	// DrainTimeout after which a drain halts the update; 0 is never.
	DrainTimeout time.Duration
}

// Input is everything the decision looks at.
type Input struct {
	Plan  model.Plan
	Nodes map[string]Node
	Pools map[string]Pool
	// UnhealthyControlPlanes are control-plane nodes that are not Ready.
	UnhealthyControlPlanes []string
	Paused                 bool
	// Attempt that is wanted, from 1.
	Attempt int32
	Now     time.Time
}

// Budget turns a pool's maxUnavailable into a number of nodes: a percentage is
// rounded down, and the answer is at least 1.
func Budget(value int, percent bool, size int) int {
	if percent {
		value = size * value / 100
	}
	return max(1, value)
}
