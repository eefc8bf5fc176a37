package engine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/model"
)

// What counts as well, compared with before the steps.
func TestUnwell(t *testing.T) {
	for name, c := range map[string]struct {
		before, now Health
		says        string
	}{
		"all is as before":                               {Health{Peers: 2}, Health{Peers: 1}, ""},
		"the kubelet does not answer":                    {Health{}, Health{Kubelet: "kubelet's health: refused"}, "kubelet's health"},
		"the node is not Ready":                          {Health{}, Health{NotReady: "the node is not Ready: cni"}, "not Ready: cni"},
		"the API server answered before":                 {Health{Peers: 2}, Health{API: "timeout", Peers: 2}, "does not answer: timeout"},
		"it did not, and peers answer":                   {Health{API: "timeout", Peers: 3}, Health{API: "timeout", Peers: 1}, ""},
		"it did not, and the only peer is silent":        {Health{API: "timeout", Peers: 1}, Health{API: "timeout"}, "no peer answers"},
		"it did not, and no peer ever answered":          {Health{API: "timeout"}, Health{API: "timeout"}, ""},
		"it did not, and the kubelet does not either":    {Health{API: "timeout"}, Health{API: "timeout", Kubelet: "refused"}, "refused"},
		"it is back, and the node is not Ready":          {Health{API: "timeout"}, Health{NotReady: "unknown"}, "unknown"},
		"a unit has failed":                              {Health{Failed: "a.service"}, Health{Failed: "a.service sshd.service"}, "sshd.service has failed"},
		"a unit had failed":                              {Health{Failed: "a.service"}, Health{Failed: "a.service"}, ""},
		"all of several peers are silent":                {Health{Peers: 2}, Health{}, "before the steps 2 peers did"},
		"the only peer is silent, and the node is Ready": {Health{Peers: 1}, Health{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := unwell(c.before, c.now); !strings.Contains(got, c.says) || (got == "") != (c.says == "") {
				t.Fatalf("%q, want %q", got, c.says)
			}
		})
	}
}

// armedRun is permit with a deadline of ten minutes for the step kubelet.
func armedRun(attempt int32) *v1alpha1.NodeRun {
	r := permit(attempt)
	r.Steps[1].Params = map[string]string{model.ParamUndoDeadline: "600"}
	return r
}

// well is a node whose kubelet reports to the API server all the time.
func (n *node) well() Health {
	return Health{Heartbeat: n.now.String(), Peers: 2}
}

// cutOffByKubelet is a node that the step kubelet cuts off, until it is undone.
func (n *node) cutOffByKubelet() Health {
	if n.parts[1].at > 0 {
		return Health{API: "no route to host"}
	}
	return n.well()
}

// events are those of the newest journal of the node, with their steps.
func (n *node) events(t *testing.T) (out []string) {
	t.Helper()
	js, err := readJournals(filepath.Join(n.dir, "journal"))
	if err != nil || len(js) == 0 {
		t.Fatal(err)
	}
	b, err := os.ReadFile(js[len(js)-1].path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		e, err := decode([]byte(strings.TrimSuffix(line, "\n")))
		if err != nil {
			t.Fatal(err)
		}
		if e.Event != eventSpent {
			out = append(out, strings.TrimSpace(e.Event+" "+e.Step))
		}
	}
	return out
}

// A node that stays well finishes as without a deadline. It is armed on disk before the step
// starts, and disarmed before the run has finished.
func TestANodeThatIsWellIsDisarmed(t *testing.T) {
	n := newNode(t.TempDir())
	n.health = n.well
	n.run(armedRun(1))
	if n.last.State != v1alpha1.RunSucceeded {
		t.Fatalf("%+v", n.last)
	}
	want := []string{"run", "start kubeadm", "end kubeadm", "armed kubelet", "start kubelet", "end kubelet", "start settle", "end settle", "disarmed", "finish"}
	if got := n.events(t); !slices.Equal(got, want) {
		t.Fatalf("journal: %v", got)
	}
	if !slices.ContainsFunc(n.reports, func(s v1alpha1.NodeRunStatus) bool {
		return s.Reason == v1alpha1.ReasonUndoArmed && strings.Contains(s.Message, "undo in 10 minutes")
	}) {
		t.Fatalf("nothing says that it is armed: %+v", n.reports)
	}
}

