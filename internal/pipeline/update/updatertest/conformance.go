package updatertest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/pipeline/update/updaters"
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
}

// calls is how often an updater may be called before it counts as hanging.
const calls = 2000

// drive calls Update until it ends.
func drive(t *testing.T, f *Fixture, u updaters.Updater) updaters.Result {
	t.Helper()
	for range calls {
		r, err := u.Update(t.Context(), f.Task)
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
	undo(t, fixture)
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

func undo(t *testing.T, fixture func(t *testing.T) *Fixture) {
	t.Run("undo takes it back, or says that it cannot", func(t *testing.T) {
		f := fixture(t)
		if r := drive(t, f, f.Make()); !r.Done {
			t.Fatalf("ended with %+v", r)
		}
		_, err := f.Make().Undo(t.Context(), f.Task)
		switch {
		case !f.Reversible:
			if !errors.Is(err, updaters.ErrNotReversible) {
				t.Fatalf("undo of what cannot be undone: %v", err)
			}
		case err != nil:
			t.Fatal(err)
		case f.Waits:
		default:
			for range calls {
				if f.State() == f.From {
					return
				}
				f.Tick()
			}
			t.Fatalf("after undo the node is at %q", f.State())
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
		seen := map[string]bool{}
		restore := failpoint.OnHit(func(n string) {
			if !seen[n] {
				seen[n] = true
				points = append(points, n)
			}
		})
		defer restore()
		if r := drive(t, f, f.Make()); !r.Done {
			t.Fatalf("ended with %+v", r)
		}
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
		killed := false
		restore := failpoint.OnHit(func(n string) {
			if n == point && !killed {
				killed = true
				panic(cut{})
			}
		})
		defer restore()
		untilCut(func() { drive(t, f, f.Make()) })
		if !killed {
			t.Fatal("the point was not passed")
		}
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
