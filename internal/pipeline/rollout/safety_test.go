package rollout

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/model"
)

// verbs lists the actions of a decision as "verb node".
func verbs(d Decision) []string {
	out := []string{}
	for _, a := range d.Actions {
		out = append(out, a.Verb+" "+a.Node)
	}
	return out
}

// reasonsOf lists the reason words of a decision.
func reasonsOf(d Decision) []string {
	out := []string{}
	for _, v := range d.Blockers {
		out = append(out, v.Reason)
	}
	return out
}

// finished makes a node one that this update returned so long ago.
func finished(m *member, ago time.Duration) *member {
	m.AtTarget, m.FinishedAt = true, start.Add(-ago)
	return m
}

func notReady(m *member) *member {
	m.Ready = false
	return m
}

// Done means Ready: a node at its target that is not Ready keeps the update open.
func TestNotFinishedWhileANodeIsNotReady(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pool     func(*Pool)
		nodes    []*member
		finished bool
		reasons  []string
	}{
		"all are Ready":                            {nil, []*member{finished(ok("w1", "edge", false), time.Hour)}, true, []string{}},
		"one of two is not Ready":                  {nil, []*member{finished(ok("w1", "edge", false), time.Hour), notReady(finished(ok("w2", "edge", false), time.Hour))}, false, []string{reasonNodeNotReady}},
		"the first is not Ready":                   {nil, []*member{notReady(finished(ok("w1", "edge", false), time.Hour)), finished(ok("w2", "edge", false), time.Hour)}, false, []string{reasonNodeNotReady}},
		"one soaks":                                {func(p *Pool) { p.Soak = time.Hour }, []*member{finished(ok("w1", "edge", false), time.Minute)}, false, []string{reasonSoaking}},
		"one has soaked to the second":             {func(p *Pool) { p.Soak = time.Hour }, []*member{finished(ok("w1", "edge", false), time.Hour)}, true, []string{}},
		"one soaks, another is not Ready":          {func(p *Pool) { p.Soak = time.Hour }, []*member{finished(ok("w1", "edge", false), time.Minute), notReady(finished(ok("w2", "edge", false), time.Minute))}, false, []string{reasonNodeNotReady}},
		"a node that left the cluster is no node":  {nil, []*member{finished(ok("w1", "edge", false), time.Hour), {Node: Node{Name: "w2", Gone: true}, pool: "edge"}}, true, []string{}},
		"one waits":                                {nil, []*member{finished(ok("w1", "edge", false), time.Hour), ok("w2", "edge", false)}, false, []string{}},
		"it was at its target and is not Ready":    {nil, []*member{notReady(&member{Node: Node{Name: "w1", AtTarget: true}, pool: "edge"})}, false, []string{reasonNodeNotReady}},
		"it was at its target before, and is well": {func(p *Pool) { p.Soak = time.Hour }, []*member{{Node: Node{Name: "w1", AtTarget: true, Ready: true}, pool: "edge"}}, true, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := Next(newCluster(pool(tc.pool), tc.nodes...).facts())
			if d.Finished != tc.finished || !slices.Equal(reasonsOf(d), tc.reasons) {
				t.Errorf("finished %t, want %t; %+v", d.Finished, tc.finished, d.Blockers)
			}
		})
	}
}

// Soaking starts anew when a node that was not Ready comes back, and the last to
// soak is named.
func TestSoakEnd(t *testing.T) {
	t.Parallel()
	late := finished(ok("w1", "edge", false), 50*time.Minute)
	late.ReadySince = start.Add(-10 * time.Minute)
	d := Next(newCluster(pool(func(p *Pool) { p.Soak = time.Hour }), late, finished(ok("w2", "edge", false), 20*time.Minute)).facts())
	if d.Finished || len(d.Blockers) != 1 || d.Blockers[0].Object != "Node/w1" || !d.Blockers[0].Waiting || !strings.Contains(d.Blockers[0].Message, "2026-11-20 11:50:00Z") {
		t.Errorf("%+v", d.Blockers)
	}
	late.ReadySince = start.Add(time.Minute) // a wrong clock
	d = Next(newCluster(pool(func(p *Pool) { p.Soak = time.Hour }), late).facts())
	if len(d.Blockers) != 1 || !strings.Contains(d.Blockers[0].Message, "2026-11-20 11:10:00Z") {
		t.Errorf("%+v", d.Blockers)
	}
}

