package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/refit-dev/refit/internal/model"
)

var start = time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC) // a Friday

// cluster is a small simulated cluster that carries out actions. The controller sees its
// state.
type cluster struct {
	in    Input
	truth map[string]*member
	// elsewhere: other pools select the nodes than those they were planned in.
	elsewhere bool
}

type member struct {
	Node
	pool     string
	cp       bool
	pods     int
	running  int             // rounds until the run ends
	fails    map[int32]bool  // tries since a person asked that fail
	undoFail bool            // the undo fails too
	reason   string          // word of what fails
	began    map[string]bool // steps that were started and not undone
	done     int             // times it reached its target
	permits  []int32         // attempts that ran
	etcdDown bool
	// foreignLabel: another writer took the node out of the load balancers.
	foreignLabel bool
}

func nodePlan(name, role, pool string, wave int) model.NodePlan {
	return model.NodePlan{Node: name, Role: role, Pool: pool, Wave: wave, From: "v1.35.4", To: "v1.36.3",
		Steps: []model.Step{{ID: "cordon"}, {ID: Drained}, {ID: "kubeadm", By: model.ByAgent}, {ID: "kubelet", By: model.ByAgent}, {ID: "uncordon"}}}
}

func newCluster(pools map[string]Pool, members ...*member) *cluster {
	c := &cluster{truth: map[string]*member{}, in: Input{Now: start, Pools: pools, RetryNodes: map[string]int32{}}}
	waves := 0
	for _, m := range members {
		role := model.RoleWorker
		wave := 1000
		if m.cp {
			role, wave = model.RoleControlPlane, waves
			waves++
		}
		c.truth[m.Name] = m
		c.in.Plan.Nodes = append(c.in.Plan.Nodes, nodePlan(m.Name, role, m.pool, wave))
	}
	return c
}

// plan changes what was planned for a node.
func (c *cluster) plan(node string, change func(*model.NodePlan)) {
	for i := range c.in.Plan.Nodes {
		if np := &c.in.Plan.Nodes[i]; np.Node == node {
			change(np)
		}
	}
}

// lose makes a node silent for so long in a step that may take half an hour.
func (c *cluster) lose(node string, silent time.Duration) {
	m := c.truth[node]
	markStarted(m)
	m.Run = &Run{Attempt: Attempt{1, 0, 1}, State: RunRunning, Step: "kubeadm"}
	m.AgentHeartbeatLost, m.SilentFor, m.Ready = true, silent, false
	c.plan(node, func(np *model.NodePlan) { np.Steps[2].DeadlineSeconds = 1800 })
}

func (c *cluster) facts() Input {
	in := c.in
	in.Nodes = map[string]Node{}
	in.Pools = map[string]Pool{}
	for name, p := range c.in.Pools {
		p.Unavailable = nil
		in.Pools[name] = p
	}
	in.ControlPlane.Unhealthy, in.ControlPlane.Etcd = map[string]string{}, map[string]bool{}
	for _, np := range in.Plan.Nodes {
		m := c.truth[np.Node]
		if m.Gone {
			continue
		}
		n := m.Node
		if m.Staging != nil {
			a := *m.Staging
			n.Staging = &a
		}
		if n.Started && n.Unschedulable && (n.Run == nil || n.Run.Attempt.Number < n.Attempt.Number) {
			n.Drain = &Drain{Left: m.pods}
		}
		if m.Run != nil {
			run := *m.Run
			n.Run = &run
		}
		in.Nodes[m.Name] = n
		if p, known := in.Pools[m.pool]; !known || c.elsewhere {
			// it counts in no pool that is seen
		} else if !n.Ready || n.Unschedulable || n.Started {
			p.Unavailable = append(p.Unavailable, m.Name)
			in.Pools[m.pool] = p
		}
		if m.cp {
			in.ControlPlane.Etcd[m.Name] = n.Ready && !m.etcdDown
			if !n.Ready {
				in.ControlPlane.Unhealthy[m.Name] = "is not Ready"
			}
		}
	}
	return in
}

func (c *cluster) obey(d Decision) {
	for _, a := range d.Actions {
		c.do(a)
	}
}

