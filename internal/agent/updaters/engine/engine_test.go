package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/failpoint"
)

// part is a thing of the node that an updater brings from 0 to 3, one a call.
type part struct {
	name  string
	at    int
	fail  bool
	order *[]string
	calls int
	// final cannot be undone; undoFails: its undo fails; undoFalse: its undo reports a false success.
	final, undoFails, undoFalse bool
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
	return updaters.InProgress(v1alpha1.ReasonUpdating, "at %d", p.at), nil
}
func (p *part) Undo(context.Context, updaters.Task) (updaters.Result, error) {
	switch {
	case p.final:
		return updaters.Result{}, updaters.ErrNotReversible
	case p.undoFails:
		return updaters.Fail(v1alpha1.ReasonStepFailed, "it cannot be restored"), nil
	case p.undoFalse:
		return updaters.Result{Done: true}, nil
	}
	*p.order = append(*p.order, "undo "+p.name)
	if p.at > 0 {
		p.at--
	}
	if p.at > 0 {
		return updaters.InProgress(v1alpha1.ReasonUndoing, "at %d", p.at), nil
	}
	return updaters.Result{Done: true}, nil
}

type node struct {
	dir   string
	parts []*part
	order []string
	last  *v1alpha1.NodeRunStatus
	now   time.Time
	// health is what the node sees of itself; nil: no step has a deadline for it.
	health func() Health
	// reports are all that were made, in order.
	reports []v1alpha1.NodeRunStatus
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
	if n.health != nil {
		e.Health = func(context.Context) Health { return n.health() }
	}
	return e
}

func (n *node) run(r *v1alpha1.NodeRun) {
	n.engine().Run(context.Background(), func() *v1alpha1.NodeRun { return r }, func(s *v1alpha1.NodeRunStatus) { n.last, n.reports = s, append(n.reports, *s) })
}

func permit(attempt int32) *v1alpha1.NodeRun {
	r := &v1alpha1.NodeRun{Name: "up", UID: "uid", Bundle: "sha256:b", PlanDigest: "sha256:p", Attempt: attempt}
	for _, u := range []string{"kubeadm", "kubelet", "settle"} {
		r.Steps = append(r.Steps, v1alpha1.UpdateStep{ID: u, Updater: u, Verb: "x", To: "v2", DeadlineSeconds: 3600})
	}
	return r
}

var points = []string{failpoint.JournalRun, failpoint.StepBefore, failpoint.StepAfter, failpoint.JournalStep, failpoint.JournalFinish}