// A canary passes when it is done, Ready and has soaked, and for no other reason.
func TestCanary(t *testing.T) {
	t.Parallel()
	const soak = 30 * time.Minute
	for name, tc := range map[string]struct {
		canary  func(*member)
		starts  []string
		message string
	}{
		"it has soaked":                  {func(m *member) { finished(m, soak) }, []string{"cordon w2", "cordon w3"}, ""},
		"it soaks":                       {func(m *member) { finished(m, soak-time.Second) }, []string{}, "the canary w1 is watched until 2026-11-20 11:00:01Z"},
		"it is not Ready, soak is over":  {func(m *member) { notReady(finished(m, 10*soak)) }, []string{}, "the canary w1 was updated and is not Ready"},
		"it came back not long ago":      {func(m *member) { finished(m, 10*soak).ReadySince = start.Add(-time.Minute) }, []string{}, "the canary w1 is watched until 2026-11-20 11:29:00Z"},
		"it waits":                       {func(*member) {}, []string{"cordon w1"}, ""},
		"it was at its target before":    {func(m *member) { m.AtTarget = true }, []string{"cordon w2", "cordon w3"}, ""},
		"it is on hold, so the next is":  {func(m *member) { m.OnHold = true }, []string{"cordon w2"}, ""},
		"it left, so the next is":        {func(m *member) { m.Gone = true }, []string{"cordon w2"}, ""},
		"it is at its target, not Ready": {func(m *member) { m.AtTarget, m.Ready = true, false }, []string{"cordon w2", "cordon w3"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := workersOf("edge", 4)
			tc.canary(w[0])
			d := Next(newCluster(pool(func(p *Pool) { p.Budget, p.Canary, p.CanarySoak = 3, Amount{Value: 1}, soak }), w...).facts())
			switch {
			case tc.message != "" && !slices.ContainsFunc(d.Blockers, func(v model.Blocker) bool {
				return v.Reason == reasonSoaking && v.Object == "UpdatePool/edge" && v.Waiting && strings.HasSuffix(v.Message, tc.message)
			}):
				t.Errorf("no blocker %q: %+v", tc.message, d.Blockers)
			case len(tc.starts) == 0 && len(d.Actions) > 0, len(tc.starts) > 0 && (len(d.Actions) == 0 || d.Actions[0].Verb+" "+d.Actions[0].Node != tc.starts[0]):
				t.Errorf("actions %v, want %v", verbs(d), tc.starts)
			}
			for _, v := range verbs(d) {
				if tc.canary != nil && !slices.Contains(append(tc.starts, "cordon w4"), v) {
					t.Errorf("%s is not wanted: %v", v, tc.starts)
				}
			}
		})
	}
}

// Of two canaries the later end counts, and one that is not Ready hides no end.
func TestTwoCanaries(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		first, second func(*member)
		message       string
	}{
		"the second soaks longer":    {func(m *member) { finished(m, 20*time.Minute) }, func(m *member) { finished(m, 5*time.Minute) }, "watched until 2026-11-20 11:25:00Z"},
		"the first soaks longer":     {func(m *member) { finished(m, 5*time.Minute) }, func(m *member) { finished(m, 20*time.Minute) }, "watched until 2026-11-20 11:25:00Z"},
		"the first is not Ready":     {func(m *member) { notReady(finished(m, 5*time.Minute)) }, func(m *member) { finished(m, 20*time.Minute) }, "was updated and is not Ready"},
		"the second is not Ready":    {func(m *member) { finished(m, 20*time.Minute) }, func(m *member) { notReady(finished(m, time.Hour)) }, "was updated and is not Ready"},
		"the second still has to go": {func(m *member) { finished(m, time.Hour) }, func(*member) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := workersOf("edge", 5)
			tc.first(w[0])
			tc.second(w[1])
			d := Next(newCluster(pool(func(p *Pool) { p.Budget, p.Canary, p.CanarySoak = 3, Amount{Value: 2}, 30*time.Minute }), w...).facts())
			said := ""
			for _, v := range d.Blockers {
				if v.Reason == reasonSoaking {
					said += v.Message
				}
			}
			if !strings.HasSuffix(said, tc.message) || tc.message == "" && said != "" {
				t.Errorf("%q, want %q", said, tc.message)
			}
			for _, v := range verbs(d) {
				if v != "cordon w2" || tc.message != "" {
					t.Errorf("%s before the canaries have passed", v)
				}
			}
		})
	}
}