func (c *cluster) do(a Action) {
	m := c.truth[a.Node]
	switch a.Verb {
	case Stage:
		m.Staging.Ordered = true
	case Exclude:
		if m.Started, m.StartedAt, m.Attempt = true, c.in.Now, a.Attempt; !m.Excluded {
			m.Excluded, m.ExcludedAt = true, c.in.Now
		}
	case Cordon:
		m.Started, m.Unschedulable, m.StartedAt, m.Attempt = true, true, c.in.Now, a.Attempt
	case DrainNode:
		m.pods = max(0, m.pods-1)
	case Permit, Undo:
		if m.Run == nil || m.Run.Attempt.Number < a.Attempt.Number {
			m.Run = &Run{Attempt: a.Attempt, Undo: a.Verb == Undo, UndoReason: a.UndoReason}
			m.running = 2
		}
	case Uncordon:
		if m.Started {
			m.FinishedAt = c.in.Now
		}
		m.giveBack()
	case ReleaseNode:
		m.giveBack()
	}
}

// giveBack takes away what refit set: a label that another writer set stays.
func (m *member) giveBack() {
	m.Started, m.Unschedulable = false, false
	if !m.ExcludedAt.IsZero() {
		m.Excluded, m.ExcludedAt = false, time.Time{}
	}
}

// pass lets time go by: runs go on and end.
func (c *cluster) pass(d time.Duration) {
	c.in.Now = c.in.Now.Add(d)
	for _, np := range c.in.Plan.Nodes {
		m := c.truth[np.Node]
		if m.Staging != nil && m.Staging.Ordered && m.Staging.Problem == "" && !m.AtTarget && !m.AgentHeartbeatLost {
			m.Staging = &Staging{Ordered: true, Ready: true}
		}
		switch {
		case m.Run == nil:
		case m.Run.finished():
			m.Run.EndedAgo += d
		default:
			m.goOn()
		}
	}
}

func (m *member) goOn() {
	if m.Run.State == "" && !m.Run.Undo {
		m.permits = append(m.permits, m.Run.Attempt.Number)
	}
	m.Run.State = RunRunning
	if m.began == nil {
		m.began = map[string]bool{}
	}
	if !m.Run.Undo {
		m.began["kubeadm"] = true
	}
	if m.running--; m.running > 0 {
		return
	}
	m.Run.EndedAgo = time.Second
	switch {
	case m.Run.Undo && m.undoFail:
		m.Run.State, m.Run.Step, m.Run.Message = RunFailed, "kubelet", "the old binary is gone"
	case m.Run.Undo:
		m.Run.State, m.began = RunUndone, nil
	case m.fails[m.Run.Attempt.Try]:
		m.Run.State, m.Run.Step, m.Run.Message, m.Run.Reason = RunFailed, "kubelet", "it did not start", m.reason
	default:
		m.Run.State, m.AtTarget = RunSucceeded, true
		m.done++
	}
}

func ok(name, pool string, cp bool) *member {
	return &member{Node: Node{Name: name, Ready: true, NotYet: "its kubelet says v1.35.4"}, pool: pool, cp: cp, pods: 1, fails: map[int32]bool{}}
}

// failing fails in these tries since a person asked.
func failing(m *member, tries ...int32) *member {
	for _, t := range tries {
		m.fails[t] = true
	}
	return m
}

func inZone(m *member, zone string) *member {
	m.Zone = zone
	return m
}

// workersOf makes so many workers w1, w2, ... of a pool.
func workersOf(pool string, n int) []*member {
	out := make([]*member, 0, n)
	for i := range n {
		out = append(out, ok(fmt.Sprintf("w%d", i+1), pool, false))
	}
	return out
}

// startedNodes lists the nodes that this decision starts.
func startedNodes(in Input, d Decision) []string {
	var out []string
	for _, a := range d.Actions {
		if (a.Verb == Cordon || a.Verb == Exclude) && !in.Nodes[a.Node].Started {
			out = append(out, a.Node)
		}
	}
	slices.Sort(out)
	return out
}
