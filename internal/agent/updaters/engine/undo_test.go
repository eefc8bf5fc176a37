package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/failpoint"
)

// undoPermission is the permission to undo, as the attempt that comes next.
func undoPermission(attempt int32) *v1alpha1.NodeRun {
	r := permit(attempt)
	r.Undo = true
	return r
}

// crashes lets processes on a node die at drawn points, then one live.
func crashes(t *rapid.T, n *node, r *v1alpha1.NodeRun) {
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
		n.run(r)
	}
	for range rapid.IntRange(0, 5).Draw(t, "crashes") {
		at, passes = rapid.SampledFrom(points).Draw(t, "point"), rapid.IntRange(0, 2).Draw(t, "passes")
		process()
		if torn := rapid.SampledFrom([]string{"", `{"event":"end","step":"settle"`, "\x00\x00"}).Draw(t, "torn"); torn != "" {
			if f, err := os.OpenFile(journalPath(filepath.Join(n.dir, "journal"), uint64(r.Attempt), r), os.O_APPEND|os.O_WRONLY, 0); err == nil {
				_, _ = f.WriteString(torn)
				_ = f.Close()
			}
		}
	}
	at = ""
	process()
}

// A run that failed at any step, killed anywhere, is undone, killed anywhere: every
// started step, last first, and no other. Then it can run again to its end.
func TestAnyCrashOfAnUndoEndsInTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "undo")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		n := newNode(dir)
		fails := rapid.IntRange(0, 3).Draw(t, "fails")
		if fails < 3 {
			n.parts[fails].fail = true
		}
		final := rapid.IntRange(-1, 2).Draw(t, "final") // cannot be undone
		for i, p := range n.parts {
			p.final = i == final
		}
		attempts := int32(rapid.IntRange(1, 3).Draw(t, "attempts"))
		for a := range attempts {
			crashes(t, n, permit(a+1))
		}
		n.order = nil
		crashes(t, n, undoPermission(attempts+1))
		started := min(fails+1, 3)
		wantState, first := v1alpha1.RunUndone, 0
		if final >= 0 && final < started {
			wantState, first = v1alpha1.RunFailed, final+1
		}
		if n.last.State != wantState || n.last.Attempt != attempts+1 {
			t.Fatalf("ended with %+v", n.last)
		}
		if wantState == v1alpha1.RunFailed && (n.last.Step != n.parts[final].name || n.last.Reason != v1alpha1.ReasonNotReversible) {
			t.Fatalf("the step that cannot be undone is not named: %+v", n.last)
		}
		var want []string
		for i := started - 1; i >= first; i-- {
			{
				want = append(want, "undo "+n.parts[i].name)
			}
			if n.parts[i].at != 0 {
				t.Fatalf("%s is at %d", n.parts[i].name, n.parts[i].at)
			}
		}
		if got := slices.Compact(n.order); !slices.Equal(got, want) {
			t.Fatalf("undone in the order %v, want %v", got, want)
		}
		for i := range first {
			if i != fails && n.parts[i].at != 3 {
				t.Fatalf("%s stands before what stays, and is at %d", n.parts[i].name, n.parts[i].at)
			}
		}
		for _, p := range n.parts {
			p.fail = false
		}
		crashes(t, n, permit(attempts+2))
		if n.last.State != v1alpha1.RunSucceeded {
			t.Fatalf("the attempt after the undo ended with %+v", n.last)
		}
	})
}

