package clusterupdates

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// poolIndex keeps who is in which pool, who is unavailable, who is of the control
// plane and which updates have a hand in whom, in the order of the nodes. Only what
// changed is read anew: thirty thousand objects lie far apart in memory.
type poolIndex struct {
	under   string
	edition int
	rows    []poolNode
	// size counts the nodes of every pool, hands the marks and permissions of every
	// update, by its UID.
	size, hands map[string]int
	// staging counts the nodes that are told to have something ready.
	staging int
}

// poolNode is one node of a census.
type poolNode struct {
	node   *corev1.Node
	report *v1alpha1.NodeUpdate
	pools  []string
	// mark and permit are the UIDs of the updates that marked the node, and that
	// permitted it to run.
	mark, permit string
	out, cp      bool
	stage        bool
}

// refresh counts the nodes that changed.
func (c *poolIndex) refresh(w *rolloutSnapshot) {
	under := poolsSeen(w.pools)
	if c.under != under || c.edition != w.edition || len(c.rows) != len(w.nodes) {
		*c = poolIndex{under: under, edition: w.edition, rows: make([]poolNode, len(w.nodes)), size: map[string]int{}, hands: map[string]int{}}
	}
	for i, n := range w.nodes {
		x := &c.rows[i]
		if x.node == n && x.report == w.reports[i] {
			continue
		}
		c.count(x, -1)
		*x = w.resident(n, w.reports[i])
		c.count(x, +1)
	}
}

func (w *rolloutSnapshot) resident(n *corev1.Node, nu *v1alpha1.NodeUpdate) poolNode {
	x := poolNode{node: n, report: nu, pools: defaultPool, out: rolloutfacts.Unavailable(n), cp: controlPlane(n)}
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
		if c.hands[uid] += by; c.hands[uid] == 0 {
			delete(c.hands, uid)
		}
	}
}

// poolsByNode names the pools of the i-th node.
func (c *poolIndex) poolsByNode(w *rolloutSnapshot) func(i int) []string {
	c.refresh(w)
	return func(i int) []string { return c.rows[i].pools }
}

// pools are the pools with their nodes counted, as rolloutfacts.Pools counts them.
func (c *poolIndex) pools(w *rolloutSnapshot) map[string]rollout.Pool {
	away, cps, cordoned := map[string][]string{}, map[string][]string{}, map[string][]string{}
	for i := range c.rows {
		x := &c.rows[i]
		if !x.out {
			continue
		}
		for _, name := range x.pools {
			away[name] = append(away[name], x.node.Name)
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
		out[updateplan.DefaultPool] = rollout.Pool{Name: updateplan.DefaultPool, Budget: 1, Unavailable: away[updateplan.DefaultPool], ControlPlane: cps[updateplan.DefaultPool], Cordoned: cordoned[updateplan.DefaultPool]}
	}
	for i := range w.pools {
		p := rolloutfacts.Pool(&w.pools[i], c.size[w.pools[i].Name])
		p.Unavailable, p.ControlPlane, p.Cordoned = away[p.Name], cps[p.Name], cordoned[p.Name]
		out[p.Name] = p
	}
	return out
}

// controlPlanes are the nodes of the control plane.
func (c *poolIndex) controlPlanes() []*corev1.Node {
	var out []*corev1.Node
	for i := range c.rows {
		if c.rows[i].cp {
			out = append(out, c.rows[i].node)
		}
	}
	return out
}

// marked are the places of the nodes that an update has marked, and of those
// among them that are of the control plane.
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

// orphans are the places of the nodes in which updates have a hand that are no
// more; there are none at almost any time, which costs nothing to see.
func (c *poolIndex) orphans(alive map[string]bool) []int {
	none := true
	for uid := range c.hands {
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