// Killed at any points any number of times, with the journal's
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
				if f, err := os.OpenFile(journalPath(filepath.Join(dir, "journal"), 1, permit(1)), os.O_APPEND|os.O_WRONLY, 0); err == nil {
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
	t.Run("the plan is changed half way: nothing more starts", func(t *testing.T) {
		n := newNode(t.TempDir())
		asked := 0
		n.engine().Run(t.Context(), func() *v1alpha1.NodeRun {
			r := permit(1)
			if asked++; asked > 2 { // started, first step
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

// What the API server sends never becomes a path outside the agent's own directories,
// nor a unit of others.
// A new state directory adopts a run of another one: that run is reported and does not start
// again; the next attempt does.
func TestARunOfAnotherStoreDoesNotStartAgain(t *testing.T) {
	n := newNode(t.TempDir())
	done := v1alpha1.NodeRunStatus{UID: "uid", PlanDigest: "sha256:p", Attempt: 2, State: v1alpha1.RunSucceeded, Message: "every step was observed done"}
	for range 2 { // once is as often
		if err := n.engine().Adopt(*permit(2), done); err != nil {
			t.Fatal(err)
		}
	}
	if n.engine().Busy() {
		t.Fatal("it counts as started")
	}
	n.run(permit(2))
	if len(n.order) != 0 || n.last == nil || n.last.State != v1alpha1.RunSucceeded || n.last.Attempt != 2 || n.last.Message != done.Message {
		t.Fatalf("%v, %+v", n.order, n.last)
	}
	if err := n.engine().Adopt(v1alpha1.NodeRun{UID: "../x", Attempt: 1}, done); err != nil {
		t.Fatal(err)
	}
	n.run(permit(3))
	if len(n.order) != 3 || n.last.State != v1alpha1.RunSucceeded || n.last.Attempt != 3 {
		t.Fatalf("%v, %+v", n.order, n.last)
	}
	if err := n.engine().Adopt(*permit(4), done); err != nil { // this store knows the update itself
		t.Fatal(err)
	}
	if n.run(permit(4)); n.last.Attempt != 4 || n.last.StepsDone != 3 {
		t.Fatalf("%+v", n.last)
	}
}

func TestARunWithBadNamesIsRefused(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.NodeRun){
		"UID that climbs":        func(r *v1alpha1.NodeRun) { r.UID = "../../outside" },
		"UID that is a folder":   func(r *v1alpha1.NodeRun) { r.UID = ".." },
		"no UID":                 func(r *v1alpha1.NodeRun) { r.UID = "" },
		"step ID that climbs":    func(r *v1alpha1.NodeRun) { r.Steps[1].ID = "../../../x" },
		"two steps of one ID":    func(r *v1alpha1.NodeRun) { r.Steps[1].ID = r.Steps[0].ID },
		"a step without an ID":   func(r *v1alpha1.NodeRun) { r.Steps[2].ID = "" },
		"no attempt is counted":  func(r *v1alpha1.NodeRun) { r.Attempt = 0 },
		"a UID of many thousand": func(r *v1alpha1.NodeRun) { r.UID = strings.Repeat("a", 5000) },
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			n := newNode(filepath.Join(parent, "a", "b"))
			r := permit(1)
			change(r)
			n.run(r)
			if n.last == nil || n.last.State != v1alpha1.RunFailed || n.last.Message == "" || n.last.UID != r.UID {
				t.Errorf("reported: %+v", n.last)
			}
			if n.parts[0].calls+n.parts[1].calls+n.parts[2].calls > 0 {
				t.Error("a step ran")
			}
			var files []string
			_ = filepath.WalkDir(parent, func(p string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					files = append(files, p)
				}
				return nil
			})
			if len(files) > 0 {
				t.Errorf("written: %v", files)
			}
		})
	}
}

// A line that was written by half (a full disk) and then again as a whole is
// read as the whole one: else a run that is over would run again.
func TestAHalfLineIsWrittenOver(t *testing.T) {
	dir := t.TempDir()
	j, err := createJournal(dir, 1, *permit(1), time.Unix(1000, 0))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(j.path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"event":"finish","st`); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if err := j.appendEntry(entry{Event: eventFinish, State: v1alpha1.RunSucceeded}); err != nil {
		t.Fatal(err)
	}
	js, err := readJournals(dir)
	if err != nil || len(js) != 1 || js[0].finish == nil {
		t.Fatalf("%v: the end of the run is lost", err)
	}
}

// patient fails when its step took more than a minute by the task's clock.
type patient struct {
	now   func() time.Time
	calls int
}

func (*patient) Name() string { return "kubeadm" }
func (p *patient) Observe(context.Context, updaters.Task) (updaters.Observation, error) {
	return updaters.Observation{Done: p.calls > 1}, nil
}
func (p *patient) Update(_ context.Context, t updaters.Task) (updaters.Result, error) {
	p.calls++
	switch {
	case p.calls > 1 && p.now().Sub(t.Started) > time.Minute:
		return updaters.Fail(v1alpha1.ReasonStepFailed, "too slow"), nil
	case p.calls > 1:
		return updaters.Result{Done: true}, nil
	}
	panic("killed")
}
func (*patient) Undo(context.Context, updaters.Task) (updaters.Result, error) {
	return updaters.Result{}, updaters.ErrNotReversible
}

// Promise 6: the time that a site was without power does not count as time that
// the step took.
func TestTimeWithoutPowerIsNotTimeOfTheStep(t *testing.T) {
	n := newNode(t.TempDir())
	n.parts = nil
	p := &patient{now: func() time.Time { return n.now }}
	r := permit(1)
	r.Steps = r.Steps[:1]
	process := func() {
		defer func() { _ = recover() }()
		e := n.engine()
		e.Updaters = []updaters.Updater{p}
		e.Run(t.Context(), func() *v1alpha1.NodeRun { return r }, func(s *v1alpha1.NodeRunStatus) { n.last = s })
	}
	process()
	n.now = n.now.Add(24 * time.Hour)
	process()
	if n.last == nil || n.last.State != v1alpha1.RunSucceeded {
		t.Fatalf("%+v", n.last)
	}
}

// Replaced binaries are some 200 MB for every update: those of the last two are
// kept.
func TestOldBinariesAreNotKeptForEver(t *testing.T) {
	n := newNode(t.TempDir())
	for i := range 6 {
		r := permit(1)
		r.UID = fmt.Sprint("uid", i)
		if err := os.MkdirAll(filepath.Join(n.dir, "rollback", r.UID), 0o700); err != nil {
			t.Fatal(err)
		}
		n.run(r)
	}
	es, err := os.ReadDir(filepath.Join(n.dir, "rollback"))
	if err != nil || len(es) != 2 || es[0].Name() != "uid4" || es[1].Name() != "uid5" {
		t.Fatalf("%v %v", es, err)
	}
}