// Of a run without such a step, nothing is armed.
func TestARunThatCannotCutOffIsNotArmed(t *testing.T) {
	n := newNode(t.TempDir())
	n.health = func() Health { return Health{Kubelet: "refused"} }
	n.run(permit(1))
	if n.last.State != v1alpha1.RunSucceeded || slices.Contains(n.events(t), eventDisarmed) {
		t.Fatalf("%+v", n.last)
	}
}

// expectUndone fails unless the deadline undid everything.
func expectUndone(t interface {
	Helper()
	Fatalf(string, ...any)
}, n *node) {
	t.Helper()
	if n.last.State != v1alpha1.RunFailed || n.last.Reason != v1alpha1.ReasonUndoneByDeadline || n.last.Attempt != 1 {
		t.Fatalf("ended with %+v", n.last)
	}
	for _, p := range n.parts {
		if p.at != 0 {
			t.Fatalf("%s is at %d: %+v", p.name, p.at, n.last)
		}
	}
}

// A node that a step cuts off undoes the run by itself, last step first, says why, and does not
// run it again. A person may.
func TestANodeThatIsCutOffUndoesTheRun(t *testing.T) {
	n := newNode(t.TempDir())
	n.health = n.cutOffByKubelet
	n.run(armedRun(1))
	expectUndone(t, n)
	for _, part := range []string{"not well for 10m0s", "no route to host", "every started step was undone"} {
		if !strings.Contains(n.last.Message, part) {
			t.Errorf("message without %q: %s", part, n.last.Message)
		}
	}
	if got := fmt.Sprint(slices.Compact(n.order)); got != "[kubeadm kubelet settle undo settle undo kubelet undo kubeadm]" {
		t.Errorf("order: %s", got)
	}
	if !slices.ContainsFunc(n.reports, func(s v1alpha1.NodeRunStatus) bool {
		return s.State == v1alpha1.RunRunning && s.Reason == v1alpha1.ReasonUndoArmed && strings.Contains(s.Message, "undo in 3 minutes unless the node is well: the API server")
	}) {
		t.Errorf("nothing says what will happen: %+v", n.reports)
	}
	n.order = nil
	n.run(armedRun(1))
	n.run(nil)
	if len(n.order) > 0 || n.last.Reason != v1alpha1.ReasonUndoneByDeadline {
		t.Fatalf("it ran again: %v %+v", n.order, n.last)
	}
	n.run(undoPermission(2))
	if n.last.State != v1alpha1.RunUndone || len(n.order) > 0 {
		t.Fatalf("an undo that the controller orders finds something to do: %v %+v", n.order, n.last)
	}
	n.health = n.well
	if n.run(armedRun(3)); n.last.State != v1alpha1.RunSucceeded {
		t.Fatalf("the attempt of a person ended with %+v", n.last)
	}
}

var deadlinePoints = append([]string{failpoint.UndoArmed, failpoint.UndoDisarmed, failpoint.UndoExpired}, points...)

// Killed at any points any number of times, before and after the deadline expired, the run of a
// node that is cut off ends undone. That of a node that is well ends done.
func TestAnyCrashOfAnArmedRunEndsInTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "deadline")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		n := newNode(dir)
		cutOff := rapid.Bool().Draw(t, "cut off")
		if n.health = n.well; cutOff {
			n.health = n.cutOffByKubelet
		}
		type cut struct{}
		at, passes := "", 0
		defer failpoint.OnHit(func(p string) {
			if p == at {
				if passes--; passes < 0 {
					panic(cut{})
				}
			}
		})()
		process := func() {
			defer func() {
				if r := recover(); r != nil {
					if _, ok := r.(cut); !ok {
						panic(r)
					}
				}
			}()
			n.run(armedRun(1))
		}
		for range rapid.IntRange(0, 6).Draw(t, "crashes") {
			at, passes = rapid.SampledFrom(deadlinePoints).Draw(t, "point"), rapid.IntRange(0, 3).Draw(t, "passes")
			process()
			n.now = n.now.Add(time.Duration(rapid.IntRange(-1e6, 1e6).Draw(t, "clock")) * time.Hour)
		}
		at = ""
		process()
		if cutOff {
			expectUndone(t, n)
		} else if n.last.State != v1alpha1.RunSucceeded {
			t.Fatalf("ended with %+v", n.last)
		}
	})
}

