package run

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/pipeline/update/updaters"
)

// part is a thing of the node that an updater brings from 0 to 3, one a call.
type part struct {
	name  string
	at    int
	fail  bool
	order *[]string
	calls int
}

func (p *part) Name() string { return p.name }
func (p *part) Observe(context.Context, updaters.Task) (updaters.Observation, error) {
	return updaters.Observation{Done: p.at >= 3, Detail: fmt.Sprint("at ", p.at)}, nil
}
func (p *part) Update(_ context.Context, t updaters.Task) (updaters.Result, error) {
	p.calls++
	if p.fail {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "it is broken"), nil
	}
	if p.at >= 3 {
		return updaters.Result{Done: true}, nil
	}
	if p.at++; p.at == 1 {
		*p.order = append(*p.order, p.name)
	}
	return updaters.Going(v1alpha1.ReasonUpdating, "at %d", p.at), nil
}
func (p *part) Undo(context.Context, updaters.Task) (updaters.Result, error) {
	p.at = 0
	return updaters.Result{Done: true}, nil
}

type node struct {
	dir   string
	parts []*part
	order []string
	last  *v1alpha1.NodeRunStatus
	now   time.Time
}

func newNode(dir string) *node {
	n := &node{dir: dir, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	for _, name := range []string{"kubeadm", "kubelet", "settle"} {
		n.parts = append(n.parts, &part{name: name, order: &n.order})
	}
	return n
}

// engine is a new process on the node.
func (n *node) engine() *Engine {
	e := &Engine{Dir: n.dir, Log: slog.New(slog.DiscardHandler), Payload: nil,
		Now: func() time.Time { n.now = n.now.Add(time.Second); return n.now }, Sleep: func(context.Context, time.Duration) {}}
	for _, p := range n.parts {
		e.Updaters = append(e.Updaters, p)
	}
	return e
}

func (n *node) run(r *v1alpha1.NodeRun) {
	n.engine().Run(context.Background(), func() *v1alpha1.NodeRun { return r }, func(s *v1alpha1.NodeRunStatus) { n.last = s })
}

func permit(attempt int32) *v1alpha1.NodeRun {
	r := &v1alpha1.NodeRun{Name: "up", UID: "uid", Bundle: "sha256:b", PlanDigest: "sha256:p", Attempt: attempt}
	for _, u := range []string{"kubeadm", "kubelet", "settle"} {
		r.Steps = append(r.Steps, v1alpha1.UpdateStep{ID: u, Updater: u, Verb: "x", To: "v2"})
	}
	return r
}

var points = []string{failpoint.JournalRun, failpoint.StepBefore, failpoint.StepAfter, failpoint.JournalStep, failpoint.JournalFinish}

// Promise 6, R4.29: killed at any points any number of times, with the journal's
// last line torn or not, the run ends in the same, every step in order, and
// never runs twice.
func TestAnyCrashEndsInTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "run")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		n := newNode(dir)
		type cut struct{}
		at, passes := "", 0
		restore := failpoint.OnHit(func(p string) {
			if p == at {
				if passes--; passes < 0 {
					panic(cut{})
				}
			}
		})
		defer restore()
		process := func() {
			defer func() {
				if r := recover(); r != nil {
					if _, ok := r.(cut); !ok {
						panic(r)
					}
				}
			}()
			n.run(permit(1))
		}
		for range rapid.IntRange(0, 6).Draw(t, "crashes") {
			at, passes = rapid.SampledFrom(points).Draw(t, "point"), rapid.IntRange(0, 2).Draw(t, "passes")
			process()
			if torn := rapid.SampledFrom([]string{"", "x", `{"event":"end","step":"settle"`, "\x00\x00\x00"}).Draw(t, "torn"); torn != "" {
				if f, err := os.OpenFile(fileOf(filepath.Join(dir, "journal"), permit(1)), os.O_APPEND|os.O_WRONLY, 0); err == nil {
					_, _ = f.WriteString(torn)
					_ = f.Close()
				}
			}
		}
		at = ""
		process()
		if n.last == nil || n.last.State != v1alpha1.RunSucceeded || n.last.StepsDone != 3 {
			t.Fatalf("the run ended with %+v", n.last)
		}
		if fmt.Sprint(n.order) != "[kubeadm kubelet settle]" {
			t.Fatalf("steps ran in the order %v", n.order)
		}
		calls := n.parts[0].calls
		process()
		if n.parts[0].calls != calls {
			t.Fatal("a run that is over ran again")
		}
	})
}

