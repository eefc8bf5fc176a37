package updates

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/update"
	"github.com/refit-dev/refit/internal/rollout"
	"github.com/refit-dev/refit/internal/rollout/read"
)

// track keeps the facts of a running update's nodes in the order of its plan,
// from one look to the next. A node whose objects are the same as before, and
// that nothing is done to, costs two comparisons.
type track struct {
	under   string
	edition int
	plan    *model.NodePlan // the first: another plan is another slice
	rows    []tracked
	row     []*rollout.Node
	byName  map[string]rollout.Node
}

// tracked is one node of the plan.
type tracked struct {
	// at is its place among the nodes, -1 if it has left.
	at     int
	node   *corev1.Node
	report *v1alpha1.NodeUpdate
	// seen is what the objects say, facts what was found by a closer look, too.
	seen, facts rollout.Node
	// live nodes have started, or are in doubt: they are looked at every time.
	live bool
}

// begin takes in another update, plan, or order of nodes.
func (t *track) begin(under string, w *world, plan model.Plan) {
	var first *model.NodePlan
	if len(plan.Nodes) > 0 {
		first = &plan.Nodes[0]
	}
	if t.under == under && t.edition == w.edition && t.plan == first && len(t.rows) == len(plan.Nodes) {
		return
	}
	places := make(map[string]int, len(w.nodes))
	for i, n := range w.nodes {
		places[n.Name] = i
	}
	*t = track{under: under, edition: w.edition, plan: first, rows: make([]tracked, len(plan.Nodes)), row: make([]*rollout.Node, len(plan.Nodes)),
		byName: make(map[string]rollout.Node, len(plan.Nodes))}
	for i := range plan.Nodes {
		x := &t.rows[i]
		x.at = -1
		if at, here := places[plan.Nodes[i].Node]; here {
			x.at = at
		}
		x.facts = rollout.Node{Name: plan.Nodes[i].Node, Gone: x.at < 0}
		t.row[i] = &x.facts
	}
}

// read reads the node's objects, if they are not those that were read before.
func (x *tracked) read(w *world, u *v1alpha1.ClusterUpdate, np *model.NodePlan) {
	n, report := w.nodes[x.at], w.reports[x.at]
	if x.node != n || x.report != report {
		x.node, x.report, x.seen = n, report, w.readNode(u, np, n, report)
	}
}

// set keeps the facts of a node.
func (t *track) set(i int, n rollout.Node) {
	t.rows[i].facts = n
	t.byName[n.Name] = n
}

// census keeps who is in which pool, who is unavailable and who is of the control
// plane, in the order of the nodes.
type census struct {
	under   string
	edition int
	rows    []resident
}

// resident is one node of a census.
type resident struct {
	node    *corev1.Node
	pools   []string
	out, cp bool
}

// take counts the nodes that changed.
func (c *census) take(w *world) {
	under := poolsSeen(w.pools)
	if c.under != under || c.edition != w.edition || len(c.rows) != len(w.nodes) {
		*c = census{under: under, edition: w.edition, rows: make([]resident, len(w.nodes))}
	}
	for i, n := range w.nodes {
		if x := &c.rows[i]; x.node != n {
			*x = resident{node: n, pools: []string{update.DefaultPool}, out: read.Unavailable(n), cp: controlPlane(n)}
			if len(w.pools) > 0 {
				x.pools = w.poolsOf(n)
			}
		}
	}
}

// of names the pools of the i-th node.
func (c *census) of(w *world) func(i int) []string {
	c.take(w)
	return func(i int) []string { return c.rows[i].pools }
}

// pools are the pools with their nodes counted, as read.Pools counts them.
func (c *census) pools(w *world) map[string]rollout.Pool {
	size, away := map[string]int{}, map[string][]string{}
	for i := range c.rows {
		x := &c.rows[i]
		for _, name := range x.pools {
			size[name]++
			if x.out {
				away[name] = append(away[name], x.node.Name)
			}
		}
	}
	out := map[string]rollout.Pool{}
	if len(w.pools) == 0 {
		out[update.DefaultPool] = rollout.Pool{Name: update.DefaultPool, Budget: 1, Unavailable: away[update.DefaultPool]}
	}
	for i := range w.pools {
		p := read.Pool(&w.pools[i], size[w.pools[i].Name])
		p.Unavailable = away[p.Name]
		out[p.Name] = p
	}
	return out
}

// controlPlanes are the nodes of the control plane.
func (c *census) controlPlanes() []*corev1.Node {
	var out []*corev1.Node
	for i := range c.rows {
		if c.rows[i].cp {
			out = append(out, c.rows[i].node)
		}
	}
	return out
}
