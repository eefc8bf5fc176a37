package plans

import (
	"reflect"
	"slices"
	"sync"

	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// Plan is a plan of the planner, with values that are expensive to derive from it. It is
// shared: do not change it.
type Plan struct {
	updateplan.Outcome
	// Digest of the plan.
	Digest string
	// Planned are the nodes of the plan, in any hop.
	Planned map[string]bool

	in    updateplan.Input
	nodes []*updateplan.Node
}

// remembered is for how many updates that are being prepared a plan is kept.
const remembered = 16

// Maker remembers what it made for each update until Forget. The zero value is empty.
type Maker struct {
	mu   sync.Mutex
	made map[string]*Plan
}

// Make plans for an update, named by its UID. in is without its nodes; a node
// that is the same as before is the same pointer.
func (m *Maker) Make(uid string, in updateplan.Input, nodes []*updateplan.Node) *Plan {
	m.mu.Lock()
	defer m.mu.Unlock()
	if last := m.made[uid]; last != nil && slices.Equal(last.nodes, nodes) && reflect.DeepEqual(last.in, in) {
		return last
	}
	made := &Plan{in: in, nodes: slices.Clone(nodes), Planned: map[string]bool{}}
	in.Nodes = make([]updateplan.Node, len(nodes))
	for i, n := range nodes {
		in.Nodes[i] = *n
	}
	made.Outcome = updateplan.Make(in)
	made.Digest = made.Plan.Digest()
	for _, hop := range made.Plan.Hops() {
		for i := range hop.Nodes {
			made.Planned[hop.Nodes[i].Node] = true
		}
	}
	if m.made == nil || len(m.made) >= remembered {
		m.made = map[string]*Plan{}
	}
	m.made[uid] = made
	return made
}

// Forget drops all plans: no update is being prepared.
func (m *Maker) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made = nil
}

// Reuse keeps the node of before if nothing of it changed.
func Reuse(before *updateplan.Node, now updateplan.Node) *updateplan.Node {
	if before != nil && reflect.DeepEqual(*before, now) {
		return before
	}
	return &now
}