// A pause, of the update or of the pool, and a halt stop staging as well.
func TestPauseStopsStaging(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		happens func(*cluster)
		want    []string
	}{
		"nothing":              {func(*cluster) {}, []string{"stage w1", "stage w2", "stage w3"}},
		"the update is paused": {func(c *cluster) { c.in.Paused = true }, []string{}},
		"the pool is paused":   {func(c *cluster) { p := c.in.Pools["edge"]; p.Paused = true; c.in.Pools["edge"] = p }, []string{}},
		"a node is on hold":    {func(c *cluster) { c.truth["w2"].OnHold = true }, []string{"stage w1", "stage w3"}},
		"a node is not Ready":  {func(c *cluster) { c.truth["w2"].Ready = false }, []string{"stage w1", "stage w3"}},
		"a node failed, the update is halted": {func(c *cluster) {
			m := c.truth["w1"]
			markStarted(m)
			m.Staging.Ready, m.Run = true, &Run{Attempt: Attempt{1, 0, 1}, State: RunFailed, Step: "kubelet"}
		}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(pool(func(p *Pool) { p.Staging = 5 }), staging(3)...)
			tc.happens(c)
			d := Next(c.facts())
			got := slices.DeleteFunc(verbs(d), func(v string) bool { return !strings.HasPrefix(v, Stage) })
			if !slices.Equal(got, tc.want) {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// What a node that has started may do next, and what not while it is not Ready.
func TestOneStartedNode(t *testing.T) {
	t.Parallel()
	first := Attempt{1, 0, 1}
	for name, tc := range map[string]struct {
		node  func(*member)
		pool  func(*Pool)
		stage string
		want  []string
	}{
		"brought to its target by hand":              {func(m *member) { m.AtTarget = true }, nil, StageFinishing, []string{"uncordon w1"}},
		"by hand, and not Ready":                     {func(m *member) { m.AtTarget, m.Ready = true, false }, nil, StageDraining, []string{"drain w1"}},
		"undone":                                     {func(m *member) { m.Run = &Run{Attempt: first, Undo: true, State: RunUndone} }, nil, StageUndone, []string{"release w1"}},
		"undone, and not Ready":                      {func(m *member) { m.Run, m.Ready = &Run{Attempt: first, Undo: true, State: RunUndone}, false }, nil, StageUndone, []string{}},
		"ran and is at its target":                   {func(m *member) { m.Run, m.AtTarget = &Run{Attempt: first, State: RunSucceeded}, true }, nil, StageFinishing, []string{"uncordon w1"}},
		"ran, at its target, not Ready":              {func(m *member) { m.Run, m.AtTarget, m.Ready = &Run{Attempt: first, State: RunSucceeded}, true, false }, nil, StageSettling, []string{}},
		"ran, Ready, not at its target":              {func(m *member) { m.Run = &Run{Attempt: first, State: RunSucceeded} }, nil, StageSettling, []string{}},
		"uncordoned by a person while it is drained": {func(m *member) { m.Unschedulable = false }, nil, StageDraining, []string{"cordon w1"}},
		"the same when no pod is left":               {func(m *member) { m.Unschedulable, m.pods = false, 0 }, nil, StageDraining, []string{"cordon w1"}},
		"drained":                                    {func(m *member) { m.pods = 0 }, nil, StageDraining, []string{"run w1"}},
		"undone with attempts left":                  {func(m *member) { m.Run = &Run{Attempt: first, Undo: true, State: RunUndone} }, func(p *Pool) { p.Attempts = 3 }, StageUndone, []string{"release w1"}},
		"the undo failed with attempts left":         {func(m *member) { m.Run = &Run{Attempt: first, Undo: true, State: RunFailed} }, func(p *Pool) { p.Attempts = 3 }, StageFailed, []string{}},
		"the OS was rolled back, attempts left":      {func(m *member) { m.Run = &Run{Attempt: first, State: RunFailed, Reason: reasonOSRolledBack} }, func(p *Pool) { p.Attempts = 3 }, StageFailed, []string{}},
		"the OS was unhealthy, attempts left":        {func(m *member) { m.Run = &Run{Attempt: first, State: RunFailed, Reason: reasonOSUnhealthy} }, func(p *Pool) { p.Attempts = 3 }, StageFailed, []string{}},
		"it failed, attempts left":                   {func(m *member) { m.Run = &Run{Attempt: first, State: RunFailed} }, func(p *Pool) { p.Attempts = 2 }, StageRetrying, []string{"cordon w1"}},
		"it failed, and that was the last attempt":   {func(m *member) { m.Run = &Run{Attempt: Attempt{2, 0, 2}, State: RunFailed} }, func(p *Pool) { p.Attempts = 2 }, StageFailed, []string{}},
		"it failed in an unnamed step":               {func(m *member) { m.Run = &Run{Attempt: first, State: RunFailed} }, func(p *Pool) { p.Undo = true }, StageFailed, []string{}},
		"it failed in a step that cannot be undone":  {func(m *member) { m.Run = &Run{Attempt: first, State: RunFailed, Step: "final"} }, func(p *Pool) { p.Undo = true }, StageFailed, []string{}},
		"it failed before that step":                 {func(m *member) { m.Run = &Run{Attempt: first, State: RunFailed, Step: "kubeadm"} }, func(p *Pool) { p.Undo = true }, StageUndoing, []string{"undo w1"}},
		"an external updater failed": {func(m *member) {
			m.Run, m.External = &Run{Attempt: first, State: RunSucceeded}, &ExternalWait{Step: "x", Failed: true}
		}, nil, StageFailed, []string{}},
		"an external updater works": {func(m *member) {
			m.Run, m.External = &Run{Attempt: first, State: RunSucceeded}, &ExternalWait{Step: "x"}
		}, nil, StageSettling, []string{}},
		"the drain takes longer than the pool allows": {func(m *member) { m.StartedAt = start.Add(-2 * time.Hour) }, func(p *Pool) { p.DrainTimeout = time.Hour }, StageFailed, []string{}},
		"the drain takes exactly as long":             {func(m *member) { m.StartedAt = start.Add(-time.Hour) }, func(p *Pool) { p.DrainTimeout = time.Hour }, StageDraining, []string{"drain w1"}},
		"the drain takes longer, and no pod is left":  {func(m *member) { m.StartedAt, m.pods = start.Add(-2*time.Hour), 0 }, func(p *Pool) { p.DrainTimeout = time.Hour }, StageDraining, []string{"run w1"}},
		"the run of the attempt before this is over":  {func(m *member) { m.Attempt, m.Run = Attempt{2, 0, 2}, &Run{Attempt: first, State: RunFailed} }, func(p *Pool) { p.Attempts = 2 }, StageDraining, []string{"drain w1"}},
		"it runs":                                    {func(m *member) { m.Run = &Run{Attempt: first, State: RunRunning} }, nil, StageUpdating, []string{}},
		"it runs, and the mark was taken":            {func(m *member) { m.Started, m.Run = false, &Run{Attempt: first, State: RunRunning} }, nil, StageUpdating, []string{"cordon w1"}},
		"it came back at its old version":            {func(m *member) { m.Run, m.ReportsOldVersion = &Run{Attempt: first, State: RunSucceeded}, true }, func(p *Pool) { p.Undo = true }, StageFailed, []string{}},
		"its journal cannot be read, and others can": {func(m *member) { m.Run = &Run{Attempt: first, State: RunFailed, Reason: reasonJournalCorrupt} }, func(p *Pool) { p.Undo, p.Attempts = true, 3 }, StageFailed, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := ok("w1", "edge", false)
			markStarted(w)
			tc.node(w)
			c := newCluster(pool(tc.pool), w, ok("w2", "edge", false))
			c.plan("w1", func(np *model.NodePlan) {
				np.Steps = slices.Insert(np.Steps, 4, model.Step{ID: "final", By: model.ByAgent, NotReversible: "it is not reversible"})
			})
			d := Next(c.facts())
			if got := d.Stages.ByNode("w1"); got != tc.stage {
				t.Errorf("stage %s, want %s", got, tc.stage)
			}
			if got := verbs(d); !slices.Equal(got, tc.want) {
				t.Errorf("actions %v, want %v", got, tc.want)
			}
			for _, a := range d.Actions {
				if a.Verb == Cordon && tc.stage == StageDraining && a.Attempt != first {
					t.Errorf("attempt %+v", a.Attempt)
				}
			}
		})
	}
}

// A person's retry also starts what the pool's attempts do not.
func TestAPersonsRetryEndsEveryFailure(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]*Run{
		"undone":              {Attempt: Attempt{2, 0, 1}, Undo: true, State: RunUndone},
		"the undo failed":     {Attempt: Attempt{2, 0, 1}, Undo: true, State: RunFailed},
		"the OS rolled back":  {Attempt: Attempt{2, 0, 1}, State: RunFailed, Reason: reasonOSRolledBack},
		"the OS is unhealthy": {Attempt: Attempt{2, 0, 1}, State: RunFailed, Reason: reasonOSUnhealthy},
		"undone by itself":    {Attempt: Attempt{2, 0, 1}, State: RunFailed, Reason: reasonUndoneByDeadline},
		"no attempt is left":  {Attempt: Attempt{2, 0, 2}, State: RunFailed},
	} {
		for _, started := range []bool{true, false} {
			w := ok("w1", "edge", false)
			w.Started, w.Unschedulable, w.Attempt, w.Run = started, started, run.Attempt, run
			c := newCluster(pool(func(p *Pool) { p.Attempts, p.Budget = 2, 1 }), w, ok("w2", "edge", false))
			if d := Next(c.facts()); slices.ContainsFunc(d.Actions, func(a Action) bool { return a.Verb == Cordon }) || !d.Halted || d.Failed != 1 {
				t.Errorf("%s (started %t): %v before a person asks; halted %t, failed %d", name, started, verbs(d), d.Halted, d.Failed)
			}
			c.in.RetryNodes["w1"] = 1
			d := Next(c.facts())
			if (name != "undone" || !started) && (len(d.Actions) != 1 || d.Actions[0] != (Action{Verb: Cordon, Node: "w1", Attempt: Attempt{3, 1, 1}})) {
				t.Errorf("%s (started %t): %+v after a person asked", name, started, d.Actions)
			}
		}
	}
}

func TestQuorum(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		etcd map[string]bool
		node string
		says string
	}{
		"etcd runs elsewhere":            {nil, "c1", ""},
		"one member":                     {map[string]bool{"c1": true}, "c1", ""},
		"one member that is down itself": {map[string]bool{"c1": false}, "c1", ""},
		"all are up":                     {map[string]bool{"c1": true, "c2": true, "c3": true}, "c1", ""},
		"only the node itself is down":   {map[string]bool{"c1": false, "c2": true, "c3": true}, "c1", ""},
		"another is down":                {map[string]bool{"c1": true, "c2": false, "c3": true}, "c1", "the etcd members on c2 are not Ready; all 3 are needed while one moves, the quorum is 2"},
		"two others are down of five":    {map[string]bool{"c1": true, "c2": false, "c3": false, "c4": true, "c5": true}, "c1", "the etcd members on c2, c3 are not Ready; all 5 are needed while one moves, the quorum is 3"},
		"the node has no member":         {map[string]bool{"c1": true, "c2": false}, "c9", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := etcdQuorum(tc.etcd, tc.node)
			if (v != nil) != (tc.says != "") || v != nil && (v.Reason != reasonEtcdQuorum || v.Object != "Node/"+tc.node || !strings.HasSuffix(v.Message, tc.says) || v.Fix == "") {
				t.Errorf("%+v, want %q", v, tc.says)
			}
		})
	}
}

