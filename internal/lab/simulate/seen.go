package simulate

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// seen is what the watches show of the whole: the same that any observer of the
// API would see.
type seen struct {
	mu sync.Mutex
	// changes of a node's Node (but for its kubelet's) and NodeUpdate since mark.
	changes map[string]int
	nodes   map[string]nodeSeen
	updates map[string]updateSeen
	out     int // unavailable now
	maxOut  int
	// joined NodeUpdates have an agent's key and peers; lastSpec is when any spec changed.
	joined   int
	lastSpec time.Time
	// succeeded runs, and when the controller last wrote to a node.
	succeeded int
	wrote     time.Time
}

type nodeSeen struct {
	version, kubelet string
	out, ready       bool
	cordoned         bool
}

type updateSeen struct {
	version           string
	generation        int64
	joined, succeeded bool
}

func newSeen() *seen {
	return &seen{changes: map[string]int{}, nodes: map[string]nodeSeen{}, updates: map[string]updateSeen{}}
}

func (s *seen) node(n *corev1.Node, now time.Time) {
	after := nodeSeen{version: n.ResourceVersion, kubelet: n.Status.NodeInfo.KubeletVersion, cordoned: n.Spec.Unschedulable}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			after.ready = c.Status == corev1.ConditionTrue
		}
	}
	after.out = after.cordoned || !after.ready
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.nodes[n.Name]
	s.nodes[n.Name] = after
	if after.out != before.out {
		if after.out {
			s.out++
		} else {
			s.out--
		}
		s.maxOut = max(s.maxOut, s.out)
	}
	if !known || before.version == after.version || before.kubelet != after.kubelet || before.ready != after.ready {
		return
	}
	s.changes[n.Name]++
	s.wrote = now
}

func (s *seen) update(nu *v1alpha1.NodeUpdate, now time.Time) {
	after := updateSeen{version: nu.ResourceVersion, generation: nu.Generation,
		joined: nu.Status.Agent != nil && len(nu.Spec.Peers) > 1, succeeded: nu.Status.Run != nil && nu.Status.Run.State == v1alpha1.RunSucceeded}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.updates[nu.Name]
	s.updates[nu.Name] = after
	if before.version != after.version {
		s.changes[nu.Name]++
	}
	if before.generation != after.generation {
		s.lastSpec, s.wrote = now, now
	}
	s.joined += step(before.joined, after.joined)
	s.succeeded += step(before.succeeded, after.succeeded)
}

func step(before, after bool) int {
	switch {
	case !before && after:
		return 1
	case before && !after:
		return -1
	}
	return 0
}

// mark begins to count anew.
func (s *seen) mark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.changes)
	s.maxOut = s.out
}

// snapshot of the counts.
func (s *seen) snapshot() (joined, succeeded, maxOut, maxChanges int, lastSpec, wrote time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.changes {
		maxChanges = max(maxChanges, n)
	}
	return s.joined, s.succeeded, s.maxOut, maxChanges, s.lastSpec, s.wrote
}
