package updatertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/failpoint"
)

// checkPlanned verifies that the updater does what the plan says of the step.
func checkPlanned(t *testing.T, fixture func(t *testing.T) *Fixture) {
	t.Run("the plan says what it does, and whether it can be undone", func(t *testing.T) {
		f := fixture(t)
		p := f.Planned
		switch {
		case p == nil && !f.Reversible && !f.Waits:
			t.Fatal("it cannot be undone and the fixture has no planned step that says so")
		case p == nil:
			t.Skip("the fixture has no planned step")
		case p.Updater != f.Make().Name() || p.Verb != f.Task.Step.Verb:
			t.Errorf("the plan has %s %s, the task %s %s", p.Updater, p.Verb, f.Make().Name(), f.Task.Step.Verb)
		case len(p.Changes) == 0:
			t.Error("the planned step changes nothing")
		}
		if said := p.NotReversible != ""; said == f.Reversible {
			t.Errorf("the plan says %q, reversible is %v", p.NotReversible, f.Reversible)
		}
	})
}

// checkIrreversible verifies that a step that cannot be undone always says so, and that its
// Undo changes nothing.
func checkIrreversible(t *testing.T, fixture func(t *testing.T) *Fixture) {
	t.Run("undo says that it cannot be undone, and changes nothing", func(t *testing.T) {
		f := fixture(t)
		if r := runUpdate(t, f, f.Make()); !r.Done {
			t.Fatalf("ended with %+v", r)
		}
		if _, err := f.Make().Undo(t.Context(), f.Task); !errors.Is(err, updaters.ErrNotReversible) {
			t.Fatalf("undo of what cannot be undone: %v", err)
		}
		for range 10 {
			f.Tick()
		}
		if f.State() != f.To {
			t.Fatalf("after it the node is at %q", f.State())
		}
	})
}

// checkUndo verifies that Undo restores exactly what was there, from any point.
func checkUndo(t *testing.T, fixture func(t *testing.T) *Fixture) {
	points, undoPoints := updateAndUndo(t, fixture)
	t.Run("undo of a step that has not started changes nothing", func(t *testing.T) { undoAndCheck(t, fixture(t)) })
	t.Run("undo of a started step", func(t *testing.T) {
		for n := range 12 {
			f := fixture(t)
			for range n {
				if r, err := f.Make().Update(t.Context(), f.Task); err == nil && r.Done {
					break
				}
				f.Tick()
			}
			undoAndCheck(t, f)
		}
	})
	for _, p := range points {
		t.Run("killed at "+p+", then undone", func(t *testing.T) {
			f := fixture(t)
			killAt(t, p, func() { runUpdate(t, f, f.Make()) })
			undoAndCheck(t, f)
		})
	}
	for _, p := range undoPoints {
		t.Run("undo killed at "+p+" continues to the same end", func(t *testing.T) {
			f := fixture(t)
			updateAndCheck(t, f)
			killAt(t, p, func() { runUndo(t, f, f.Make()) })
			undoAndCheck(t, f)
		})
	}
}

// updateAndCheck drives a step to its target.
func updateAndCheck(t *testing.T, f *Fixture) {
	t.Helper()
	if r := runUpdate(t, f, f.Make()); !r.Done || f.State() != f.To {
		t.Fatalf("ended with %+v at %q", r, f.State())
	}
}

// undoAndCheck undoes a step.
func undoAndCheck(t *testing.T, f *Fixture) {
	t.Helper()
	if r := runUndo(t, f, f.Make()); !r.Done {
		t.Fatalf("ended with %+v", r)
	}
	if f.State() != f.From {
		t.Fatalf("reported undone at %q", f.State())
	}
	if o, err := f.Make().Observe(t.Context(), f.Task); err == nil && o.Done {
		t.Fatal("still observed done")
	}
}

// updateAndUndo returns the failpoints that were passed in both directions.
func updateAndUndo(t *testing.T, fixture func(t *testing.T) *Fixture) (there, undo []string) {
	t.Run("undo restores what was there, and stays when called again", func(t *testing.T) {
		f := fixture(t)
		there = failpointsPassed(func() { updateAndCheck(t, f) })
		undo = failpointsPassed(func() { undoAndCheck(t, f) })
		undoAndCheck(t, f)
		updateAndCheck(t, f)
	})
	return there, undo
}

// failpointsPassed are the failpoints that f passes, each once.
func failpointsPassed(f func()) (points []string) {
	defer failpoint.OnHit(func(n string) {
		if !slices.Contains(points, n) {
			points = append(points, n)
		}
	})()
	f()
	return points
}

// killAt runs f until its first pass of a point.
func killAt(t *testing.T, point string, f func()) {
	t.Helper()
	killed := false
	defer failpoint.OnHit(func(n string) {
		if n == point && !killed {
			killed = true
			panic(killPanic{})
		}
	})()
	runUntilKilled(f)
	if !killed {
		t.Fatal("the point was not passed")
	}
}

// checkSameWords verifies that the same events on two nodes make the same messages.
func checkSameWords(t *testing.T, fixture func(t *testing.T) *Fixture) {
	t.Run("its messages are the same every time", func(t *testing.T) {
		for _, breaks := range []bool{false, true} {
			var before []string
			for i := range 2 {
				f := fixture(t)
				if breaks && f.Break == nil {
					continue
				} else if breaks {
					f.Break()
				}
				isObservedDone(t, f, f.Make())
				runUpdate(t, f, f.Make())
				if i > 0 && !slices.Equal(before, f.messages) {
					t.Fatalf("first:\n%s\nthen:\n%s", strings.Join(before, "\n"), strings.Join(f.messages, "\n"))
				}
				before = f.messages
			}
		}
	})
}

// checkHang verifies that a hanging call ends with its context and is not reported done, and
// that the step can still be done afterwards.
func checkHang(t *testing.T, fixture func(t *testing.T) *Fixture) {
	t.Run("a call that hangs ends with its time", func(t *testing.T) {
		f := fixture(t)
		if f.Hang == nil {
			t.Skip("nothing can hang")
		}
		hanging := f.Hang()
		u := f.Make()
		for range calls {
			ctx, end := context.WithCancel(t.Context())
			back := make(chan error, 1)
			go func() {
				r, err := u.Update(ctx, f.Task)
				if err == nil && r.Done {
					err = fmt.Errorf("reported done: %+v", r)
				}
				back <- err
			}()
			select {
			case err := <-back: // it did not reach the hanging call
				end()
				f.record(t, err)
				f.Tick()
				continue
			case <-hanging:
			}
			end()
			if err := <-back; err != nil && strings.HasPrefix(err.Error(), "reported done") {
				t.Fatal(err)
			}
			if r := runUpdate(t, f, f.Make()); !r.Done || f.State() != f.To {
				t.Fatalf("afterwards it ended with %+v at %q", r, f.State())
			}
			return
		}
		t.Fatal("nothing hung")
	})
}