// A control-plane node waits for each of: another that is not well, a member of
// etcd, another that moves or soaks; a worker for none of the first two.
func TestControlPlaneAlone(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		happens func(*cluster)
		want    []string
		reasons []string
	}{
		"all are well":                    {func(*cluster) {}, []string{"cordon c1"}, []string{}},
		"another is not Ready":            {func(c *cluster) { c.truth["c2"].Ready = false }, []string{}, []string{reasonUnhealthy}},
		"another's etcd is down":          {func(c *cluster) { c.truth["c2"].etcdDown = true }, []string{}, []string{reasonEtcdQuorum}},
		"its own etcd is down":            {func(c *cluster) { c.truth["c1"].etcdDown = true }, []string{"cordon c1"}, []string{}},
		"it is not Ready itself":          {func(c *cluster) { c.truth["c1"].Ready = false }, []string{}, []string{reasonNodeNotReady}},
		"the first soaks":                 {func(c *cluster) { finished(c.truth["c1"], time.Minute) }, []string{}, []string{reasonSoaking}},
		"the first has soaked":            {func(c *cluster) { finished(c.truth["c1"], time.Hour) }, []string{"cordon c2"}, []string{}},
		"the first is updated, not Ready": {func(c *cluster) { notReady(finished(c.truth["c1"], 2*time.Hour)) }, []string{}, []string{reasonSoaking}},
		"the control plane is done": {func(c *cluster) {
			finished(c.truth["c1"], time.Hour)
			finished(c.truth["c2"], time.Hour)
			finished(c.truth["c3"], time.Hour)
		}, []string{"cordon w1"}, []string{}},
		"its add-ons are rolled out": {func(c *cluster) {
			finished(c.truth["c1"], time.Hour)
			c.in.ControlPlane.Addons, c.in.ControlPlane.AddonsUntil = "Deployment coredns: 1 of 2 pods", start.Add(time.Second)
		}, []string{}, []string{reasonAddons}},
		"its add-ons had their time": {func(c *cluster) {
			finished(c.truth["c1"], time.Hour)
			c.in.ControlPlane.Addons, c.in.ControlPlane.AddonsUntil = "Deployment coredns: 1 of 2 pods", start
		}, []string{"cordon c2"}, []string{}},
		"the last of it is updated": {func(c *cluster) {
			finished(c.truth["c1"], time.Hour)
			finished(c.truth["c2"], time.Hour)
			markStarted(c.truth["c3"])
			c.truth["c3"].pods = 0
		}, []string{"run c3"}, []string{}},
		"a worker is not Ready at the same time": {func(c *cluster) { c.truth["w1"].Ready = false }, []string{"cordon c1"}, []string{}},
		"one of it is on hold, a worker not":     {func(c *cluster) { c.truth["c1"].OnHold = true }, []string{}, []string{reasonNodeOnHold}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(pool(func(p *Pool) { p.Budget, p.Soak = 3, 30*time.Minute }), ok("c1", "edge", true), ok("c2", "edge", true), ok("c3", "edge", true), ok("w1", "edge", false))
			tc.happens(c)
			d := Next(c.facts())
			if got := verbs(d); !slices.Equal(got, tc.want) {
				t.Errorf("actions %v, want %v", got, tc.want)
			}
			if got := reasonsOf(d); !slices.Equal(got, tc.reasons) {
				t.Errorf("reasons %v, want %v: %+v", got, tc.reasons, d.Blockers)
			}
		})
	}
}

