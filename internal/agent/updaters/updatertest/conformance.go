package updatertest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/model"
)

// Fixture is one simulated node and the step to run on it.
type Fixture struct {
	// Make makes the updater, as a new process does.
	Make func() updaters.Updater
	Task updaters.Task
	// Tick advances the time on the node.
	Tick func()
	// State describes the part of the node that the updater changes. It is From before
	// the step, To after it, and From and To differ.
	State    func() string
	From, To string
	// Break makes the step impossible, permanently; nil if nothing can.
	Break func()
	// Reversible says whether Undo must work.
	Reversible bool
	// Waits: the step changes nothing, so there is nothing to undo.
	Waits bool
	// Planned is the planner's step for Task, from update.Cover or update.Make. A step
	// that cannot be undone requires it: the plan must have said so.
	Planned *model.Step
	// Secrets must never appear in a message of the updater.
	Secrets []string
	// Hang makes the next call of the node hang until the context of that call ends. The
	// channel is closed when the call has started. nil if nothing on the node can hang.
	Hang func() <-chan struct{}

	messages []string // all messages so far
}

// calls is how often an updater is called before it counts as hanging.
const calls = 2000

// record records a message of an updater, and fails the test if it has a secret.
func (f *Fixture) record(t *testing.T, parts ...any) {
	t.Helper()
	said := fmt.Sprint(parts...)
	for _, secret := range f.Secrets {
		if secret != "" && strings.Contains(said, secret) {
			t.Fatal("a secret is in a message") // and must not be in this one
		}
	}
	// Nodes in two directories must have the same messages.
	for _, dir := range []string{filepath.Dir(f.Task.Dir), filepath.Dir(f.Task.Rollback)} {
		if dir != "." && dir != "/" {
			said = strings.ReplaceAll(said, dir, "DIR")
		}
	}
	if n := len(f.messages); n == 0 || f.messages[n-1] != said {
		f.messages = append(f.messages, said)
	}
}

// runUpdate calls Update until its Result is final.
func runUpdate(t *testing.T, f *Fixture, u updaters.Updater) updaters.Result {
	t.Helper()
	return runUntilFinal(t, f, u.Update)
}

// runUndo calls Undo until its Result is final.
func runUndo(t *testing.T, f *Fixture, u updaters.Updater) updaters.Result {
	t.Helper()
	return runUntilFinal(t, f, u.Undo)
}

func runUntilFinal(t *testing.T, f *Fixture, call func(context.Context, updaters.Task) (updaters.Result, error)) updaters.Result {
	t.Helper()
	for range calls {
		r, err := call(t.Context(), f.Task)
		f.record(t, r.Reason, " ", r.Message, " ", err)
		if errors.Is(err, updaters.ErrNotReversible) {
			return updaters.Result{Failed: true, Reason: v1alpha1.ReasonNotReversible, Message: err.Error()}
		}
		if err == nil && (r.Done || r.Failed) {
			return r
		}
		f.Tick()
	}
	t.Fatalf("no final result after %d calls", calls)
	return updaters.Result{}
}

func isObservedDone(t *testing.T, f *Fixture, u updaters.Updater) bool {
	t.Helper()
	for range calls {
		o, err := u.Observe(t.Context(), f.Task)
		f.record(t, o.Detail, " ", err)
		if err == nil && o.Done {
			return true
		}
		if err == nil && o.Detail == "" {
			t.Error("an observation that is not done must say what is missing")
		}
		if f.State() != f.To {
			return false
		}
		f.Tick()
	}
	return false
}

// killPanic stands for a kill at a failpoint.
type killPanic struct{}

// Conform runs the conformance test; fixture makes a new node every time.
func Conform(t *testing.T, fixture func(t *testing.T) *Fixture) {
	checkUntouched(t, fixture)
	for _, p := range checkReachesTarget(t, fixture) {
		checkKilledAt(t, fixture, p)
	}
	checkStateless(t, fixture)
	checkBroken(t, fixture)
	checkSameWords(t, fixture)
	checkHang(t, fixture)
	checkPlanned(t, fixture)
	if f := fixture(t); !f.Reversible {
		checkIrreversible(t, fixture)
	} else if !f.Waits {
		checkUndo(t, fixture)
	}
}

func checkBroken(t *testing.T, fixture func(t *testing.T) *Fixture) {
	t.Run("an impossible step fails with a reason, always the same, and is not reported done", func(t *testing.T) {
		var before updaters.Result
		for i := range 2 {
			f := fixture(t)
			if f.Break == nil {
				t.Skip("nothing can break it")
			}
			f.Break()
			r := runUpdate(t, f, f.Make())
			if !r.Failed || r.Reason == "" || r.Message == "" {
				t.Fatalf("ended with %+v", r)
			}
			if o, err := f.Make().Observe(t.Context(), f.Task); err == nil && o.Done {
				t.Fatal("observed done")
			}
			if i > 0 && r.Reason != before.Reason {
				t.Fatalf("reason %q, then %q", before.Reason, r.Reason)
			}
			before = r
		}
	})
}

func checkUntouched(t *testing.T, fixture func(t *testing.T) *Fixture) {
	t.Run("an untouched node is not reported done", func(t *testing.T) {
		f := fixture(t)
		if f.State() != f.From {
			t.Fatalf("the fixture starts at %q", f.State())
		}
		if isObservedDone(t, f, f.Make()) {
			t.Fatal("done")
		}
	})
}

// checkReachesTarget returns the failpoints that were passed on the way.
func checkReachesTarget(t *testing.T, fixture func(t *testing.T) *Fixture) (points []string) {
	t.Run("it reaches the target, is observed there, and stays when called again", func(t *testing.T) {
		f := fixture(t)
		points = failpointsPassed(func() {
			if r := runUpdate(t, f, f.Make()); !r.Done {
				t.Fatalf("ended with %+v", r)
			}
		})
		if f.State() != f.To || !isObservedDone(t, f, f.Make()) {
			t.Fatalf("reported done at %q", f.State())
		}
		if r := runUpdate(t, f, f.Make()); !r.Done || f.State() != f.To {
			t.Fatalf("the second time it ended with %+v at %q", r, f.State())
		}
	})
	return points
}

func checkKilledAt(t *testing.T, fixture func(t *testing.T) *Fixture, point string) {
	t.Run(fmt.Sprintf("killed at %s it continues to the same end", point), func(t *testing.T) {
		f := fixture(t)
		killAt(t, point, func() { runUpdate(t, f, f.Make()) })
		if r := runUpdate(t, f, f.Make()); !r.Done || f.State() != f.To {
			t.Fatalf("ended with %+v at %q", r, f.State())
		}
	})
}

func runUntilKilled(f func()) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(killPanic); !ok {
				panic(r)
			}
		}
	}()
	f()
}

func checkStateless(t *testing.T, fixture func(t *testing.T) *Fixture) {
	t.Run("a new process at every call makes no difference", func(t *testing.T) {
		f := fixture(t)
		for range calls {
			r, err := f.Make().Update(t.Context(), f.Task)
			if err == nil && r.Failed {
				t.Fatalf("failed: %+v", r)
			}
			if f.State() == f.To {
				break
			}
			f.Tick()
		}
		if r := runUpdate(t, f, f.Make()); !r.Done || f.State() != f.To {
			t.Fatalf("ended with %+v at %q", r, f.State())
		}
	})
}
