package rollout

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/model"
)

// What is reported of one node, word by word, with reason, fix and whether it ends by
// itself.
func TestBlockerOfEachFailure(t *testing.T) {
	t.Parallel()
	first := Attempt{1, 0, 1}
	failedRun := &Run{Attempt: first, State: RunFailed, Step: "kubelet", Message: "it did not start"}
	const fix = "see to the cause, then `refit retry` (raise spec.retry by one); the node stays cordoned"
	const old = "find out what restored the old version, then `refit retry --node w1`"
	for name, c := range map[string]struct {
		change               func(*Node, *Pool, *model.NodePlan)
		reason, message, fix string
	}{
		"a step": {func(n *Node, _ *Pool, _ *model.NodePlan) { n.Run = failedRun }, reasonStepFailed, "node w1: step kubelet failed: it did not start", fix},
		"a step with its reason": {func(n *Node, _ *Pool, _ *model.NodePlan) {
			n.Run = &Run{Attempt: first, State: RunFailed, Step: "kubelet", Message: "no room", Reason: reasonInsufficientSpace}
		}, reasonInsufficientSpace, "node w1: step kubelet failed: no room", fix},
		"no step": {func(n *Node, _ *Pool, _ *model.NodePlan) {
			n.Run = &Run{Attempt: first, State: RunFailed, Message: "no journal"}
		}, reasonStepFailed, "node w1: no journal", fix},
		"an external step": {func(n *Node, _ *Pool, _ *model.NodePlan) {
			n.Run, n.External = &Run{Attempt: first, State: RunSucceeded, Reason: "x"}, &ExternalWait{Step: "talos", Message: "no disk", Failed: true}
		}, reasonStepFailed, "node w1: step talos failed: no disk", fix},
		"it is old": {func(n *Node, _ *Pool, _ *model.NodePlan) {
			n.Run, n.ReportsOldVersion = &Run{Attempt: first, State: RunSucceeded}, true
		}, reasonVersionReverted, "node w1: it was updated and came back at its old version: its kubelet says v1.35.4", old},
		"it came back old": {func(n *Node, _ *Pool, _ *model.NodePlan) { n.Started, n.FinishedAt = false, start.Add(-time.Hour) }, reasonVersionReverted, "node w1: it was updated and came back at its old version: its kubelet says v1.35.4", old},
		"the run is over, the node is old": {func(n *Node, _ *Pool, _ *model.NodePlan) {
			n.Started, n.Run = false, &Run{Attempt: first, State: RunSucceeded}
		}, reasonVersionReverted, "node w1: it was updated and came back at its old version: its kubelet says v1.35.4", old},
		"the drain": {func(n *Node, p *Pool, _ *model.NodePlan) {
			n.Drain, p.DrainTimeout, n.StartedAt = &Drain{Left: 1}, 10*time.Minute, start.Add(-11*time.Minute)
		}, reasonDrainBlocked, "node w1: the drain took longer than the 10m that pool edge allows", fix},
		"the drain, and why": {func(n *Node, p *Pool, _ *model.NodePlan) {
			n.Drain, p.DrainTimeout, n.StartedAt = &Drain{Left: 1, Blockers: []model.Blocker{{Message: "pod a is protected"}, {Message: "pod b"}}}, 10*time.Minute, start.Add(-11*time.Minute)
		}, reasonDrainBlocked, "node w1: the drain took longer than the 10m that pool edge allows: pod a is protected", fix},
		"the drain of a second attempt": {func(n *Node, p *Pool, _ *model.NodePlan) {
			n.Attempt, n.Run = Attempt{2, 1, 1}, failedRun
			n.Drain, p.DrainTimeout, n.StartedAt = &Drain{Left: 1}, 10*time.Minute, start.Add(-11*time.Minute)
		}, reasonDrainBlocked, "node w1: the drain took longer than the 10m that pool edge allows", fix},
		"the undo": {func(n *Node, _ *Pool, _ *model.NodePlan) {
			n.Run = &Run{Attempt: Attempt{2, 0, 1}, Undo: true, State: RunFailed, UndoReason: "step kubelet failed", Step: "kubeadm", Message: "no backup"}
		}, reasonUndoFailed, "node w1: step kubelet failed; the undo failed: step kubeadm: no backup", fix},
		"a step that has no undo": {func(n *Node, p *Pool, np *model.NodePlan) {
			n.Run, p.Undo, np.Steps[2].NotReversible = failedRun, true, "etcd was migrated"
		}, reasonStepFailed, "node w1: step kubelet failed: it did not start; it is not undone, because step kubeadm is not reversible: etcd was migrated", fix},
		"a step that has no undo, and none was wanted": {func(n *Node, _ *Pool, np *model.NodePlan) {
			n.Run, np.Steps[2].NotReversible = failedRun, "etcd was migrated"
		}, reasonStepFailed, "node w1: step kubelet failed: it did not start", fix},
		"a version that came back, a step has no undo": {func(n *Node, p *Pool, np *model.NodePlan) {
			n.Run, n.ReportsOldVersion, p.Undo, np.Steps[2].NotReversible = &Run{Attempt: first, State: RunSucceeded}, true, true, "etcd was migrated"
		}, reasonVersionReverted, "node w1: it was updated and came back at its old version: its kubelet says v1.35.4", old},
	} {
		m := ok("w1", "edge", false)
		m.Started, m.Unschedulable, m.StartedAt, m.Attempt = true, true, start, first
		p := Pool{Budget: 1, Name: "edge", MaxFailures: 2}
		in := newCluster(map[string]Pool{"edge": p}, m, ok("w2", "edge", false)).facts()
		n := in.Nodes["w1"]
		n.Drain = nil
		c.change(&n, &p, &in.Plan.Nodes[0])
		in.Nodes["w1"], in.Pools["edge"] = n, p
		d := Next(in)
		want := model.Blocker{Reason: c.reason, Message: c.message, Fix: c.fix, Object: "Node/w1"}
		if d.Stages.ByNode("w1") != StageFailed || d.Failed != 1 || d.Halted || !slices.Contains(d.Blockers, want) {
			t.Errorf("%s: %s, %d failed, halted %t: %s", name, d.Stages.ByNode("w1"), d.Failed, d.Halted, cmp.Diff([]model.Blocker{want}, d.Blockers))
		}
		if got := StagesOf(in); got.ByNode("w1") != StageFailed || got.ByNode("w2") != StageWaiting || got.ByNode("w3") != "" || got.ByIndex(1) != StageWaiting {
			t.Errorf("%s: stages %v", name, got)
		}
	}
	if got := whatFailed(&Input{}, model.NodePlan{}, Node{Started: true}); got != "it failed" {
		t.Errorf("of a node about which nothing is known: %q", got)
	}
}

