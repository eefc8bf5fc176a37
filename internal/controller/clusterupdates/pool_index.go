package clusterupdates

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// poolIndex records, in the order of the nodes, the pools of each node, unavailable nodes,
// control-plane nodes, and the updates that have marked a node. Only changed nodes are read
// again: 30,000 objects are scattered in memory, and reading all is slow.
type poolIndex struct {
	poolsKey string
	edition  int
	rows     []poolNode
	// size counts the nodes of every pool; claims counts the marks and runs of every
	// update, by its UID.
	size, claims map[string]int
	// staging counts the nodes that have an OS configuration to prepare.
	staging int
}

// poolNode is one node of a poolIndex.
type poolNode struct {
	node   *corev1.Node
	report *v1alpha1.NodeUpdate
	pools  []string
	// mark and permit are the UIDs of the updates that marked the node and that wrote
	// its spec.run.
	mark, permit    string
	unavailable, cp bool
	stage           bool
}

// refresh updates the counts for the nodes that changed.
func (c *poolIndex) refresh(w *rolloutSnapshot) {
	poolsNow := poolsKey(w.pools)
	if c.poolsKey != poolsNow || c.edition != w.edition || len(c.rows) != len(w.nodes) {
		*c = poolIndex{poolsKey: poolsNow, edition: w.edition, rows: make([]poolNode, len(w.nodes)), size: map[string]int{}, claims: map[string]int{}}
	}
	for i, n := range w.nodes {
		x := &c.rows[i]
		if x.node == n && x.report == w.reports[i] {
			continue
		}
		c.count(x, -1)
		*x = w.newPoolNode(n, w.reports[i])
		c.count(x, +1)
	}
}

func (w *rolloutSnapshot) newPoolNode(n *corev1.Node, nu *v1alpha1.NodeUpdate) poolNode {
	x := poolNode{node: n, report: nu, pools: defaultPool, unavailable: rolloutfacts.Unavailable(n), cp: controlPlane(n)}
	if len(w.pools) > 0 {
		x.pools = w.poolsOf(n)
	}
	if m := rolloutfacts.MarkOf(n); m != nil {
		x.mark = m.UID
	}
	if nu != nil && nu.Spec.Run != nil {
		x.permit = nu.Spec.Run.UID
	}
	x.stage = nu != nil && nu.Spec.Stage != ""
	return x
}

var defaultPool = []string{updateplan.DefaultPool}

func (c *poolIndex) count(x *poolNode, by int) {
	if x.stage {
		c.staging += by
	}
	for _, name := range x.pools {
		c.size[name] += by
	}
	for _, uid := range []string{x.mark, x.permit} {
		if uid == "" {
			continue
		}
		if c.claims[uid] += by; c.claims[uid] == 0 {
			delete(c.claims, uid)
		}
	}
}

// poolsByNode returns a function that names the pools of the i-th node.
func (c *poolIndex) poolsByNode(w *rolloutSnapshot) func(i int) []string {
	c.refresh(w)
	return func(i int) []string { return c.rows[i].pools }
}

// pools returns the pools with their nodes counted, with the same result as rolloutfacts.Pools.
func (c *poolIndex) pools(w *rolloutSnapshot) map[string]rollout.Pool {
	unavailable, cps, cordoned := map[string][]string{}, map[string][]string{}, map[string][]string{}
	for i := range c.rows {
		x := &c.rows[i]
		if !x.unavailable {
			continue
		}
		for _, name := range x.pools {
			unavailable[name] = append(unavailable[name], x.node.Name)
			if x.cp {
				cps[name] = append(cps[name], x.node.Name)
			}
			if rolloutfacts.Cordoned(x.node) {
				cordoned[name] = append(cordoned[name], x.node.Name)
			}
		}
	}
	out := map[string]rollout.Pool{}
	if len(w.pools) == 0 {
		out[updateplan.DefaultPool] = rollout.Pool{Name: updateplan.DefaultPool, Budget: 1, Unavailable: unavailable[updateplan.DefaultPool], ControlPlane: cps[updateplan.DefaultPool], Cordoned: cordoned[updateplan.DefaultPool]}
	}
	for i := range w.pools {
		p := rolloutfacts.Pool(&w.pools[i], c.size[w.pools[i].Name])
		p.Unavailable, p.ControlPlane, p.Cordoned = unavailable[p.Name], cps[p.Name], cordoned[p.Name]
		out[p.Name] = p
	}
	return out
}

// controlPlanes returns the control-plane nodes.
func (c *poolIndex) controlPlanes() []*corev1.Node {
	var out []*corev1.Node
	for i := range c.rows {
		if c.rows[i].cp {
			out = append(out, c.rows[i].node)
		}
	}
	return out
}

// marked returns the positions of the nodes that an update has marked, and of the control-plane
// nodes among them.
func (c *poolIndex) marked(uid string) (all, controlPlane []int) {
	for i := range c.rows {
		if x := &c.rows[i]; x.mark == uid {
			all = append(all, i)
			if x.cp {
				controlPlane = append(controlPlane, i)
			}
		}
	}
	return all, controlPlane
}

// orphans returns the positions of the nodes that deleted updates have marked or run steps on.
// Usually there are none, and the check is cheap then.
func (c *poolIndex) orphans(alive map[string]bool) []int {
	none := true
	for uid := range c.claims {
		none = none && alive[uid]
	}
	if none {
		return nil
	}
	var out []int
	for i := range c.rows {
		x := &c.rows[i]
		if x.mark != "" && !alive[x.mark] || x.permit != "" && !alive[x.permit] {
			out = append(out, i)
		}
	}
	return out
}