func TestUndo(t *testing.T) {
	t.Run("nothing was started: nothing is undone", func(t *testing.T) {
		n := newNode(t.TempDir())
		n.run(undoPermission(1))
		if n.last.State != v1alpha1.RunUndone || n.last.Reason != v1alpha1.ReasonUndone || !strings.Contains(n.last.Message, "nothing to undo") || len(n.order) > 0 {
			t.Fatalf("%+v %v", n.last, n.order)
		}
	})
	t.Run("what a second undo finds was undone by the first", func(t *testing.T) {
		n := newNode(t.TempDir())
		n.run(permit(1))
		n.run(undoPermission(2))
		n.order = nil
		n.run(undoPermission(3))
		if n.last.State != v1alpha1.RunUndone || len(n.order) > 0 {
			t.Fatalf("%+v %v", n.last, n.order)
		}
	})
	t.Run("an undo that did not come through goes on where it failed", func(t *testing.T) {
		n := newNode(t.TempDir())
		n.run(permit(1))
		n.parts[0].undoFails = true
		n.run(undoPermission(2))
		if n.last.State != v1alpha1.RunFailed || n.last.Step != "kubeadm" || n.last.StepsDone != 2 {
			t.Fatalf("%+v", n.last)
		}
		n.parts[0].undoFails, n.order = false, nil
		n.run(undoPermission(3))
		if n.last.State != v1alpha1.RunUndone || fmt.Sprint(slices.Compact(n.order)) != "[undo kubeadm]" {
			t.Fatalf("%+v %v", n.last, n.order)
		}
	})
	t.Run("a false report that it was undone is a failure", func(t *testing.T) {
		n := newNode(t.TempDir())
		n.run(permit(1))
		n.parts[1].undoFalse = true
		n.run(undoPermission(2))
		if n.last.State != v1alpha1.RunFailed || !strings.Contains(n.last.Message, "kubelet was undone and is still observed done") {
			t.Fatalf("%+v", n.last)
		}
	})
	t.Run("a run in progress is stopped for an undo", func(t *testing.T) {
		n := newNode(t.TempDir())
		calls := 0
		n.engine().Run(t.Context(), func() *v1alpha1.NodeRun {
			if calls++; calls > 3 {
				return undoPermission(2)
			}
			return permit(1)
		}, func(s *v1alpha1.NodeRunStatus) { n.last = s })
		if n.last.State != v1alpha1.RunFailed || n.last.Reason != v1alpha1.ReasonUndoing || n.last.Step == "" {
			t.Fatalf("%+v", n.last)
		}
		n.run(undoPermission(2))
		if n.last.State != v1alpha1.RunUndone {
			t.Fatalf("%+v", n.last)
		}
	})
	t.Run("another update's steps are left alone", func(t *testing.T) {
		n := newNode(t.TempDir())
		n.run(permit(1))
		r := undoPermission(2)
		r.UID = "other"
		n.run(r)
		if n.last.State != v1alpha1.RunUndone || n.parts[0].at != 3 {
			t.Fatalf("%+v", n.last)
		}
	})
}

// stubborn never ends; hangs says whether it hangs in the call.
type stubborn struct {
	hangs   chan struct{} // nil: it answers
	deaf    bool          // does not listen to its context
	started atomic.Int32
}

func (*stubborn) Name() string                   { return "kubeadm" }
func (*stubborn) LogTail(context.Context) string { return "unknown flag: --old" }
func (s *stubborn) Observe(context.Context, updaters.Task) (updaters.Observation, error) {
	return updaters.Observation{Detail: "not yet"}, nil
}
func (s *stubborn) Update(ctx context.Context, _ updaters.Task) (updaters.Result, error) {
	s.started.Add(1)
	switch {
	case s.deaf:
		<-s.hangs
	case s.hangs != nil:
		select {
		case <-s.hangs:
		case <-ctx.Done():
			return updaters.Result{}, errors.New("the runtime does not answer")
		}
	}
	return updaters.InProgress(v1alpha1.ReasonUpdating, "working"), nil
}
func (*stubborn) Undo(context.Context, updaters.Task) (updaters.Result, error) {
	return updaters.Result{}, updaters.ErrNotReversible
}

// runWith runs one step with a deadline on real, simulated time.
func runWith(ctx context.Context, dir string, u updaters.Updater, seconds int32) (last *v1alpha1.NodeRunStatus) {
	r := permit(1)
	r.Steps = r.Steps[:1]
	r.Steps[0].DeadlineSeconds = seconds
	e := &Engine{Dir: dir, Log: slog.New(slog.DiscardHandler), Updaters: []updaters.Updater{u}}
	e.Run(ctx, func() *v1alpha1.NodeRun { return r }, func(s *v1alpha1.NodeRunStatus) { last = s })
	return last
}