// Each failure halts for a reason of its own: its role, a canary, their number, or
// that nothing else is left.
func TestHalt(t *testing.T) {
	t.Parallel()
	fail := func(c *cluster, names ...string) {
		for _, n := range names {
			markStarted(c.truth[n])
			c.truth[n].Run = &Run{Attempt: Attempt{1, 0, 1}, State: RunFailed, Step: "kubelet"}
		}
	}
	for name, tc := range map[string]struct {
		pool    func(*Pool)
		happens func(*cluster)
		halted  bool
	}{
		"one of three that are borne": {func(p *Pool) { p.MaxFailures = 3 }, func(c *cluster) { fail(c, "w1") }, false},
		"two of three that are borne": {func(p *Pool) { p.MaxFailures = 3 }, func(c *cluster) { fail(c, "w1", "w2") }, false},
		"three of three":              {func(p *Pool) { p.MaxFailures = 3 }, func(c *cluster) { fail(c, "w1", "w2", "w3") }, true},
		"one, and none is borne":      {nil, func(c *cluster) { fail(c, "w1") }, true},
		"one of the control plane":    {func(p *Pool) { p.MaxFailures = 3 }, func(c *cluster) { fail(c, "c1") }, true},
		"the canary":                  {func(p *Pool) { p.MaxFailures, p.Canary = 3, Amount{Value: 1} }, func(c *cluster) { fail(c, "w1") }, true},
		"one that is not the canary":  {func(p *Pool) { p.MaxFailures, p.Canary = 3, Amount{Value: 1} }, func(c *cluster) { finished(c.truth["w1"], time.Hour); fail(c, "w2") }, false},
		"one, and nothing else is left": {func(p *Pool) { p.MaxFailures = 3 }, func(c *cluster) {
			fail(c, "w4")
			for _, n := range []string{"c1", "w1", "w2", "w3"} {
				finished(c.truth[n], time.Hour)
			}
		}, true},
		"nothing failed, nothing is left": {nil, func(c *cluster) {
			for _, m := range c.truth {
				finished(m, time.Hour)
			}
		}, false},
		"nothing failed": {nil, func(*cluster) {}, false},
		"one of each of two pools": {func(p *Pool) { p.MaxFailures = 2 }, func(c *cluster) {
			c.in.Pools["other"] = Pool{Name: "other", Budget: 1, MaxFailures: 2}
			c.truth["w2"].pool = "other"
			c.plan("w2", func(np *model.NodePlan) { np.Pool = "other" })
			fail(c, "w1", "w2")
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(pool(func(p *Pool) {
				p.Budget = 5
				if tc.pool != nil {
					tc.pool(p)
				}
			}), append([]*member{ok("c1", "edge", true)}, workersOf("edge", 4)...)...)
			finished(c.truth["c1"], time.Hour)
			if name == "one of the control plane" {
				c.truth["c1"].FinishedAt, c.truth["c1"].AtTarget = time.Time{}, false
			}
			tc.happens(c)
			d := Next(c.facts())
			if d.Halted != tc.halted {
				t.Errorf("halted %t, want %t: %+v", d.Halted, tc.halted, d.Blockers)
			}
			starts := slices.ContainsFunc(d.Actions, func(a Action) bool { return a.Verb == Cordon })
			if d.Halted && starts {
				t.Errorf("halted, and %v", verbs(d))
			}
		})
	}
}