// A clock that jumps while the agent is off neither fires the deadline nor stops it.
func TestAWrongClockNeitherFiresNorStopsTheDeadline(t *testing.T) {
	for name, jump := range map[string]time.Duration{"into the future": 1e5 * time.Hour, "into the past": -1e5 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t.TempDir())
			var away, total time.Duration
			ctx, cancel := context.WithCancel(t.Context())
			var last time.Time
			n.health = func() Health {
				h := n.cutOffByKubelet()
				if h.API != "" && !last.IsZero() {
					away += n.now.Sub(last)
				}
				if last = n.now; away > 5*time.Minute {
					cancel()
				}
				return h
			}
			run := func(ctx context.Context) {
				n.engine().Run(ctx, func() *v1alpha1.NodeRun { return armedRun(1) }, func(s *v1alpha1.NodeRunStatus) { n.last = s })
			}
			run(ctx)
			if n.last.State != v1alpha1.RunRunning {
				t.Fatalf("after half of the time: %+v", n.last)
			}
			total, away, last = away, 0, time.Time{}
			n.now = n.now.Add(jump)
			cancel = func() {}
			run(t.Context())
			expectUndone(t, n)
			if total += away; total < 9*time.Minute || total > 11*time.Minute {
				t.Fatalf("it was cut off for %s of running time", total)
			}
		})
	}
}

// An API server that was unavailable before the steps is no reason to undo. One that becomes
// unavailable with them is, and so are peers that do.
func TestAnUnavailableAPIServer(t *testing.T) {
	for name, c := range map[string]struct {
		before, after Health
		undone        bool
	}{
		"before and after":                    {Health{API: "timeout", Peers: 2}, Health{API: "timeout", Peers: 2}, false},
		"before and after, and peers are too": {Health{API: "timeout", Peers: 2}, Health{API: "timeout"}, true},
		"after the steps":                     {Health{Peers: 2}, Health{API: "timeout", Peers: 2}, true},
		"before the steps":                    {Health{API: "timeout", Peers: 2}, Health{Heartbeat: "moves", Peers: 2}, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t.TempDir())
			n.health = func() Health {
				h := c.before
				if n.parts[1].at > 0 {
					h = c.after
				}
				if h.Heartbeat != "" {
					h.Heartbeat = n.now.String()
				}
				return h
			}
			n.run(armedRun(1))
			if c.undone {
				expectUndone(t, n)
			} else if n.last.State != v1alpha1.RunSucceeded {
				t.Fatalf("%+v", n.last)
			}
		})
	}
}

// An answer that is missing by chance before the steps does not weaken what counts after them.
func TestAnAnswerThatIsMissingByChance(t *testing.T) {
	n := newNode(t.TempDir())
	asked := 0
	n.health = func() Health {
		if asked++; asked == 1 {
			return Health{API: "timeout"}
		}
		return n.cutOffByKubelet()
	}
	n.run(armedRun(1))
	expectUndone(t, n)
}

// A node that the API server reports Ready by an old heartbeat alone is not well.
func TestAReadyNodeThatReportsNothing(t *testing.T) {
	n := newNode(t.TempDir())
	n.health = func() Health { return Health{Heartbeat: "before the steps"} }
	n.run(armedRun(1))
	expectUndone(t, n)
	if !strings.Contains(n.last.Message, "the kubelet has not reported to the API server since the steps") {
		t.Fatal(n.last.Message)
	}
}

// A step that fails leaves the node to its deadline: it is undone if it is not well, and the
// failure is reported if it is.
func TestAStepThatFailsLeavesTheDeadlineArmed(t *testing.T) {
	for _, cutOff := range []bool{true, false} {
		n := newNode(t.TempDir())
		n.parts[2].fail = true
		if n.health = n.well; cutOff {
			n.health = n.cutOffByKubelet
		}
		n.run(armedRun(1))
		if cutOff {
			if expectUndone(t, n); !strings.Contains(n.last.Message, "no route to host; before that, step settle had failed: it is broken; every started step was undone") {
				t.Errorf("message: %s", n.last.Message)
			}
			continue
		}
		if n.last.State != v1alpha1.RunFailed || n.last.Reason != v1alpha1.ReasonStepFailed || n.last.Step != "settle" || n.parts[1].at != 3 {
			t.Fatalf("%+v", n.last)
		}
	}
}