// What is reported of a node that moves.
func TestBlockerOfEachStage(t *testing.T) {
	t.Parallel()
	first := Attempt{1, 0, 1}
	for name, c := range map[string]struct {
		change          func(*Node, *Pool)
		stage           string
		reason, message string
		verbs           []string
	}{
		"a run":  {func(n *Node, _ *Pool) { n.Run = &Run{Attempt: first} }, StageUpdating, reasonUpdating, "node w1 is being updated", nil},
		"a step": {func(n *Node, _ *Pool) { n.Run = &Run{Attempt: first, State: RunRunning, Step: "kubeadm"} }, StageUpdating, reasonUpdating, "node w1 is being updated (step kubeadm)", nil},
		"no journal": {func(n *Node, _ *Pool) {
			n.Run = &Run{Attempt: first, State: RunRunning, Reason: reasonJournalUnreadable, Message: "bad disk"}
		}, StageUpdating, reasonJournalUnreadable, "node w1 is being updated; bad disk", nil},
		"another reason": {func(n *Node, _ *Pool) {
			n.Run = &Run{Attempt: first, State: RunRunning, Reason: "Other", Message: "bad disk"}
		}, StageUpdating, reasonUpdating, "node w1 is being updated", nil},
		"a silent agent":   {func(n *Node, _ *Pool) { n.Run, n.AgentHeartbeatLost = &Run{Attempt: first}, true }, StageUpdating, reasonAgentHeartbeatLost, "the agent of node w1 has not been heard for over three minutes", nil},
		"its mark is gone": {func(n *Node, _ *Pool) { n.Started, n.Run = false, &Run{Attempt: first, State: RunRunning} }, StageUpdating, reasonUpdating, "node w1 is being updated", []string{"cordon w1"}},
		"drain":            {func(n *Node, _ *Pool) { n.Drain = &Drain{Left: 2} }, StageDraining, reasonDraining, "node w1 is being drained", []string{"drain w1"}},
		"drained":          {func(n *Node, _ *Pool) { n.Drain = &Drain{} }, StageDraining, "", "", []string{"run w1"}},
		"uncordoned":       {func(n *Node, _ *Pool) { n.Drain, n.Unschedulable = &Drain{}, false }, StageDraining, "", "", []string{"cordon w1"}},
		"not seen yet":     {func(*Node, *Pool) {}, StageDraining, "", "", []string{"drain w1"}},
		"a drain in time": {func(n *Node, p *Pool) {
			n.Drain, p.DrainTimeout, n.StartedAt = &Drain{Left: 2}, time.Minute, start.Add(-time.Minute)
		}, StageDraining, reasonDraining, "node w1 is being drained", []string{"drain w1"}},
		"settling":  {func(n *Node, _ *Pool) { n.Run = &Run{Attempt: first, State: RunSucceeded} }, StageSettling, reasonSettling, "node w1 has run its steps; its kubelet says v1.35.4", nil},
		"not Ready": {func(n *Node, _ *Pool) { n.Run, n.Ready = &Run{Attempt: first, State: RunSucceeded}, false }, StageSettling, reasonSettling, "node w1 has run its steps; it is not Ready yet", nil},
		"at its target and not Ready": {func(n *Node, _ *Pool) {
			n.Run, n.Ready, n.AtTarget, n.NotYet = &Run{Attempt: first, State: RunSucceeded}, false, true, ""
		}, StageSettling, reasonSettling, "node w1 has run its steps; it is not Ready yet", nil},
		"outside": {func(n *Node, _ *Pool) {
			n.Run, n.External = &Run{Attempt: first, State: RunSucceeded}, &ExternalWait{Step: "talos", Message: "it copies"}
		}, StageSettling, reasonSettling, "node w1 has run its steps; it copies", nil},
		"not yet known": {func(n *Node, _ *Pool) { n.Run, n.NotYet = &Run{Attempt: first, State: RunSucceeded}, "" }, StageSettling, reasonSettling, "node w1 has run its steps", nil},
		"at its target": {func(n *Node, _ *Pool) { n.Run, n.AtTarget = &Run{Attempt: first, State: RunSucceeded}, true }, StageFinishing, "", "", []string{Uncordon + " w1"}},
		"retry": {func(n *Node, p *Pool) {
			p.Attempts, n.Run = 3, &Run{Attempt: first, State: RunFailed, Step: "kubelet", Message: "no", EndedAgo: 30 * time.Second}
		}, StageRetrying, reasonRetrying, "node w1 is tried again (attempt 2 of 3); step kubelet failed: no", []string{"cordon w1"}},
		"retry after a pause": {func(n *Node, p *Pool) {
			p.Attempts, n.Run = 3, &Run{Attempt: first, State: RunFailed, Step: "kubelet", Message: "no", EndedAgo: 30*time.Second - 1}
		}, StageRetrying, reasonRetrying, "node w1 is tried again (attempt 2 of 3) after a pause; step kubelet failed: no", nil},
		"retry of an unsettled pod": {func(n *Node, p *Pool) {
			p.Attempts, n.Unsettled, n.Run = 3, "etcd", &Run{Attempt: first, State: RunFailed, Step: "kubelet", Message: "no", EndedAgo: 3*time.Minute - 1}
		}, StageRetrying, reasonRetrying, "node w1 is tried again (attempt 2 of 3) when it has settled: etcd; step kubelet failed: no", nil},
		"retry of a pod that never settles": {func(n *Node, p *Pool) {
			p.Attempts, n.Unsettled, n.Run = 3, "etcd", &Run{Attempt: first, State: RunFailed, Step: "kubelet", Message: "no", EndedAgo: 3 * time.Minute}
		}, StageRetrying, reasonRetrying, "node w1 is tried again (attempt 2 of 3); step kubelet failed: no", []string{"cordon w1"}},
		"undo": {func(n *Node, p *Pool) {
			p.Undo, n.Run = true, &Run{Attempt: first, State: RunFailed, Step: "kubelet", Message: "no"}
		}, StageUndoing, reasonUndoing, "node w1 is being undone, because step kubelet failed: no", []string{"undo w1"}},
		"undo runs": {func(n *Node, p *Pool) {
			p.Undo, n.Run = true, &Run{Attempt: Attempt{2, 0, 1}, Undo: true, State: RunRunning, UndoReason: "it failed", Step: "kubelet"}
		}, StageUndoing, reasonUndoing, "node w1 is being undone, because it failed (step kubelet)", nil},
		"undone": {func(n *Node, _ *Pool) {
			n.Run = &Run{Attempt: Attempt{2, 0, 1}, Undo: true, State: RunUndone, UndoReason: "it failed"}
		}, StageUndone, reasonUndone, "node w1 failed and its steps were undone, back to v1.35.4; it failed", []string{"release w1"}},
		"undone, not Ready": {func(n *Node, _ *Pool) {
			n.Ready, n.Run = false, &Run{Attempt: Attempt{2, 0, 1}, Undo: true, State: RunUndone, UndoReason: "it failed"}
		}, StageUndone, reasonUndone, "node w1 failed and its steps were undone, back to v1.35.4; it failed", nil},
	} {
		m := ok("w1", "edge", false)
		m.Started, m.Unschedulable, m.StartedAt, m.Attempt = true, true, start, first
		p := Pool{Budget: 1, Name: "edge", MaxFailures: 2}
		in := newCluster(map[string]Pool{"edge": p}, m).facts()
		n := in.Nodes["w1"]
		n.Drain = nil
		c.change(&n, &p)
		in.Nodes["w1"], in.Pools["edge"] = n, p
		d := Next(in)
		if d.Stages.ByNode("w1") != c.stage || !slices.Equal(verbs(d), append([]string{}, c.verbs...)) {
			t.Errorf("%s: %s, %v", name, d.Stages.ByNode("w1"), verbs(d))
		}
		switch {
		case c.reason == "" && len(d.Blockers) > 0:
			t.Errorf("%s: %+v", name, d.Blockers)
		case c.reason != "" && !slices.ContainsFunc(d.Blockers, func(v model.Blocker) bool {
			return v.Reason == c.reason && v.Message == c.message && v.Object == "Node/w1" && v.Waiting == (c.stage != StageUndone)
		}):
			t.Errorf("%s: %+v, want %s", name, d.Blockers, c.message)
		}
		if d.Blocked || !slices.Equal(d.Current, []string{"w1"}) {
			t.Errorf("%s: blocked %t, current %v", name, d.Blocked, d.Current)
		}
	}
}

