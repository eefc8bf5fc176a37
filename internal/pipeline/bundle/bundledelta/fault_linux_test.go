package bundledelta_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/fsutil/disktest"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundledelta"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

// childVar makes the test program create or restore, for tests that kill it.
const childVar = "REFIT_TEST_DELTA_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVar); dir != "" {
		fmt.Println(child(dir))
		return
	}
	os.Exit(m.Run())
}

// child creates a delta and restores its target.
func child(dir string) error {
	var files [2]*bundlereader.File
	for i, name := range []string{"old", "new"} {
		f, err := bundlereader.OpenPath(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		defer f.Close()
		files[i] = f
	}
	if err := bundledelta.Create(context.Background(), files[0], files[1], filepath.Join(dir, "delta2"), nil); err != nil {
		return err
	}
	v, err := bundledelta.NewInventory([]bundledelta.InventoryBundle{bundledelta.InventoryOf(files[0].Header())})
	if err != nil {
		return err
	}
	all, err := v.Savings(files[1])
	if err != nil {
		return err
	}
	if err := bundledelta.CreateFrom(context.Background(), all[0], files[1], filepath.Join(dir, "delta3"), nil); err != nil {
		return err
	}
	for delta, out := range map[string]string{"delta": "again", "delta3": "again3"} {
		d, err := bundledelta.OpenPath(filepath.Join(dir, delta))
		if err != nil {
			return err
		}
		defer d.Close()
		if err := bundledelta.Restore(context.Background(), files[0], d, filepath.Join(dir, out), nil); err != nil {
			return err
		}
	}
	return nil
}

// A kill at any moment leaves no file, or the right one.
func TestKill(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 3))
	old, new := similarPair(t, 2<<20)
	p := makePair(t, old, new)
	want, err := os.ReadFile(p.path("delta"))
	if err != nil {
		t.Fatal(err)
	}
	inventory := pair{t.TempDir(), p.old, p.new}
	for name, b := range map[string][]byte{"old": p.old, "new": p.new} {
		if err := os.WriteFile(inventory.path(name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	inventory.fromInventory(t, bundledelta.InventoryOf(open(t, p.path("old")).Header()))
	small, err := os.ReadFile(inventory.path("delta"))
	if err != nil {
		t.Fatal(err)
	}
	killed, complete := 0, 0
	for run := 0; run < 40 && (killed < 12 || complete == 0); run++ {
		for _, name := range []string{"again", "again3", "delta2", "delta3"} {
			_ = os.Remove(p.path(name))
		}
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), childVar+"="+p.dir)
		var out bytes.Buffer
		c.Stdout, c.Stderr = &out, &out
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if run%8 != 7 {
			time.AfterFunc(time.Duration(r.IntN(1500))*time.Millisecond, func() { _ = c.Process.Kill() })
		}
		if c.Wait() != nil {
			killed++
		} else if complete++; strings.TrimSpace(out.String()) != "<nil>" {
			t.Fatalf("run %d: %s", run, out.String())
		}
		for name, want := range map[string][]byte{"again": p.new, "again3": p.new, "delta2": want, "delta3": small} {
			if got, err := os.ReadFile(p.path(name)); err == nil && !bytes.Equal(got, want) {
				t.Fatalf("run %d: %s is there with other bytes", run, name)
			}
		}
	}
	if killed == 0 || complete == 0 {
		t.Errorf("%d runs were killed, %d completed", killed, complete)
	}
	p.restoreAgain(t)
}

// restoreAgain restores once more, after kills.
func (p pair) restoreAgain(t *testing.T) {
	t.Helper()
	if err := restore(t, p.path("old"), p.path("delta"), p.path("again")); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(p.path("again")); err != nil || !bytes.Equal(got, p.new) {
		t.Errorf("after kills: %d bytes, %v", len(got), err)
	}
}

// A full disk is refused before anything is written if that is known, and leaves no file.
func TestFullDisk(t *testing.T) {
	old, new := similarPair(t, 400000)
	p := makePair(t, old, new)
	target := open(t, p.path("new"))
	nothing := bundledelta.Saving{Bundle: &bundledelta.InventoryBundle{Digest: target.Header().Digest}, Has: make([]bool, len(target.Header().Metadata.Blobs))}
	disktest.Each(t, disktest.Small, func(t *testing.T, f *disktest.FS) {
		for _, free := range []int64{100 << 10, 0} {
			f.FillTo(free)
			err := restore(t, p.path("old"), p.path("delta"), f.Path("again"))
			if err == nil || !strings.Contains(err.Error(), "free") {
				t.Errorf("restore with %d bytes free: %v", free, err)
			}
			err = bundledelta.Create(t.Context(), open(t, p.path("old")), open(t, p.path("new")), f.Path("delta"), nil)
			if err == nil || !strings.Contains(err.Error(), "full") && !strings.Contains(err.Error(), "no space") {
				t.Errorf("create with %d bytes free: %v", free, err)
			}
			err = bundledelta.CreateFrom(t.Context(), nothing, target, f.Path("delta"), nil)
			if err == nil || !strings.Contains(err.Error(), "full") && !strings.Contains(err.Error(), "no space") {
				t.Errorf("create by an inventory with %d bytes free: %v", free, err)
			}
			for _, name := range []string{"again", "again.partial", "delta", "delta.partial"} {
				if _, err := os.Stat(f.Path(name)); err == nil {
					t.Errorf("%s is there", name)
				}
			}
		}
	})
}
