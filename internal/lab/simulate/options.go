package simulate

import (
	"errors"
	"io"
	"os/exec"
	"time"
)

// Limits that a run is held to.
const (
	MaxWritesPerNode = 8
	MaxRSS           = 600 << 20
	MaxDecision      = 50 * time.Millisecond
	MaxWall          = 1.1 // times the bound
	MaxRestart       = 5 * time.Second
)

// Options of a run.
type Options struct {
	// Nodes that are updated, and how many of them may be unavailable at once.
	Nodes, Budget int
	// Mean is how long a node takes for its steps, on average; every node's own
	// time is within a third of it, drawn with Seed.
	Mean time.Duration
	Seed uint64
	// Restart kills the controller when half of the nodes are done.
	Restart bool
	// HugePages sets transparent huge pages to always for the run; only root may.
	HugePages bool
	// BinDir has kube-apiserver and etcd.
	BinDir string
	// Controller makes the command that runs the controller with a kubeconfig and
	// an address for its metrics.
	Controller func(kubeconfig, metrics string) *exec.Cmd
	// Dir is an empty directory for logs and keys; the caller removes it.
	Dir string
	// Commit that is measured, for the result.
	Commit string
	// Out gets a line for each wait.
	Out io.Writer
}

func (o Options) check() error {
	switch {
	case o.Nodes < 2 || o.Budget < 1:
		return errors.New("there must be at least two nodes and a budget of one")
	case o.Mean < time.Second:
		return errors.New("the mean of a node must be a second at least")
	}
	return nil
}

// bound is the shortest time that the budget permits.
func (o Options) bound() time.Duration {
	return time.Duration(float64(o.Nodes) / float64(min(o.Budget, o.Nodes)) * float64(o.Mean))
}