// A version that came back: each of its conditions alone.
func TestVersionReverted(t *testing.T) {
	t.Parallel()
	succeeded, failedRun := &Run{State: RunSucceeded}, &Run{State: RunFailed}
	for name, c := range map[string]struct {
		node Node
		want bool
	}{
		"the agent reports the old version": {Node{Started: true, ReportsOldVersion: true}, true},
		"it is at its target":               {Node{AtTarget: true, ReportsOldVersion: true, FinishedAt: start, Run: succeeded}, false},
		"it was finished":                   {Node{FinishedAt: start}, true},
		"it was finished and started again": {Node{Started: true, FinishedAt: start, Run: succeeded}, false},
		"its run succeeded":                 {Node{Run: succeeded}, true},
		"its run failed":                    {Node{Run: failedRun}, false},
		"nothing was run":                   {Node{}, false},
	} {
		if got := reverted(c.node); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// The first step that was started and has no undo.
func TestIrreversibleStep(t *testing.T) {
	t.Parallel()
	steps := []model.Step{{ID: "drain", NotReversible: "pods are gone"}, {ID: "kubeadm", By: model.ByAgent}, {ID: "etcd", By: model.ByAgent, NotReversible: "migrated"}, {ID: "talos", By: "external"}, {ID: "os", By: model.ByAgent, NotReversible: "wiped"}}
	for name, c := range map[string]struct {
		node Node
		want string
	}{
		"nothing ran":              {Node{}, ""},
		"before it":                {Node{Run: &Run{Step: "kubeadm"}}, ""},
		"at it":                    {Node{Run: &Run{Step: "etcd"}}, "etcd"},
		"after it":                 {Node{Run: &Run{Step: "os"}}, "etcd"},
		"no step is known":         {Node{Run: &Run{}}, "etcd"},
		"outside, after it":        {Node{Run: &Run{Step: "kubeadm"}, External: &ExternalWait{Step: "talos"}}, "etcd"},
		"outside, the first":       {Node{Run: &Run{}, External: &ExternalWait{Step: "drain"}}, "drain"},
		"outside, before the step": {Node{Run: &Run{Step: "drain"}, External: &ExternalWait{Step: "kubeadm"}}, "kubeadm"},
	} {
		got := ""
		if s := irreversible(model.NodePlan{Steps: steps}, c.node); s != nil {
			got = s.ID
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Which attempt comes next, and whether one is left.
func TestAttemptsOfANode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		node          Node
		retry, byName int32
		next          Attempt
		again         bool
	}{
		"the first":                        {Node{}, 0, 0, Attempt{1, 0, 1}, true},
		"the first after a person's retry": {Node{}, 2, 1, Attempt{1, 3, 1}, true},
		"the second":                       {Node{Started: true, Attempt: Attempt{1, 0, 1}}, 0, 0, Attempt{2, 0, 2}, true},
		"none is left":                     {Node{Started: true, Attempt: Attempt{2, 0, 2}}, 0, 0, Attempt{3, 0, 3}, false},
		"none is left, a person asks":      {Node{Started: true, Attempt: Attempt{2, 0, 2}}, 0, 1, Attempt{3, 1, 1}, true},
		"the mark is gone":                 {Node{Attempt: Attempt{4, 0, 4}, Run: &Run{Attempt: Attempt{1, 0, 1}}}, 0, 0, Attempt{2, 0, 2}, true},
		"the run is later than the mark":   {Node{Started: true, Attempt: Attempt{1, 0, 1}, Run: &Run{Attempt: Attempt{2, 0, 2}}}, 0, 0, Attempt{3, 0, 3}, false},
		"the mark is later than the run":   {Node{Started: true, Attempt: Attempt{2, 0, 2}, Run: &Run{Attempt: Attempt{1, 0, 1}}}, 0, 0, Attempt{3, 0, 3}, false},
		"only the record is left":          {Node{FinishedAt: start}, 0, 0, Attempt{2, 0, 2}, true},
		"an undo ends them":                {Node{Run: &Run{Undo: true, Attempt: Attempt{1, 0, 1}}}, 0, 0, Attempt{2, 0, 2}, false},
		"an unhealthy OS ends them":        {Node{Run: &Run{Reason: reasonOSUnhealthy, Attempt: Attempt{1, 0, 1}}}, 0, 0, Attempt{2, 0, 2}, false},
		"an undo by itself ends them":      {Node{Run: &Run{State: RunFailed, Reason: reasonUndoneByDeadline, Attempt: Attempt{1, 0, 1}}}, 0, 0, Attempt{2, 0, 2}, false},
		"an OS rolled back ends them":      {Node{Run: &Run{Reason: reasonOSRolledBack, Attempt: Attempt{1, 0, 1}}}, 0, 0, Attempt{2, 0, 2}, false},
		"a corrupt journal ends them":      {Node{Run: &Run{State: RunFailed, Reason: reasonJournalCorrupt, Attempt: Attempt{1, 0, 1}}}, 0, 0, Attempt{2, 0, 2}, false},
		"an unreadable journal ends them":  {Node{Run: &Run{State: RunFailed, Reason: reasonJournalUnreadable, Attempt: Attempt{1, 0, 1}}}, 0, 0, Attempt{2, 0, 2}, false},
		"it is unreadable while it runs":   {Node{Run: &Run{State: RunRunning, Reason: reasonJournalUnreadable, Attempt: Attempt{1, 0, 1}}}, 0, 0, Attempt{2, 0, 2}, true},
	} {
		in := &Input{Retry: c.retry, RetryNodes: map[string]int32{"w1": c.byName}, Pools: map[string]Pool{"edge": {Attempts: 2}}}
		c.node.Name = "w1"
		if next, again := nextAttempt(in, c.node), mayRetry(in, model.NodePlan{Node: "w1", Pool: "edge"}, c.node); next != c.next || again != c.again {
			t.Errorf("%s: %+v, again %t", name, next, again)
		}
	}
}