// The budget counts what is cordoned, not Ready, started or watched, each alone.
func TestBudgetCounts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pool    func(*Pool)
		happens func(*cluster)
		want    []string
		reasons []string
	}{
		"every node is Ready":              {nil, func(*cluster) {}, []string{"cordon w1", "cordon w2"}, []string{}},
		"one of the plan is cordoned":      {nil, func(c *cluster) { c.truth["w4"].Unschedulable = true }, []string{"cordon w1", "cordon w4"}, []string{reasonBudgetSpent}},
		"one at its target is cordoned":    {nil, func(c *cluster) { c.truth["w4"].Unschedulable, c.truth["w4"].AtTarget = true, true }, []string{"cordon w1"}, []string{reasonBudgetSpent}},
		"one at its target is not Ready":   {nil, func(c *cluster) { c.truth["w4"].Ready, c.truth["w4"].AtTarget = false, true }, []string{"cordon w1"}, []string{reasonBudgetSpent}},
		"one has started":                  {nil, func(c *cluster) { markStarted(c.truth["w1"]) }, []string{"drain w1", "cordon w2"}, []string{reasonDraining}},
		"one has started and is not there": {nil, func(c *cluster) { markStarted(c.truth["w1"]); c.truth["w1"].Ready = false }, []string{"drain w1", "cordon w2"}, []string{reasonDraining}},
		"two have failed and are borne": {func(p *Pool) { p.MaxFailures = 5 }, func(c *cluster) {
			for _, n := range []string{"w1", "w2"} {
				markStarted(c.truth[n])
				c.truth[n].Run = &Run{Attempt: Attempt{1, 0, 1}, State: RunFailed}
			}
		}, []string{}, []string{reasonStepFailed, reasonStepFailed, reasonBudgetSpent}},
		"two soak":  {func(p *Pool) { p.Soak = time.Hour }, func(c *cluster) { finished(c.truth["w1"], time.Minute); finished(c.truth["w2"], 2*time.Minute) }, []string{}, []string{reasonSoaking}},
		"one soaks": {func(p *Pool) { p.Soak = time.Hour }, func(c *cluster) { finished(c.truth["w1"], time.Minute) }, []string{"cordon w2"}, []string{reasonSoaking}},
		"two are not Ready": {func(p *Pool) { p.Soak = time.Hour }, func(c *cluster) {
			notReady(finished(c.truth["w1"], 2*time.Hour))
			notReady(finished(c.truth["w2"], 2*time.Hour))
		}, []string{}, []string{reasonBudgetSpent}},
		"one left the cluster": {nil, func(c *cluster) { c.truth["w1"].Gone, c.truth["w1"].Ready = true, false }, []string{"cordon w2", "cordon w3"}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(pool(func(p *Pool) {
				p.Budget = 2
				if tc.pool != nil {
					tc.pool(p)
				}
			}), workersOf("edge", 4)...)
			tc.happens(c)
			d := Next(c.facts())
			if got := verbs(d); !slices.Equal(got, tc.want) {
				t.Errorf("actions %v, want %v", got, tc.want)
			}
			if got := reasonsOf(d); !slices.Equal(got, tc.reasons) {
				t.Errorf("reasons %v, want %v: %+v", got, tc.reasons, d.Blockers)
			}
		})
	}
}

