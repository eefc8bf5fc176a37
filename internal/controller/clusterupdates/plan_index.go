package clusterupdates

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
)

// planIndex caches the facts of a started update's nodes in the order of its plan. A node whose
// objects did not change, and that no action touches, costs two comparisons.
type planIndex struct {
	updateKey string
	edition   int
	plan      *model.NodePlan // the plan's first node: another plan is another slice
	// Every reconcile walks over rows. In the same order, seen has the facts from the
	// objects, and facts also those from the node's pods.
	rows        []plannedNode
	seen, facts []rollout.Node
	row         []*rollout.Node
	// places are the positions of the nodes in that order, by name; boots are the OS images
	// that they boot.
	places map[string]int
	boots  []string
	// cps are the positions of the plan's control-plane nodes.
	cps []int
}

// plannedNode is one node of the plan.
type plannedNode struct {
	// at is its position in the snapshot's nodes, -1 if it has left the cluster.
	at     int
	node   *corev1.Node
	report *v1alpha1.NodeUpdate
	// live nodes have started, or may have reverted: every reconcile checks them.
	live bool
}

// reset clears the index if the update, its plan or the order of nodes changed.
func (t *planIndex) reset(updateKey string, w *rolloutSnapshot, plan model.Plan) {
	var first *model.NodePlan
	if len(plan.Nodes) > 0 {
		first = &plan.Nodes[0]
	}
	if t.updateKey == updateKey && t.edition == w.edition && t.plan == first && len(t.rows) == len(plan.Nodes) {
		return
	}
	here := make(map[string]int, len(w.nodes))
	for i, n := range w.nodes {
		here[n.Name] = i
	}
	n := len(plan.Nodes)
	*t = planIndex{updateKey: updateKey, edition: w.edition, plan: first, rows: make([]plannedNode, n), seen: make([]rollout.Node, n), facts: make([]rollout.Node, n),
		row: make([]*rollout.Node, n), places: make(map[string]int, n), boots: rollout.BootedImages(&plan)}
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

// controlPlanesOf returns the positions of a plan's control-plane nodes.
func controlPlanesOf(plan model.Plan) []int {
	var out []int
	for i := range plan.Nodes {
		if plan.Nodes[i].Role == model.RoleControlPlane {
			out = append(out, i)
		}
	}
	return out
}

// readNode returns the facts of the i-th node, read again only if its objects changed.
func (t *planIndex) readNode(i int, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, np *model.NodePlan) *rollout.Node {
	x := &t.rows[i]
	n, report := w.nodes[x.at], w.reports[x.at]
	if x.node != n || x.report != report {
		x.node, x.report, t.seen[i] = n, report, w.readNode(u, np, n, report)
	}
	return &t.seen[i]
}

// since returns when a node's update started, zero if the node is not in the plan.
func (t *planIndex) since(node string) (at time.Time) {
	if i, planned := t.places[node]; planned {
		at = t.facts[i].StartedAt
	}
	return at
}

// setFacts stores the facts of a node.
func (t *planIndex) setFacts(i int, n rollout.Node) { t.facts[i] = n }
