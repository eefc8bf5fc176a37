package preflight

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/host/cri"
	"github.com/refit-dev/refit/internal/host/disk"
	"github.com/refit-dev/refit/internal/host/disk/disktest"
	"github.com/refit-dev/refit/internal/host/statefile"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// refuse is for state that must be whole.
func refuse(t *testing.T) statefile.Note {
	return func(p statefile.Problem) { t.Errorf("unexpected: %+v", p) }
}

// released runs the check with short patience and demands that the kubelet may start.
func (n *node) released(t *testing.T, rt Runtime) Report {
	t.Helper()
	n.boot++
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	o := Options{Config: n.conf, Runtime: rt, BootID: fmt.Sprint(n.boot), Patience: time.Second, ErrorPatience: time.Second, Pause: time.Millisecond, Log: slog.New(slog.DiscardHandler),
		traffic: func() int64 { return 0 }}
	r, err := Run(ctx, o)
	if err != nil || !r.OK {
		t.Fatalf("the kubelet still waits: %+v %v", r, err)
	}
	if _, done := Done(n.conf, o.BootID); !done {
		t.Error("the stamp of this boot is missing: the kubelet's next start would wait again")
	}
	return r
}

// on moves the node's state to another file system.
func (n *node) on(t *testing.T, f *disktest.FS) {
	t.Helper()
	dir := f.Path("state")
	must(t, os.CopyFS(dir, os.DirFS(n.conf.StateDir)))
	n.conf.StateDir = dir
}

// A disk that is full or read-only never keeps the kubelet down, whether it is so from the
// start or the images were checked before. What is whole stays as it is.
func TestTheKubeletStartsWithoutAWritableDisk(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(f *disktest.FS){
		"full":      func(f *disktest.FS) { f.Fill() },
		"read-only": func(f *disktest.FS) { f.ReadOnly() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disktest.Each(t, disktest.Small, func(t *testing.T, f *disktest.FS) {
				n := newNode(t)
				n.on(t, f)
				n.starts(t)
				spoil(f)
				r := n.released(t, n.runtime)
				if len(r.Missing) > 0 || r.Images != 2 {
					t.Errorf("%+v", r)
				}
				n.whole(t)
			})
			t.Run("first check", func(t *testing.T) {
				n, f := newNode(t), disktest.Tmpfs(t, disktest.Small)
				n.on(t, f)
				spoil(f)
				n.released(t, n.runtime)
			})
			t.Run("without a word of what is wanted", func(t *testing.T) {
				n, f := newNode(t), disktest.Tmpfs(t, disktest.Small)
				n.on(t, f)
				must(t, os.Remove(n.conf.Path("want.json")))
				spoil(f)
				n.released(t, n.runtime)
			})
		})
	}
}

// Records that a power cut has torn count as missing, and never keep the kubelet down.
func TestTheKubeletStartsWithTornRecords(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"pins.json", "drill.json", "want.json", "preflight.json", "clean-end", "bundles"} {
		for _, d := range disktest.Damages() {
			t.Run(file+" "+d.Name, func(t *testing.T) {
				t.Parallel()
				n := newNode(t)
				_, err := Arm(n.conf, "d1", "an older boot")
				must(t, err)
				n.starts(t)
				n.ends(t)
				if file == "bundles" {
					must(t, os.RemoveAll(n.conf.Path(file)))
				}
				d.Apply(t, n.conf.Path(file))
				r := n.released(t, n.runtime)
				if len(r.Missing) > 0 {
					t.Errorf("%+v", r)
				}
				n.whole(t)
			})
		}
	}
}

// stubborn is a runtime that fails as said.
type stubborn struct {
	*store
	present func(ctx context.Context) error
}

func (s stubborn) Present(ctx context.Context) ([]pin.Present, error) {
	if err := s.present(ctx); err != nil {
		return nil, err
	}
	return s.store.Present(ctx)
}

func (s stubborn) Parts(ctx context.Context, img cri.Target) ([]cri.Part, error) {
	if err := s.present(ctx); err != nil {
		return nil, err
	}
	return s.store.Parts(ctx, img)
}

// Whatever fails in the check itself is waited for with patience, not for ever.
func TestTheKubeletStartsWhenTheCheckFails(t *testing.T) {
	t.Parallel()
	t.Run("the runtime answers with errors", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.released(t, stubborn{n.runtime, func(context.Context) error { return os.ErrDeadlineExceeded }})
	})
	t.Run("the runtime never answers", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.released(t, stubborn{n.runtime, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }})
	})
	t.Run("a call never returns, as on a hung disk", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		hang := make(chan struct{})
		t.Cleanup(func() { close(hang) })
		n.released(t, stubborn{n.runtime, func(context.Context) error { <-hang; return nil }})
	})
	t.Run("the check panics", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.released(t, stubborn{n.runtime, func(context.Context) error { panic("index out of range") }})
	})
	t.Run("another process holds the lock", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		must(t, os.MkdirAll(n.conf.RunDir, 0o700))
		unlock, err := disk.Lock(filepath.Join(n.conf.RunDir, LockFile))
		must(t, err)
		defer unlock()
		n.released(t, n.runtime)
	})
	t.Run("the state directory is a file", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		must(t, os.RemoveAll(n.conf.StateDir))
		must(t, os.WriteFile(n.conf.StateDir, nil, 0o600))
		n.released(t, n.runtime)
	})
}
