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

// Fixture is one simulated node and the step to be done on it.
type Fixture struct {
	// Make makes the updater, as a process that was just started does.
	Make func() updaters.Updater
	Task updaters.Task
	// Tick lets time pass on the node.
	Tick func()
	// State describes the part of the node that the updater changes. It must
	// differ before and after, and be From and To in the end states.
	State    func() string
	From, To string
	// Break makes the step impossible, for good. nil if nothing can.
	Break func()
	// Reversible says whether Undo must work.
	Reversible bool
	// Waits: the step changes nothing, so there is nothing to take back.
	Waits bool
	// Planned is the planner's step for Task, from update.Cover or update.Make. It
	// is required of what cannot be taken back: the plan must have said so.
	Planned *model.Step
	// Secrets must never appear in what the updater says.
	Secrets []string
	// Hang makes the next call of the node never answer, until the context that
	// it was given ends. The channel is closed when that call has begun. nil if
	// nothing on the node can hang.
	Hang func() <-chan struct{}

	words []string // everything that was said
}

// calls is how often an updater may be called before it counts as hanging.
const calls = 2000

// say notes what an updater said, and that no secret is in it.
func (f *Fixture) say(t *testing.T, parts ...any) {
	t.Helper()
	said := fmt.Sprint(parts...)
	for _, secret := range f.Secrets {
		if secret != "" && strings.Contains(said, secret) {
			t.Fatal("a secret is in what it says") // and not in what we say
		}
	}
	// Two nodes in two directories say the same.
	for _, dir := range []string{filepath.Dir(f.Task.Dir), filepath.Dir(f.Task.Rollback)} {
		if dir != "." && dir != "/" {
			said = strings.ReplaceAll(said, dir, "DIR")
		}
	}
	if n := len(f.words); n == 0 || f.words[n-1] != said {
		f.words = append(f.words, said)
	}
}

// drive calls Update until it ends.
func drive(t *testing.T, f *Fixture, u updaters.Updater) updaters.Result {
	t.Helper()
	return until(t, f, u.Update)
}

// back calls Undo until it ends.
func back(t *testing.T, f *Fixture, u updaters.Updater) updaters.Result {
	t.Helper()
	return until(t, f, u.Undo)
}

func until(t *testing.T, f *Fixture, call func(context.Context, updaters.Task) (updaters.Result, error)) updaters.Result {
	t.Helper()
	for range calls {
		r, err := call(t.Context(), f.Task)
		f.say(t, r.Reason, " ", r.Message, " ", err)
		if errors.Is(err, updaters.ErrNotReversible) {
			return updaters.Result{Failed: true, Reason: v1alpha1.ReasonNotReversible, Message: err.Error()}
		}
		if err == nil && (r.Done || r.Failed) {
			return r
		}
		f.Tick()
	}
	t.Fatalf("no end after %d calls", calls)
	return updaters.Result{}
}

func observed(t *testing.T, f *Fixture, u updaters.Updater) bool {
	t.Helper()
	for range calls {
		o, err := u.Observe(t.Context(), f.Task)
		f.say(t, o.Detail, " ", err)
		if err == nil && o.Done {
			return true
		}
		if err == nil && o.Detail == "" {
			t.Error("an observation that is not done must say what is not so")
		}
		if f.State() != f.To {
			return false
		}
		f.Tick()
	}
	return false
}

// cut is the panic that stands for a kill at a failpoint.
type cut struct{}

// Conform runs the conformance test; fixture makes a new node every time.
func Conform(t *testing.T, fixture func(t *testing.T) *Fixture) {
	untouched(t, fixture)
	for _, p := range reaches(t, fixture) {
		survives(t, fixture, p)
	}
	forgets(t, fixture)
	broken(t, fixture)
	sameWords(t, fixture)
	hangs(t, fixture)
	planned(t, fixture)
	if f := fixture(t); !f.Reversible {
		final(t, fixture)
	} else if !f.Waits {
		undone(t, fixture)
	}
}

func broken(t *testing.T, fixture func(t *testing.T) *Fixture) {
	t.Run("what cannot be done fails with a reason, always the same, and is not called done", func(t *testing.T) {
		var before updaters.Result
		for i := range 2 {
			f := fixture(t)
			if f.Break == nil {
				t.Skip("nothing can break it")
			}
			f.Break()
			r := drive(t, f, f.Make())
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

func untouched(t *testing.T, fixture func(t *testing.T) *Fixture) {
	t.Run("an untouched node is not called done", func(t *testing.T) {
		f := fixture(t)
		if f.State() != f.From {
			t.Fatalf("the fixture begins at %q", f.State())
		}
		if observed(t, f, f.Make()) {
			t.Fatal("done")
		}
	})
}

// reaches returns the failpoints that were passed on the way.
func reaches(t *testing.T, fixture func(t *testing.T) *Fixture) (points []string) {
	t.Run("it ends at the target, is observed there, and stays when called again", func(t *testing.T) {
		f := fixture(t)
		points = passes(func() {
			if r := drive(t, f, f.Make()); !r.Done {
				t.Fatalf("ended with %+v", r)
			}
		})
		if f.State() != f.To || !observed(t, f, f.Make()) {
			t.Fatalf("called done at %q", f.State())
		}
		if r := drive(t, f, f.Make()); !r.Done || f.State() != f.To {
			t.Fatalf("the second time it ended with %+v at %q", r, f.State())
		}
	})
	return points
}

func survives(t *testing.T, fixture func(t *testing.T) *Fixture, point string) {
	t.Run(fmt.Sprintf("killed at %s it goes on to the same end", point), func(t *testing.T) {
		f := fixture(t)
		killedAt(t, point, func() { drive(t, f, f.Make()) })
		if r := drive(t, f, f.Make()); !r.Done || f.State() != f.To {
			t.Fatalf("ended with %+v at %q", r, f.State())
		}
	})
}

func untilCut(f func()) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(cut); !ok {
				panic(r)
			}
		}
	}()
	f()
}

func forgets(t *testing.T, fixture func(t *testing.T) *Fixture) {
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
		if r := drive(t, f, f.Make()); !r.Done || f.State() != f.To {
			t.Fatalf("ended with %+v at %q", r, f.State())
		}
	})
}
