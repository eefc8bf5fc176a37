package simulate

import (
	"fmt"
	"time"
)

// Result of a run. Durations are seconds, sizes bytes.
type Result struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Date       time.Time `json:"date"`
	Commit     string    `json:"commit,omitempty"`
	Machine    Machine   `json:"machine"`
	Nodes      int       `json:"nodes"`
	Budget     int       `json:"budget"`
	Seed       uint64    `json:"seed"`
	// MeanSeconds that was asked for, and that the drawn times have.
	MeanSeconds      float64 `json:"meanSeconds"`
	DrawnMeanSeconds float64 `json:"drawnMeanSeconds"`

	// BoundSeconds is nodes / budget * mean.
	BoundSeconds float64 `json:"boundSeconds"`
	// WallSeconds from the moment a person starts the update to its phase Done.
	WallSeconds float64 `json:"wallSeconds"`
	WallOfBound float64 `json:"wallOfBound"`

	// WritesPerNode are the state writes of refit for one node and update: of
	// the controller and of the agents, from the approval to the end.
	WritesPerNode float64 `json:"writesPerNode"`
	// MaxWritesOfANode is the largest number that one node's Node and NodeUpdate
	// show, as their watches saw it.
	MaxWritesOfANode int    `json:"maxWritesOfANode"`
	Writes           Writes `json:"writes"`

	// ControllerRSS is the peak of the controller's resident memory.
	ControllerRSS int64 `json:"controllerRSSBytes"`
	// Decisions by controller: the CPU time of a decision over all nodes, which has a limit,
	// and its wall clock time.
	Decisions map[string]Decisions `json:"decisions"`
	// MaxUnavailable nodes at once, as the watch of the nodes saw them.
	MaxUnavailable int `json:"maxUnavailable"`

	Restart *Restart           `json:"restart,omitempty"`
	Phases  map[string]float64 `json:"phasesSeconds"`
	// CPU seconds of each process while the nodes moved.
	CPU   map[string]float64 `json:"cpuSeconds"`
	Notes []string           `json:"notes"`
	// Problems are the limits that were missed.
	Problems []string `json:"problems"`
	OK       bool     `json:"ok"`
}

// Writes that the API server counted, in all: by verb and resource.
type Writes struct {
	Method string `json:"method"`
	// Joining is before the update: it counts nowhere.
	Joining   map[string]float64 `json:"joining"`
	Preparing map[string]float64 `json:"preparing"`
	Updating  map[string]float64 `json:"updating"`
	// KubeletPerNode are the writes of the kubelets' NodeStatus, EventsPerNode
	// those of events; neither is a state write of refit.
	KubeletPerNode float64 `json:"kubeletPerNode"`
	EventsPerNode  float64 `json:"eventsPerNode"`
}

// Restart of the controller in mid-rollout, by SIGKILL.
type Restart struct {
	// DoneBefore nodes when it was killed.
	DoneBefore int `json:"doneBefore"`
	// GapSeconds from the kill to the first write of the new process to a node.
	GapSeconds float64 `json:"gapSeconds"`
}

// evaluate compares the result with the limits. The limit of a decision is its CPU time.
// Its wall clock time includes the wait for a core, because the API server, etcd and the
// simulated nodes use all of them; the result has it without a limit.
func (r *Result) evaluate() {
	r.Problems = []string{}
	miss := func(bad bool, format string, args ...any) {
		if bad {
			r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
		}
	}
	miss(r.WritesPerNode > MaxWritesPerNode, "%.1f state writes per node, %d are allowed", r.WritesPerNode, MaxWritesPerNode)
	miss(r.ControllerRSS > MaxRSS, "the controller took %d MiB, %d are allowed", r.ControllerRSS>>20, MaxRSS>>20)
	for name, d := range r.Decisions {
		miss(d.Count > 0 && d.ProcessorP99 == 0, "the processor time of the decisions of %s was not measured", name)
		miss(d.ProcessorP99 > MaxDecision.Seconds(), "the decisions of %s have a 99th percentile of %.0f ms of processor time, %d are allowed", name, d.ProcessorP99*1000, MaxDecision.Milliseconds())
	}
	miss(r.WallOfBound > MaxWall, "the update took %.2f of the bound, %.1f is allowed", r.WallOfBound, MaxWall)
	miss(r.MaxUnavailable > r.Budget, "%d nodes were unavailable at once, the budget is %d", r.MaxUnavailable, r.Budget)
	if r.Restart != nil {
		miss(r.Restart.GapSeconds > MaxRestart.Seconds(), "a restart of the controller cost %.1f s, %.0f are allowed", r.Restart.GapSeconds, MaxRestart.Seconds())
	}
	r.OK = len(r.Problems) == 0
}