// A step that does not end is ended by its deadline, however it does not end, and
// the status says what it said last.
func TestADeadlineEndsWhatHangs(t *testing.T) {
	for name, c := range map[string]struct {
		hangs, deaf bool
		says        string
	}{
		"it works on and on":                           {false, false, "working"},
		"its call hangs, and ends when it is canceled": {true, false, "the runtime does not answer"},
		"its call hangs and hears nothing":             {true, true, "updater kubeadm hangs"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				u := &stubborn{deaf: c.deaf}
				if c.hangs {
					u.hangs = make(chan struct{})
				}
				began := time.Now()
				last := runWith(t.Context(), dir, u, 3600)
				if last.State != v1alpha1.RunFailed || last.Reason != v1alpha1.ReasonStepDeadline || last.Step != "kubeadm" || !strings.Contains(last.Message, c.says) || !strings.HasSuffix(last.Message, "\nunknown flag: --old") {
					t.Fatalf("%+v", last)
				}
				if took := time.Since(began); took < time.Hour || took > time.Hour+time.Minute {
					t.Fatalf("after %s", took)
				}
				if u.deaf && u.started.Load() != 1 {
					t.Fatalf("called %d times although the first call had not returned", u.started.Load())
				}
				if u.hangs != nil {
					close(u.hangs)
				}
				synctest.Wait()
			})
		})
	}
}

// A hanging call without a deadline is reported until it returns.
func TestACallThatHangsIsSaid(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		u := &stubborn{hangs: make(chan struct{}), deaf: true}
		ctx, end := context.WithCancel(t.Context())
		r := permit(1)
		r.Steps = r.Steps[:1]
		var said []string
		e := &Engine{Dir: dir, Log: slog.New(slog.DiscardHandler), Updaters: []updaters.Updater{u}}
		go e.Run(ctx, func() *v1alpha1.NodeRun { return r }, func(s *v1alpha1.NodeRunStatus) { said = append(said, s.Message) })
		time.Sleep(2 * callTime)
		synctest.Wait()
		if len(said) != 2 || !strings.Contains(said[1], "hangs") || u.started.Load() != 1 {
			t.Fatalf("said %q, called %d times", said, u.started.Load())
		}
		close(u.hangs)
		time.Sleep(time.Minute)
		synctest.Wait()
		if said[len(said)-1] != "working" || u.started.Load() < 2 {
			t.Fatalf("said %q, called %d times", said, u.started.Load())
		}
		end()
		synctest.Wait()
	})
}

// Only the time while the agent runs counts, and no restart makes it forgotten.
func TestADeadlineCountsTheLivesOfTheAgent(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var last *v1alpha1.NodeRunStatus
		lives := 0
		for last == nil || last.State == v1alpha1.RunRunning {
			if lives++; lives > 20 {
				t.Fatal("it never ends")
			}
			ctx, end := context.WithTimeout(t.Context(), 100*time.Second) // a life
			last = runWith(ctx, dir, &stubborn{}, 600)
			end()
			time.Sleep(24 * time.Hour) // without power
		}
		if last.Reason != v1alpha1.ReasonStepDeadline || lives < 6 || lives > 8 {
			t.Fatalf("after %d lives of 100 s with a deadline of 600 s: %+v", lives, last)
		}
	})
}

// An agent that dies at every start comes to an end as well.
func TestADeadlineEndsAnAgentThatAlwaysDies(t *testing.T) {
	dir := t.TempDir()
	n := newNode(dir)
	died := 0
	for n.last == nil || n.last.State == v1alpha1.RunRunning {
		if died++; died > 100 {
			t.Fatal("it never ends")
		}
		func() {
			defer func() { _ = recover() }()
			r := permit(1)
			r.Steps = r.Steps[:1]
			r.Steps[0].DeadlineSeconds = 30
			e := n.engine()
			e.Now = func() time.Time { return n.now }
			e.Updaters = []updaters.Updater{&patient{now: e.Now}}
			e.Run(t.Context(), func() *v1alpha1.NodeRun { return r }, func(s *v1alpha1.NodeRunStatus) { n.last = s })
		}()
	}
	if n.last.Reason != v1alpha1.ReasonStepDeadline {
		t.Fatalf("%+v", n.last)
	}
}
