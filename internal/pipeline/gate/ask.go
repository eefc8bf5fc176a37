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

// next says that an answer changes at a time, if it has not passed.
func (m *moment) next(at time.Time) {
	if !at.Before(m.now) && (m.until.IsZero() || at.Before(m.until)) {
		m.until = at
	}
}

// nodeCheck is a check that is asked about every node by itself.
type nodeCheck struct {
	name string
	ask  func(*moment, *Node) (no, warn verdicts)
}

// nodeChecks in any order: Checks has the one in which they are read.
var nodeChecks = []nodeCheck{
	{"no-other-update", atWork}, {"space", space}, {"agents", alone(agents)}, {"agent-versions", alone(agentVersions)}, {"nodes-ready", alone(nodesReady)}, {"quorum", member}, {"etcd-space", etcdSpace},
	{"images-held", alone(imagesReady)}, {"payloads-held", alone(payloadsReady)}, {"pressure", alone(pressure)},
	{"certificates", certificates}, {"clock", clock}, {"cordons", cordons}, {"drift", drift}, {"image-pulls", verification},
}

// alone is a check that has one thing to say of a node: of one outside the plan it
// is a warning.
func alone(ask func(*moment, *Node) *model.Verdict) func(*moment, *Node) (no, warn verdicts) {
	return func(m *moment, n *Node) (no, warn verdicts) {
		v := ask(m, n)
		switch {
		case v == nil:
		case n.InPlan:
			no = verdicts{about(*v, n)}
		default:
			warn = verdicts{about(*v, n)}
		}
		return no, warn
	}
}

// asked is what was said of a node. It is said again without asking as long as
// the node's facts are the same value and no time has come that changes it.
type asked struct {
	from, until time.Time
	lasts       time.Duration
	said        []said
}

// said is one answer: of which of the nodeChecks.
type said struct {
	check   int
	warn    bool
	verdict model.Verdict
}

// holds reports whether what was said of a node is still so.
func (a *asked) holds(in *Input, n *Node) bool {
	return a != nil && !in.Now.Before(a.from) && (a.until.IsZero() || in.Now.Before(a.until)) && (len(n.Certificates) == 0 || a.lasts == in.Lasts)
}

func ask(in *Input, n *Node) *asked {
	m := &moment{now: in.Now, lasts: in.Lasts}
	a := &asked{from: in.Now, lasts: in.Lasts}
	for i, c := range nodeChecks {
		no, warn := c.ask(m, n)
		for _, v := range no {
			a.said = append(a.said, said{i, false, v})
		}
		for _, v := range warn {
			a.said = append(a.said, said{i, true, v})
		}
	}
	a.until = m.until
	return a
}

// answers is what was said of all nodes, by their names, for each check, and what
// is counted over them.
type answers struct {
	no, warn map[string]verdicts
	// control-plane nodes, and how many of them are Ready.
	controlPlanes, ready int
	// members of etcd; moving is true if the plan moves one of them.
	members int
	moving  bool
}

// askNodes asks about every node. What was said before of the same facts is
// taken again: in a large cluster a few of them are new.
func askNodes(in *Input) *answers {
	out := &answers{no: map[string]verdicts{}, warn: map[string]verdicts{}}
	var talk []*Node
	for _, n := range in.Nodes {
		if !n.asked.holds(in, n) {
			n.asked = ask(in, n)
		}
		if len(n.asked.said) > 0 {
			talk = append(talk, n)
		}
		out.count(n)
	}
	byName := func(a, b *Node) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(talk, byName) {
		slices.SortFunc(talk, byName)
	}
	out.collect(talk)
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

// collect puts the answers of nodes into lists, one for each check.
func (out *answers) collect(talk []*Node) {
	size := make([][2]int, len(nodeChecks))
	each := func(do func(s *said, warn int)) {
		for _, n := range talk {
			for i := range n.asked.said {
				s := &n.asked.said[i]
				if s.warn {
					do(s, 1)
				} else {
					do(s, 0)
				}
			}
		}
	}
	each(func(s *said, warn int) { size[s.check][warn]++ })
	all := make([][2]verdicts, len(nodeChecks))
	for i := range all {
		for j, n := range size[i] {
			if n > 0 {
				all[i][j] = make(verdicts, 0, n)
			}
		}
	}
	each(func(s *said, warn int) { all[s.check][warn] = append(all[s.check][warn], s.verdict) })
	for i, c := range nodeChecks {
		out.no[c.name], out.warn[c.name] = all[i][0], all[i][1]
	}
}

// ofNodes is a check that is asked about every node by itself.
func ofNodes(name string) func(*Input) (verdicts, verdicts) {
	return func(in *Input) (verdicts, verdicts) { return in.answers.no[name], in.answers.warn[name] }
}
