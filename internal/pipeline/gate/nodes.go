package gate

import (
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/model"
)

// moment is when and over how long a node is asked about. until is the first
// moment at which an answer may be another, zero if none.
type moment struct {
	now   time.Time
	lasts time.Duration
	until time.Time
}

// changesAt says that an answer changes at a time, if it has not passed.
func (m *moment) changesAt(at time.Time) {
	if !at.Before(m.now) && (m.until.IsZero() || at.Before(m.until)) {
		m.until = at
	}
}

// nodeCheck is a check that is asked about every node by itself.
type nodeCheck struct {
	name string
	ask  func(*moment, *Node) (no, warn blockers)
}

// nodeChecks in any order: Checks has the one in which they are read.
var nodeChecks = []nodeCheck{
	{"no-other-update", atWork}, {"space", space}, {"agents", warnOutsidePlan(agentHeard)}, {"agent-versions", warnOutsidePlan(agentVersions)}, {"constraints", misfits}, {"nodes-ready", warnOutsidePlan(nodesReady)}, {"quorum", etcdMember}, {"etcd-space", etcdSpace},
	{"images-held", warnOutsidePlan(imagesReady)}, {"payloads-held", warnOutsidePlan(payloadsReady)}, {"pressure", warnOutsidePlan(pressure)},
	{"certificates", certificates}, {"clock", clockSkew}, {"cordons", foreignCordons}, {"drift", nodeDrift}, {"image-pulls", verification},
}

// warnOutsidePlan is a check that has one thing to say of a node: of one outside the plan it
// is a warning.
func warnOutsidePlan(ask func(*moment, *Node) *model.Blocker) func(*moment, *Node) (no, warn blockers) {
	return func(m *moment, n *Node) (no, warn blockers) {
		v := ask(m, n)
		switch {
		case v == nil:
		case n.InPlan:
			no = blockers{withNode(*v, n)}
		default:
			warn = blockers{withNode(*v, n)}
		}
		return no, warn
	}
}

// NodeFindings are what the checks found about one node. They count as long as the
// node's facts are the same value and no time has come that changes a finding, so the
// caller may pass them in again.
type NodeFindings struct {
	node        *Node
	from, until time.Time
	lasts       time.Duration
	found       []finding
}

// finding is one blocker of one of the nodeChecks.
type finding struct {
	check   int
	warn    bool
	blocker model.Blocker
}

// validFor reports whether a check of the node would find the same.
func (f *NodeFindings) validFor(in *Input, n *Node) bool {
	return f != nil && f.node == n && !in.Now.Before(f.from) && (f.until.IsZero() || in.Now.Before(f.until)) && (len(n.Certificates) == 0 || f.lasts == in.Lasts)
}

func checkNode(in *Input, n *Node) *NodeFindings {
	m := &moment{now: in.Now, lasts: in.Lasts}
	f := &NodeFindings{node: n, from: in.Now, lasts: in.Lasts}
	for i, c := range nodeChecks {
		no, warn := c.ask(m, n)
		for _, v := range no {
			f.found = append(f.found, finding{i, false, v})
		}
		for _, v := range warn {
			f.found = append(f.found, finding{i, true, v})
		}
	}
	f.until = m.until
	return f
}

// CheckNodes returns the findings about every node, in the order of in.Nodes. It takes
// over those of earlier that still count: in a large cluster few nodes change between
// two decisions.
func CheckNodes(in Input, earlier []*NodeFindings) []*NodeFindings {
	out := make([]*NodeFindings, len(in.Nodes))
	for i, n := range in.Nodes {
		if i < len(earlier) && earlier[i].validFor(&in, n) {
			out[i] = earlier[i]
		} else {
			out[i] = checkNode(&in, n)
		}
	}
	return out
}

// answers are the findings about all nodes, sorted by node, for each check, and counts
// over the nodes.
type answers struct {
	no, warn map[string]blockers
	// control-plane nodes, and how many of them are Ready.
	controlPlanes, ready int
	// members of etcd; moving is true if the plan moves one of them.
	members int
	moving  bool
}

func newAnswers(all []*NodeFindings) *answers {
	out := &answers{no: map[string]blockers{}, warn: map[string]blockers{}}
	var nonEmpty []*NodeFindings
	for _, f := range all {
		if len(f.found) > 0 {
			nonEmpty = append(nonEmpty, f)
		}
		out.count(f.node)
	}
	byName := func(a, b *NodeFindings) int { return strings.Compare(a.node.Name, b.node.Name) }
	if !slices.IsSortedFunc(nonEmpty, byName) {
		slices.SortFunc(nonEmpty, byName)
	}
	out.collect(nonEmpty)
	return out
}

func (out *answers) count(n *Node) {
	if n.ControlPlane {
		out.controlPlanes++
		if n.Ready {
			out.ready++
		}
	}
	if n.Etcd != nil {
		out.members++
		out.moving = out.moving || n.InPlan
	}
}

// collect puts the findings into lists, one for each check.
func (out *answers) collect(all []*NodeFindings) {
	size := make([][2]int, len(nodeChecks))
	each := func(do func(f *finding, warn int)) {
		for _, node := range all {
			for i := range node.found {
				f := &node.found[i]
				if f.warn {
					do(f, 1)
				} else {
					do(f, 0)
				}
			}
		}
	}
	each(func(f *finding, warn int) { size[f.check][warn]++ })
	lists := make([][2]blockers, len(nodeChecks))
	for i := range lists {
		for j, n := range size[i] {
			if n > 0 {
				lists[i][j] = make(blockers, 0, n)
			}
		}
	}
	each(func(f *finding, warn int) { lists[f.check][warn] = append(lists[f.check][warn], f.blocker) })
	for i, c := range nodeChecks {
		out.no[c.name], out.warn[c.name] = lists[i][0], lists[i][1]
	}
}

// ofNodes is a check that is asked about every node by itself.
func ofNodes(name string) func(*Input) (blockers, blockers) {
	return func(in *Input) (blockers, blockers) { return in.answers.no[name], in.answers.warn[name] }
}
