package clusterupdates

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
)

// planIndex keeps the facts of a running update's nodes in the order of its plan,
// from one look to the next. A node whose objects are the same as before, and
// that nothing is done to, costs two comparisons.
type planIndex struct {
	under   string
	edition int
	plan    *model.NodePlan // the first: another plan is another slice
	// rows are what every look goes through; beside them, in the same order, seen is
	// what the objects say, facts what was found by a closer look, too.
	rows        []plannedNode
	seen, facts []rollout.Node
	row         []*rollout.Node
	// places are their places in that order, by name.
	places map[string]int
	// cps are the places of the plan's control-plane nodes.
	cps []int
}

// plannedNode is one node of the plan.
type plannedNode struct {
	// at is its place among the nodes, -1 if it has left.
	at     int
	node   *corev1.Node
	report *v1alpha1.NodeUpdate
	// live nodes have started, or are in doubt: they are looked at every time.
	live bool
}

// reset takes in another update, plan, or order of nodes.
func (t *planIndex) reset(under string, w *rolloutSnapshot, plan model.Plan) {
	var first *model.NodePlan
	if len(plan.Nodes) > 0 {
		first = &plan.Nodes[0]
	}
	if t.under == under && t.edition == w.edition && t.plan == first && len(t.rows) == len(plan.Nodes) {
		return
	}
	here := make(map[string]int, len(w.nodes))
	for i, n := range w.nodes {
		here[n.Name] = i
	}
	n := len(plan.Nodes)
	*t = planIndex{under: under, edition: w.edition, plan: first, rows: make([]plannedNode, n), seen: make([]rollout.Node, n), facts: make([]rollout.Node, n),
		row: make([]*rollout.Node, n), places: make(map[string]int, n)}
	for i := range plan.Nodes {
		x := &t.rows[i]
		x.at = -1
		if at, known := here[plan.Nodes[i].Node]; known {
			x.at = at
		}
		t.places[plan.Nodes[i].Node] = i
		t.facts[i] = rollout.Node{Name: plan.Nodes[i].Node, Gone: x.at < 0}
		t.row[i] = &t.facts[i]
	}
	t.cps = controlPlanesOf(plan)
}

// controlPlanesOf are the places of a plan's control-plane nodes.
func controlPlanesOf(plan model.Plan) []int {
	var out []int
	for i := range plan.Nodes {
		if plan.Nodes[i].Role == model.RoleControlPlane {
			out = append(out, i)
		}
	}
	return out
}

// readNode reads the i-th node's objects, if they are not those that were read before.
func (t *planIndex) readNode(i int, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, np *model.NodePlan) *rollout.Node {
	x := &t.rows[i]
	n, report := w.nodes[x.at], w.reports[x.at]
	if x.node != n || x.report != report {
		x.node, x.report, t.seen[i] = n, report, w.readNode(u, np, n, report)
	}
	return &t.seen[i]
}

// since is when a node's update began, zero if the plan does not have it.
func (t *planIndex) since(node string) (at time.Time) {
	if i, planned := t.places[node]; planned {
		at = t.facts[i].StartedAt
	}
	return at
}

// setFacts keeps the facts of a node.
func (t *planIndex) setFacts(i int, n rollout.Node) { t.facts[i] = n }
