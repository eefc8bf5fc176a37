package kubelet

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/updatertest"
)

// After a power cut in the step the program unpacks its parts again: only those directories go
// that came with the new program, once in each boot, while the unit is stopped.
func TestPartsAfterPowerCut(t *testing.T) {
	t.Parallel()
	f, n := newSupervisor(t, false, "v1.35.4+k3s1", "v1.35.4+k3s2")
	n.unpacked, n.started = t.TempDir(), "boot 1"
	older, newer := strings.Repeat("0a", 32), strings.Repeat("0b", 32)
	others := []string{"cni", "0c", older + ".lock"}
	for _, name := range append(others, older) {
		makeDir(t, n.unpacked, name)
	}
	u := f.Make()
	steps(t, f, u, 1)
	if n.file() != "v1.35.4+k3s2" {
		t.Fatal("the program is not replaced")
	}
	makeDir(t, n.unpacked, newer)
	makeDir(t, n.unpacked, newer+"-tmp")
	steps(t, f, u, 1)
	if !has(t, n.unpacked, newer) || n.stops > 0 {
		t.Errorf("without a power cut, the parts were removed or the unit was stopped %d times", n.stops)
	}

	n.started, n.running = "boot 2", "" // and it cannot start from torn files
	u = f.Make()
	steps(t, f, u, 1)
	if has(t, n.unpacked, newer) || has(t, n.unpacked, newer+"-tmp") || n.stops != 1 {
		t.Errorf("after a power cut the torn parts are there, or the unit was stopped %d times", n.stops)
	}
	for _, name := range append(others, older) {
		if !has(t, n.unpacked, name) {
			t.Errorf("%s was removed", name)
		}
	}
	makeDir(t, n.unpacked, newer)
	steps(t, f, u, 200)
	if !has(t, n.unpacked, newer) || n.stops != 1 || f.State() != "v1.35.4+k3s2" {
		t.Errorf("the second start of the same boot was disturbed: %d stops, state %s", n.stops, f.State())
	}
}

// A program that is not replaced yet has no parts to repair.
func TestPartsBeforeTheSwap(t *testing.T) {
	t.Parallel()
	f, n := newSupervisor(t, true, "v1.35.4+k3s1", "v1.35.4+k3s2")
	n.unpacked, n.started = filepath.Join(t.TempDir(), "none"), "boot 1" // made by a first start
	u := f.Make()
	steps(t, f, u, 1)
	n.started = "boot 2"
	if n.file() != "v1.35.4+k3s1" {
		t.Fatal("the program was replaced before its snapshot")
	}
	makeDir(t, n.unpacked, strings.Repeat("0a", 32))
	steps(t, f, f.Make(), 200)
	if n.stops > 0 || f.State() != "v1.35.4+k3s2" {
		t.Errorf("the unit was stopped %d times, state %s", n.stops, f.State())
	}
}

// steps calls the updater a number of times, or until the step is done.
func steps(t *testing.T, f *updatertest.Fixture, u updaters.Updater, most int) {
	t.Helper()
	for range most {
		r, err := u.Update(t.Context(), f.Task)
		if err != nil || r.Failed {
			t.Fatalf("%+v, %v", r, err)
		}
		if r.Done {
			return
		}
		f.Tick()
	}
}

func makeDir(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, name, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func has(t *testing.T, dir, name string) bool {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == name })
}