func TestEngine(t *testing.T) {
	t.Run("nothing is permitted: nothing runs", func(t *testing.T) {
		n := newNode(t.TempDir())
		n.run(nil)
		if n.last != nil || n.parts[0].calls != 0 || n.engine().Busy() {
			t.Fatalf("%+v", n.last)
		}
	})
	t.Run("a failed step stops the run with its reason; nothing after it runs; a new attempt does", func(t *testing.T) {
		n := newNode(t.TempDir())
		n.parts[1].fail = true
		n.run(permit(1))
		if n.last.State != v1alpha1.RunFailed || n.last.Step != "kubelet" || n.last.Reason != v1alpha1.ReasonStepFailed || n.last.Message != "it is broken" || n.last.StepsDone != 1 {
			t.Fatalf("%+v", n.last)
		}
		n.run(permit(1))
		if n.parts[1].calls != 1 || n.parts[2].calls != 0 {
			t.Fatal("it went on after the failure")
		}
		n.parts[1].fail = false
		n.run(permit(2))
		if n.last.State != v1alpha1.RunSucceeded || n.last.Attempt != 2 {
			t.Fatalf("%+v", n.last)
		}
		n.run(permit(1))
		if n.last.Attempt != 2 {
			t.Fatalf("an older attempt was taken up again: %+v", n.last)
		}
	})
	t.Run("R4.24: the plan is changed half way: nothing more starts", func(t *testing.T) {
		n := newNode(t.TempDir())
		asked := 0
		n.engine().Run(t.Context(), func() *v1alpha1.NodeRun {
			r := permit(1)
			if asked++; asked > 2 { // begun, first step
				r.PlanDigest = "sha256:other"
			}
			return r
		}, func(s *v1alpha1.NodeRunStatus) { n.last = s })
		if n.last.State != v1alpha1.RunFailed || n.last.Reason != v1alpha1.ReasonPlanChanged || n.parts[2].calls != 0 {
			t.Fatalf("%+v, settle was called %d times", n.last, n.parts[2].calls)
		}
	})
	t.Run("the permission goes away half way: the node is not left half way", func(t *testing.T) {
		n := newNode(t.TempDir())
		asked := 0
		n.engine().Run(t.Context(), func() *v1alpha1.NodeRun {
			if asked++; asked > 1 {
				return nil
			}
			return permit(1)
		}, func(s *v1alpha1.NodeRunStatus) { n.last = s })
		if n.last.State != v1alpha1.RunSucceeded {
			t.Fatalf("%+v", n.last)
		}
	})
	t.Run("done at first and not any more at the end is a failure", func(t *testing.T) {
		n := newNode(t.TempDir())
		restore := failpoint.OnHit(func(p string) {
			if n.parts[2].at == 3 {
				n.parts[0].at = 0
			}
		})
		defer restore()
		n.run(permit(1))
		if n.last.State != v1alpha1.RunFailed || n.last.StepsDone != 3 {
			t.Fatalf("%+v", n.last)
		}
	})
	t.Run("a step for an updater that is not there fails", func(t *testing.T) {
		n := newNode(t.TempDir())
		r := permit(1)
		r.Steps[0].Updater = "bootc"
		n.run(r)
		if n.last.State != v1alpha1.RunFailed || n.last.Reason != v1alpha1.ReasonNoUpdater {
			t.Fatalf("%+v", n.last)
		}
	})
	t.Run("old journals are forgotten", func(t *testing.T) {
		n := newNode(t.TempDir())
		for i := range 30 {
			r := permit(1)
			r.UID = fmt.Sprint("uid", i)
			n.run(r)
		}
		js, err := readJournals(filepath.Join(n.dir, "journal"))
		if err != nil || len(js) > keepJournals {
			t.Fatalf("%d journals, %v", len(js), err)
		}
		b, _ := json.Marshal(n.last)
		if n.last.UID != "uid29" {
			t.Fatalf("%s", b)
		}
	})
}