// A step that cannot be undone does not keep an earlier one that can cut the node off.
func TestAStepThatCannotBeUndoneKeepsNoNodeCutOff(t *testing.T) {
	n := newNode(t.TempDir())
	n.health = n.cutOffByKubelet
	n.parts[2].final = true
	n.run(armedRun(1))
	if n.last.Reason != v1alpha1.ReasonUndoneByDeadline || n.parts[0].at != 3 || n.parts[1].at != 0 {
		t.Fatalf("%+v", n.last)
	}
	for _, part := range []string{"step settle was not undone", "step kubeadm stays as well"} {
		if !strings.Contains(n.last.Message, part) {
			t.Errorf("message without %q: %s", part, n.last.Message)
		}
	}
}

// An undo that the controller orders ends the wait.
func TestAnOrderedUndoEndsTheWait(t *testing.T) {
	n := newNode(t.TempDir())
	n.health = n.cutOffByKubelet
	n.engine().Run(t.Context(), func() *v1alpha1.NodeRun {
		if n.last != nil && n.last.Reason == v1alpha1.ReasonUndoArmed {
			return undoPermission(2)
		}
		return armedRun(1)
	}, func(s *v1alpha1.NodeRunStatus) { n.last = s })
	if n.last.Attempt != 1 || n.last.Reason == v1alpha1.ReasonUndoneByDeadline {
		t.Fatalf("%+v", n.last)
	}
	if n.run(undoPermission(2)); n.last.State != v1alpha1.RunUndone || n.parts[1].at != 0 {
		t.Fatalf("%+v", n.last)
	}
}

// restarter is a part that restarts the machine.
type restarter struct {
	part
	tasks []string
}

func (r *restarter) RestartsMachine() bool { return true }
func (r *restarter) OnlyWaits() bool       { return true }
func (r *restarter) Update(_ context.Context, t updaters.Task) (updaters.Result, error) {
	r.tasks = append(r.tasks, t.Step.ID)
	return updaters.Result{Done: true}, nil
}
func (r *restarter) Observe(context.Context, updaters.Task) (updaters.Observation, error) {
	return updaters.Observation{Done: true}, nil
}

// A run that had restarted the machine restarts it again when its files are restored.
func TestAnUndoneRunRestartsTheMachineAgain(t *testing.T) {
	n := newNode(t.TempDir())
	n.health = n.cutOffByKubelet
	r := &restarter{part: part{name: "reboot", order: &n.order}}
	run := armedRun(1)
	run.Steps[2].ID, run.Steps[2].Updater = "reboot", "reboot"
	e := n.engine()
	e.Updaters[2] = r
	e.Run(t.Context(), func() *v1alpha1.NodeRun { return run }, func(s *v1alpha1.NodeRunStatus) { n.last = s })
	if n.last.Reason != v1alpha1.ReasonUndoneByDeadline || n.parts[0].at+n.parts[1].at != 0 {
		t.Fatalf("%+v", n.last)
	}
	if fmt.Sprint(r.tasks) != "[reboot after-undo-reboot]" {
		t.Fatalf("restarts: %v", r.tasks)
	}
}

// reverter is a part that returns the node by itself in its step, and needs long for it.
type reverter struct {
	*part
	calls int
}

func (r *reverter) RevertsItself() bool { return true }
func (r *reverter) Update(context.Context, updaters.Task) (updaters.Result, error) {
	if r.calls++; r.calls < 300 {
		return updaters.InProgress(v1alpha1.ReasonUpdating, "waiting for the node"), nil
	}
	return updaters.Fail(v1alpha1.ReasonOSUnhealthy, "rolled back, and not Ready there either"), nil
}

// The time of a step that returns the node by itself does not count. When it has failed, the
// deadline undoes what else cuts the node off.
func TestAStepThatRevertsItselfKeepsItsTime(t *testing.T) {
	n := newNode(t.TempDir())
	n.health = n.cutOffByKubelet
	e := n.engine()
	r := &reverter{part: n.parts[2]}
	e.Updaters[2] = r
	e.Run(t.Context(), func() *v1alpha1.NodeRun { return armedRun(1) }, func(s *v1alpha1.NodeRunStatus) { n.last = s })
	expectUndone(t, n)
	if r.calls != 300 {
		t.Fatalf("the step was stopped after %d calls", r.calls)
	}
}