// A node on hold keeps what it started: only a start is held.
func TestAHeldNodeThatMovesGoesOn(t *testing.T) {
	t.Parallel()
	for _, cp := range []bool{true, false} {
		w := ok("n1", "edge", cp)
		markStarted(w)
		w.pods, w.OnHold = 0, true
		d := Next(newCluster(pool(nil), w, ok("w2", "edge", false)).facts())
		if got := verbs(d); !slices.Equal(got, []string{"run n1"}) {
			t.Errorf("%v", got)
		}
	}
}

func TestAPIServerClause(t *testing.T) {
	t.Parallel()
	three := map[string]bool{"a": true, "b": true, "c": true}
	for name, tc := range map[string]struct {
		etcd          map[string]bool
		controlPlanes int
		want          string
	}{
		"one":                  {map[string]bool{"a": true}, 1, "the API server is unavailable meanwhile, workloads continue to run"},
		"none is known":        {nil, 0, "the API server is unavailable meanwhile, workloads continue to run"},
		"two members":          {map[string]bool{"a": true, "b": true}, 2, "etcd has two members, and one alone has no quorum: the API server hangs while either moves"},
		"three members":        {three, 3, "etcd keeps its quorum of 2 of 3 members"},
		"two, etcd elsewhere":  {nil, 2, "the API server stays available"},
		"two, etcd on a third": {map[string]bool{"x": true}, 2, "the API server stays available"},
	} {
		if got := APIServerClause(tc.etcd, tc.controlPlanes); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// Facts that matter only together with another: each alone, and with it.
func TestRareCases(t *testing.T) {
	t.Parallel()
	with := func(change func(*Pool), happens func(*cluster), nodes ...*member) Decision {
		c := newCluster(pool(change), nodes...)
		happens(c)
		return Next(c.facts())
	}
	nothing := func(*cluster) {}
	t.Run("a canary that is on hold and moves is the canary", func(t *testing.T) {
		t.Parallel()
		w := workersOf("edge", 3)
		markStarted(w[0])
		w[0].OnHold, w[0].pods = true, 0
		d := with(func(p *Pool) { p.Budget, p.Canary = 3, Amount{Value: 1} }, nothing, w...)
		if got := verbs(d); !slices.Equal(got, []string{"run w1"}) {
			t.Error(got)
		}
	})
	t.Run("a canary without a soak that is not Ready has not passed", func(t *testing.T) {
		t.Parallel()
		w := workersOf("edge", 3)
		notReady(finished(w[0], time.Hour))
		d := with(func(p *Pool) { p.Budget, p.Canary = 3, Amount{Value: 1} }, nothing, w...)
		if len(d.Actions) != 0 || !slices.Equal(reasonsOf(d), []string{reasonSoaking}) {
			t.Errorf("%v, %+v", verbs(d), d.Blockers)
		}
	})
	t.Run("a soak of a nanosecond is a soak", func(t *testing.T) {
		t.Parallel()
		if d := with(func(p *Pool) { p.Soak = 1 }, nothing, finished(ok("w1", "edge", false), 0)); d.Finished {
			t.Error("finished")
		}
	})
	t.Run("a drain without an observation goes on, and its message is reported", func(t *testing.T) {
		t.Parallel()
		n := Node{Name: "w1", Ready: true, Started: true, Unschedulable: true, Attempt: Attempt{1, 0, 1}, StartedAt: start}
		in := Input{Now: start, Pools: pool(nil), Plan: model.Plan{Nodes: []model.NodePlan{nodePlan("w1", model.RoleWorker, "edge", 0)}}, Nodes: map[string]Node{"w1": n}}
		if d := Next(in); !slices.Equal(verbs(d), []string{"drain w1"}) || len(d.Blockers) != 0 {
			t.Errorf("%v, %+v", verbs(d), d.Blockers)
		}
		n.Drain = &Drain{Left: 1, Blockers: []model.Blocker{{Reason: "DisruptionBudget"}}}
		in.Nodes = map[string]Node{"w1": n}
		in.row, in.at = nil, nil
		if d := Next(in); !slices.Equal(reasonsOf(d), []string{reasonDraining, "DisruptionBudget"}) {
			t.Errorf("%+v", d.Blockers)
		}
	})
	t.Run("a failure that is borne halts nothing while one in the middle is open", func(t *testing.T) {
		t.Parallel()
		w := workersOf("edge", 3)
		markStarted(w[0])
		w[0].Run = &Run{Attempt: Attempt{1, 0, 1}, State: RunFailed}
		finished(w[2], time.Hour)
		if d := with(func(p *Pool) { p.MaxFailures, p.Budget = 3, 2 }, nothing, w...); d.Halted {
			t.Error("halted")
		}
	})
	t.Run("no message about workers on hold while a control-plane node moves", func(t *testing.T) {
		t.Parallel()
		c1, w1 := ok("c1", "edge", true), ok("w1", "edge", false)
		markStarted(c1)
		c1.pods, w1.OnHold = 0, true
		if d := with(nil, nothing, c1, w1); !slices.Equal(verbs(d), []string{"run c1"}) || len(d.Blockers) != 0 {
			t.Errorf("%v, %+v", verbs(d), d.Blockers)
		}
	})
	t.Run("without an order of zones a node in a zone starts", func(t *testing.T) {
		t.Parallel()
		if d := with(nil, nothing, inZone(ok("w1", "edge", false), "a")); !slices.Equal(verbs(d), []string{"cordon w1"}) {
			t.Error(verbs(d))
		}
	})
	t.Run("the next zone is not news while one moves", func(t *testing.T) {
		t.Parallel()
		zones := func(p *Pool) { p.Zones, p.Soak, p.Budget = true, time.Hour, 3 }
		soaking := inZone(finished(ok("w1", "edge", false), time.Minute), "a")
		moving := inZone(ok("w2", "edge", false), "a")
		markStarted(moving)
		moving.pods = 0
		if d := with(zones, nothing, soaking, moving, inZone(ok("w3", "edge", false), "b")); len(d.Blockers) != 0 {
			t.Errorf("%+v", d.Blockers)
		}
		if d := with(zones, nothing, soaking, inZone(ok("w3", "edge", false), "b")); !slices.Equal(reasonsOf(d), []string{reasonSoaking}) || len(d.Actions) != 0 {
			t.Errorf("%+v", d.Blockers)
		}
	})
}

// The message says why a node does not start, with the names of the objects and a fix.
func TestWhyANodeDoesNotStart(t *testing.T) {
	t.Parallel()
	c := newCluster(pool(nil), ok("c1", "edge", true), notReady(ok("c2", "edge", true)), notReady(ok("c3", "edge", true)))
	d := Next(c.facts())
	if len(d.Blockers) != 1 || d.Blockers[0].Message != "control-plane node c1 does not start while c2 is not Ready, c3 is not Ready" || d.Blockers[0].Fix == "" {
		t.Errorf("%+v", d.Blockers)
	}
	d = Next(newCluster(pool(nil), notReady(ok("w1", "edge", false))).facts())
	if len(d.Blockers) != 1 || !strings.Contains(d.Blockers[0].Fix, "`refit hold w1`") || !d.Blockers[0].Waiting {
		t.Errorf("%+v", d.Blockers)
	}
}

// Words about several nodes, and which stages move.
func TestWords(t *testing.T) {
	t.Parallel()
	five := []string{"a", "b", "c", "d", "e"}
	if got := firstFive(five); got != "a, b, c, d, e" {
		t.Error(got)
	}
	if got := firstFive(append(five, "f", "g")); got != "a, b, c, d, e and 2 more" {
		t.Error(got)
	}
	for stage, moves := range map[string]bool{StageWaiting: true, StageDraining: true, StageUpdating: true, StageRetrying: true, StageUndoing: false, StageSettling: true, StageFinishing: true, StageDone: false, StageUndone: false, StageFailed: false, StageGone: false} {
		if Moves(stage) != moves {
			t.Errorf("%s moves: %t", stage, !moves)
		}
	}
	l := &line{watched: map[string]time.Time{"a": start.Add(2 * time.Hour), "b": start.Add(time.Hour), "c": start.Add(3 * time.Hour)}}
	if got := l.firstFree(); got != "b was updated and is watched until 2026-11-20 12:00:00Z" {
		t.Error(got)
	}
	if got := l.lastFree(); got != "c was updated and is watched until 2026-11-20 14:00:00Z" {
		t.Error(got)
	}
	l.watched["a"] = time.Time{}
	if got := l.firstFree(); got != "b was updated and is watched until 2026-11-20 12:00:00Z" {
		t.Error(got)
	}
	if got := l.lastFree(); got != "a was updated and is not Ready" {
		t.Error(got)
	}
	l.watched = map[string]time.Time{"x": {}, "y": {}}
	if got := l.firstFree(); got != "x, y was updated and is not Ready" {
		t.Error(got)
	}
	v := updatingBlocker(&Input{}, model.NodePlan{}, Node{Name: "w1", AgentHeartbeatLost: true, Run: &Run{}})
	if v.Reason != reasonAgentHeartbeatLost || !strings.HasPrefix(v.Message, "the agent of node w1 has not been heard") || !strings.Contains(v.Fix, "systemctl status refit-agent") {
		t.Errorf("%+v", v)
	}
	for n, want := range map[*Node]string{{Name: "w1"}: "; it is not Ready yet", {Name: "w1", Ready: true, NotYet: "x"}: "; x", {Name: "w1", Ready: true, External: &ExternalWait{Message: "y"}, NotYet: "x"}: "; y", {Name: "w1", Ready: true}: "node w1 has run its steps"} {
		if v := settlingBlocker(*n); !strings.HasSuffix(v.Message, want) {
			t.Errorf("%+v", v)
		}
	}
}
