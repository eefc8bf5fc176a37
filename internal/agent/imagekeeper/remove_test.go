package imagekeeper

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
)

// removing is a runtime that can remove images.
type removing struct {
	*memory
	used map[string]bool
	// broken is the error of every removal.
	broken error
}

func (r *removing) Used(context.Context) (map[string]bool, error) { return r.used, nil }

func (r *removing) Remove(_ context.Context, name string) error {
	if r.broken != nil {
		return r.broken
	}
	delete(r.names, name)
	delete(r.pins, name)
	return nil
}

func syncs(t *testing.T, k *Keeper, images ...string) {
	t.Helper()
	if r, err := k.Sync(t.Context(), list(images...), shelf(images), func(Result) {}); err != nil || !r.Complete() {
		t.Fatalf("%+v %v", r, err)
	}
}

func removes(t *testing.T, k *Keeper, grace time.Duration, wanted []string, want ...string) {
	t.Helper()
	got, err := k.RemoveUnused(t.Context(), list(wanted...), grace)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("removed %v, want %v: %v", got, want, err)
	}
}

// Only images that refit loaded are removed, after the grace time, also by another process of
// the agent. Images that were there before, that containers use or that are pinned stay.
func TestRemoveUnused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt, dir := &removing{memory: newMemory(), used: map[string]bool{"used:1": true}}, t.TempDir()
		rt.names["there:1"] = "sha256:there:1"
		k := NewKeeper(rt, dir, statefile.Ignore)
		syncs(t, k, "a:1", "b:1", "there:1", "used:1")
		removes(t, k, time.Hour, []string{"a:1", "b:1", "there:1", "used:1"})
		syncs(t, k, "b:1")
		removes(t, k, time.Hour, []string{"b:1"}) // from now on the time counts
		time.Sleep(30 * time.Minute)
		k = NewKeeper(rt, dir, statefile.Ignore)
		removes(t, k, time.Hour, []string{"b:1"})
		time.Sleep(31 * time.Minute)
		removes(t, k, time.Hour, []string{"b:1"}, "a:1")
		if rt.names["there:1"] == "" || rt.names["used:1"] == "" || !rt.pins["b:1"] {
			t.Errorf("left: %v, pinned %v", rt.names, rt.pins)
		}
		rt.used = nil // its container is gone
		removes(t, k, time.Hour, []string{"b:1"}, "used:1")
		removes(t, k, 0, []string{"b:1"})
	})
}

// An image that is wanted again in time stays, and its time starts anew.
func TestWantedAgainIsNotRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt := &removing{memory: newMemory()}
		k := NewKeeper(rt, t.TempDir(), statefile.Ignore)
		syncs(t, k, "a:1")
		syncs(t, k)
		removes(t, k, time.Hour, nil)
		time.Sleep(59 * time.Minute)
		syncs(t, k, "a:1")
		removes(t, k, time.Hour, []string{"a:1"})
		syncs(t, k)
		time.Sleep(59 * time.Minute)
		removes(t, k, time.Hour, nil)
		if rt.names["a:1"] == "" {
			t.Error("it is gone")
		}
	})
}

// Without a grace time an unwanted image goes at once: the node needs room. An image whose pin
// is not released yet stays.
func TestRemoveAtOnce(t *testing.T) {
	t.Parallel()
	rt := &removing{memory: newMemory()}
	k := NewKeeper(rt, t.TempDir(), statefile.Ignore)
	syncs(t, k, "a:1", "b:1")
	removes(t, k, 0, []string{"a:1"})
	syncs(t, k, "a:1")
	rt.broken = errors.New("in use")
	if got, err := k.RemoveUnused(t.Context(), list("a:1"), 0); err == nil || len(got) > 0 {
		t.Errorf("%v %v", got, err)
	}
	rt.broken = nil
	removes(t, k, 0, []string{"a:1"}, "b:1")
}

// A kill after the removal leaves a record of an image that is gone: it is dropped. A damaged
// record removes nothing.
func TestRemovalsSurviveKills(t *testing.T) {
	rt, dir := &removing{memory: newMemory()}, t.TempDir()
	k := NewKeeper(rt, dir, statefile.Ignore)
	syncs(t, k, "a:1", "b:1")
	syncs(t, k)
	restore := failpoint.OnHit(func(name string) {
		if name == failpoint.ImageRemoved {
			panic("killed")
		}
	})
	func() {
		defer func() { _ = recover() }()
		_, _ = k.RemoveUnused(t.Context(), nil, 0)
	}()
	restore()
	if len(rt.names) != 1 {
		t.Fatalf("left: %v", rt.names)
	}
	k = NewKeeper(rt, dir, statefile.Ignore)
	removes(t, k, 0, nil, "b:1")

	syncs(t, k, "c:1")
	syncs(t, k)
	if err := os.WriteFile(filepath.Join(dir, loadedFile), []byte("nul"), 0o600); err != nil {
		t.Fatal(err)
	}
	var problems []statefile.Problem
	k = NewKeeper(rt, dir, func(p statefile.Problem) { problems = append(problems, p) })
	removes(t, k, 0, nil)
	if len(problems) == 0 || rt.names["c:1"] == "" {
		t.Errorf("problems %v, left %v", problems, rt.names)
	}
}
