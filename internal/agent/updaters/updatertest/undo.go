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

// planned: what the plan says of a step is what the updater does.
func planned(t *testing.T, fixture func(t *testing.T) *Fixture) {
	t.Run("the plan says what it does, and whether it can be taken back", func(t *testing.T) {
		f := fixture(t)
		p := f.Planned
		switch {
		case p == nil && !f.Reversible && !f.Waits:
			t.Fatal("it cannot be taken back and the fixture has no planned step that says so")
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

// final: what cannot be taken back says so at any time and touches nothing.
func final(t *testing.T, fixture func(t *testing.T) *Fixture) {
	t.Run("undo says that it cannot be taken back, and touches nothing", func(t *testing.T) {
		f := fixture(t)
		if r := drive(t, f, f.Make()); !r.Done {
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

// undone: Undo brings back exactly what was there, from wherever it is called.
func undone(t *testing.T, fixture func(t *testing.T) *Fixture) {
	points, undoPoints := thereAndBack(t, fixture)
	t.Run("undo of what had not begun changes nothing", func(t *testing.T) { isBack(t, fixture(t)) })
	t.Run("undo of what was begun", func(t *testing.T) {
		for n := range 12 {
			f := fixture(t)
			for range n {
				if r, err := f.Make().Update(t.Context(), f.Task); err == nil && r.Done {
					break
				}
				f.Tick()
			}
			isBack(t, f)
		}
	})
	for _, p := range points {
		t.Run("killed at "+p+", then taken back", func(t *testing.T) {
			f := fixture(t)
			killedAt(t, p, func() { drive(t, f, f.Make()) })
			isBack(t, f)
		})
	}
	for _, p := range undoPoints {
		t.Run("undo killed at "+p+" goes on to the same end", func(t *testing.T) {
			f := fixture(t)
			isDone(t, f)
			killedAt(t, p, func() { back(t, f, f.Make()) })
			isBack(t, f)
		})
	}
}

// isDone drives a step to its target.
func isDone(t *testing.T, f *Fixture) {
	t.Helper()
	if r := drive(t, f, f.Make()); !r.Done || f.State() != f.To {
		t.Fatalf("ended with %+v at %q", r, f.State())
	}
}

// isBack takes a step back.
func isBack(t *testing.T, f *Fixture) {
	t.Helper()
	if r := back(t, f, f.Make()); !r.Done {
		t.Fatalf("ended with %+v", r)
	}
	if f.State() != f.From {
		t.Fatalf("called taken back at %q", f.State())
	}
	if o, err := f.Make().Observe(t.Context(), f.Task); err == nil && o.Done {
		t.Fatal("and still observed done")
	}
}

// thereAndBack returns the failpoints that were passed on both ways.
func thereAndBack(t *testing.T, fixture func(t *testing.T) *Fixture) (there, undo []string) {
	t.Run("undo brings back what was there, and stays when called again", func(t *testing.T) {
		f := fixture(t)
		there = passes(func() { isDone(t, f) })
		undo = passes(func() { isBack(t, f) })
		isBack(t, f)
		isDone(t, f)
	})
	return there, undo
}

// passes are the failpoints that f passes, each once.
func passes(f func()) (points []string) {
	defer failpoint.OnHit(func(n string) {
		if !slices.Contains(points, n) {
			points = append(points, n)
		}
	})()
	f()
	return points
}

// killedAt runs f until its first pass of a point.
func killedAt(t *testing.T, point string, f func()) {
	t.Helper()
	killed := false
	defer failpoint.OnHit(func(n string) {
		if n == point && !killed {
			killed = true
			panic(cut{})
		}
	})()
	untilCut(f)
	if !killed {
		t.Fatal("the point was not passed")
	}
}

// sameWords: two nodes on which the same happens hear the same.
func sameWords(t *testing.T, fixture func(t *testing.T) *Fixture) {
	t.Run("what it says is the same every time", func(t *testing.T) {
		for _, breaks := range []bool{false, true} {
			var before []string
			for i := range 2 {
				f := fixture(t)
				if breaks && f.Break == nil {
					continue
				} else if breaks {
					f.Break()
				}
				observed(t, f, f.Make())
				drive(t, f, f.Make())
				if i > 0 && !slices.Equal(before, f.words) {
					t.Fatalf("first:\n%s\nthen:\n%s", strings.Join(before, "\n"), strings.Join(f.words, "\n"))
				}
				before = f.words
			}
		}
	})
}

// hangs: a call that never answers is left when its time is over, is not called
// done, and the step can still be done afterwards.
func hangs(t *testing.T, fixture func(t *testing.T) *Fixture) {
	t.Run("a call that hangs ends with its time", func(t *testing.T) {
		f := fixture(t)
		if f.Hang == nil {
			t.Skip("nothing can hang")
		}
		begun := f.Hang()
		u := f.Make()
		for range calls {
			ctx, end := context.WithCancel(t.Context())
			back := make(chan error, 1)
			go func() {
				r, err := u.Update(ctx, f.Task)
				if err == nil && r.Done {
					err = fmt.Errorf("called done: %+v", r)
				}
				back <- err
			}()
			select {
			case err := <-back: // it did not come to the call that hangs
				end()
				f.say(t, err)
				f.Tick()
				continue
			case <-begun:
			}
			end()
			if err := <-back; err != nil && strings.HasPrefix(err.Error(), "called done") {
				t.Fatal(err)
			}
			if r := drive(t, f, f.Make()); !r.Done || f.State() != f.To {
				t.Fatalf("afterwards it ended with %+v at %q", r, f.State())
			}
			return
		}
		t.Fatal("nothing hung")
	})
}
