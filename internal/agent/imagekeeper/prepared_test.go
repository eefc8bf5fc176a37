package imagekeeper

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/agent/host/containerd"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// slow is one that has read its configuration only when it was asked some times.
type slow struct {
	*listed
	asked int
}

func (s *slow) Present(ctx context.Context) ([]pin.RuntimeImage, error) {
	all, err := s.listed.Present(ctx)
	if s.asked++; s.asked < 40 {
		for i := range all {
			all[i].Pinned = false
		}
	}
	return all, err
}

// listed is a runtime in memory whose pins are one list in its configuration, and
// that loads only what it was prepared for.
type listed struct {
	*memory
	ready   map[string]bool
	prepare error
	open    int
}

func (*listed) Names(img containerd.Image) []string { return []string{img.Name} }

func (l *listed) Prepare(_ context.Context, names []string, load []containerd.Image, _ containerd.Blobs) (func(context.Context) error, error) {
	l.open++
	end := func(context.Context) error {
		l.open--
		l.ready = nil
		return nil
	}
	if l.prepare != nil {
		return end, l.prepare
	}
	for _, n := range names {
		l.pins[n] = true
	}
	l.ready = map[string]bool{}
	for _, img := range load {
		l.ready[img.Name] = true
	}
	return end, nil
}

func (l *listed) Load(ctx context.Context, img containerd.Image, blobs containerd.Blobs) ([]string, error) {
	if !l.ready[img.Name] {
		return nil, errors.New("not prepared for " + img.Name)
	}
	return l.memory.Load(ctx, img, blobs)
}

func newListed() *listed { return &listed{memory: newMemory()} }

func pass(t *testing.T, k *Keeper, src shelf, names ...string) Result {
	t.Helper()
	r, err := k.Sync(t.Context(), list(names...), src, func(Result) {})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func keeper(t *testing.T, rt Runtime, dir string) *Keeper {
	t.Helper()
	k := NewKeeper(rt, dir, statefile.Ignore)
	return k
}

// The list for loading exists only while images are loaded; the list of pins is restored
// if others remove it.
func TestARuntimeIsPrepared(t *testing.T) {
	t.Run("for a whole pass, and what was for loading goes away", func(t *testing.T) {
		rt := newListed()
		if r := pass(t, keeper(t, rt, t.TempDir()), shelf{"a:1", "b:1"}, "a:1", "b:1", "c:1"); r.Pinned != 2 || r.Waiting != 1 || len(r.Failed) > 0 {
			t.Fatalf("%+v", r)
		}
		if rt.open != 0 || rt.pins["c:1"] {
			t.Fatalf("%d open, pins %v", rt.open, rt.pins)
		}
	})
	t.Run("a preparation that fails loads nothing, is an error and leaves nothing", func(t *testing.T) {
		rt := newListed()
		rt.prepare = errors.New("it does not read its configuration")
		_, err := keeper(t, rt, t.TempDir()).Sync(t.Context(), list("a:1"), shelf{"a:1"}, func(Result) {})
		if !errors.Is(err, rt.prepare) || rt.open != 0 || rt.loads != 0 {
			t.Fatalf("%v, %d open, %d loads", err, rt.open, rt.loads)
		}
	})
	t.Run("a list that others emptied is restored in the next pass, without a load", func(t *testing.T) {
		rt := newListed()
		k := keeper(t, rt, t.TempDir())
		pass(t, k, shelf{"a:1"}, "a:1")
		clear(rt.pins)
		if r := pass(t, k, shelf{"a:1"}, "a:1"); !r.Complete() || rt.loads != 1 {
			t.Fatalf("%+v, %d loads", r, rt.loads)
		}
	})
	t.Run("one that takes seconds to read its configuration does not ignore pins", func(t *testing.T) {
		rt := &slow{listed: newListed()}
		if r := pass(t, keeper(t, rt, t.TempDir()), shelf{"a:1"}, "a:1"); !r.Complete() {
			t.Fatalf("%+v", r)
		}
	})
	t.Run("what left the list is let go", func(t *testing.T) {
		rt := newListed()
		k := keeper(t, rt, t.TempDir())
		pass(t, k, shelf{"a:1", "b:1"}, "a:1", "b:1")
		pass(t, k, shelf{"b:1"}, "b:1")
		if got := slices.Sorted(maps.Keys(rt.pins)); !slices.Equal(got, []string{"b:1"}) {
			t.Fatalf("pins %v", got)
		}
	})
	t.Run("killed after the preparation: no pin is forgotten", func(t *testing.T) {
		rt, dir := newListed(), t.TempDir()
		restore := failpoint.OnHit(func(n string) {
			if n == failpoint.PinRecord {
				panic("killed")
			}
		})
		func() {
			defer func() { _ = recover() }()
			_, _ = keeper(t, rt, dir).Sync(t.Context(), list("a:1", "b:1"), shelf{"a:1", "b:1"}, func(Result) {})
		}()
		restore()
		pass(t, keeper(t, rt, dir), shelf{})
		if len(rt.pins) != 0 {
			t.Fatalf("they are not wanted and stay pinned: %v", rt.pins)
		}
	})
}

// "Deleting a pinned image by hand: back, and said from where."
func TestRestoredImagesAreReported(t *testing.T) {
	back := func(r Result) (out []string) {
		for _, x := range r.Restored {
			from := "came again"
			if x.FromLocalBlobs {
				from = "own copy"
			}
			out = append(out, x.Image.Name+": "+from)
		}
		return out
	}
	for name, rt := range map[string]func() (Runtime, *memory){
		"a runtime with records": func() (Runtime, *memory) { m := newMemory(); return m, m },
		"a runtime with a list":  func() (Runtime, *memory) { l := newListed(); return l, l.memory },
	} {
		t.Run(name, func(t *testing.T) {
			rt, m := rt()
			dir := t.TempDir()
			k := keeper(t, rt, dir)
			if r := pass(t, k, shelf{"a:1", "b:1"}, "a:1", "b:1"); len(r.Restored) > 0 {
				t.Fatalf("the first load is no loss: %v", back(r))
			}
			delete(m.names, "a:1")
			if d := cmp.Diff([]string{"a:1: own copy"}, back(pass(t, k, shelf{"a:1", "b:1"}, "a:1", "b:1"))); d != "" {
				t.Fatal(d)
			}
			if r := pass(t, k, shelf{"a:1", "b:1"}, "a:1", "b:1"); len(r.Restored) > 0 {
				t.Fatalf("said twice: %v", back(r))
			}
			delete(m.names, "b:1")
			if r := pass(t, k, shelf{}, "a:1", "b:1"); len(r.Restored) > 0 || r.Waiting != 1 {
				t.Fatalf("%+v", r)
			}
			if d := cmp.Diff([]string{"b:1: came again"}, back(pass(t, k, shelf{"b:1"}, "a:1", "b:1"))); d != "" {
				t.Fatal(d)
			}
			delete(m.names, "a:1") // while no agent ran
			if d := cmp.Diff([]string{"a:1: own copy"}, back(pass(t, keeper(t, rt, dir), shelf{"a:1"}, "a:1", "b:1"))); d != "" {
				t.Fatal(d)
			}
		})
	}
}
