package coldstart

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/fsutil/disktest"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
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

func (s stubborn) Present(ctx context.Context) ([]pin.RuntimeImage, error) {
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

// Any failure of the check itself is retried for a limited time.
func TestTheKubeletStartsWhenTheCheckFails(t *testing.T) {
	t.Parallel()
	t.Run("the runtime answers with errors", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.released(t, stubborn{n.runtime, func(context.Context) error { return os.ErrDeadlineExceeded }})
	})
	t.Run("errors come at once, and the unit sees that the check is at work", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		seen := map[string]bool{}
		n.released(t, stubborn{n.runtime, func(context.Context) error {
			b, err := os.ReadFile(n.conf.RunPath(heartbeatFile))
			must(t, err)
			seen[string(b)] = true
			return os.ErrDeadlineExceeded
		}})
		if len(seen) < 10 {
			t.Errorf("the file had %d contents in a second of failing tries", len(seen))
		}
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
		unlock, err := fsutil.Lock(filepath.Join(n.conf.RunDir, LockFile))
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

// A torn image that cannot be repaired, since the runtime's disk is full, is taken out
// before the kubelet starts; a whole one stays. With room again it comes back.
func TestATornImageIsNotStartedWhenTheDiskIsFull(t *testing.T) {
	t.Parallel()
	disktest.Each(t, disktest.Small, func(t *testing.T, f *disktest.FS) {
		n := newNode(t)
		n.runtime.dir = f.Path("runtime")
		n.starts(t)
		children, err := n.runtime.children(n.header.Metadata.Images[0].Digest)
		must(t, err)
		zero(t, n.runtime.file(children[2]))
		f.Fill()
		r := n.released(t, n.runtime)
		if r.Released == "" || !strings.Contains(r.Released, "no space left") || len(r.Missing) != 1 || r.Missing[0].Image != "r.example/a:1" {
			t.Errorf("%+v", r)
		}
		if !slices.Equal(n.runtime.taken, []string{"r.example/a:1"}) || n.runtime.names["r.example/b:1"] == "" {
			t.Errorf("taken out: %v, there: %v", n.runtime.taken, n.runtime.names)
		}
		f.Free()
		if r = n.starts(t); r.Released != "" || len(r.Missing) > 0 {
			t.Errorf("%+v", r)
		}
		n.whole(t)
	})
}

// The damaged content is kept next to the file and in the list of the node's problems.
func TestDamageIsReported(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.starts(t)
	for _, f := range []string{"want.json", "pins.json", "drill.json"} {
		must(t, os.WriteFile(n.conf.Path(f), make([]byte, 64), 0o600))
	}
	n.released(t, n.runtime)
	var got []string
	for _, p := range statefile.At(n.conf.RunDir).List(time.Now()) {
		got = append(got, filepath.Base(p.Object))
		if p.Reason != statefile.ReasonDamaged || !p.Repaired || p.Fix == "" || !strings.Contains(p.Message, "64 zero bytes") {
			t.Errorf("%+v", p)
		}
	}
	// Without a desired state nothing is compared, so the pins are not even read.
	if !slices.Equal(got, []string{"drill.json", "want.json"}) {
		t.Errorf("%v", got)
	}
	if b, err := os.ReadFile(statefile.Aside(n.conf.Path("want.json"), 1)); err != nil || len(b) != 64 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// A drill whose note cannot be written is not played: it would be played at every start.
func TestADrillIsNotPlayedOnAReadOnlyDisk(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(f *disktest.FS){
		"full":      func(f *disktest.FS) { f.Fill() },
		"read-only": func(f *disktest.FS) { f.ReadOnly() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, f := newNode(t), disktest.Tmpfs(t, disktest.Small)
			n.on(t, f)
			n.starts(t)
			_, err := Arm(n.conf, "d1", "an older boot")
			must(t, err)
			spoil(f)
			if r := n.released(t, n.runtime); r.Drill != "" || len(n.runtime.taken) > 0 {
				t.Errorf("%+v, taken out: %v", r, n.runtime.taken)
			}
			n.whole(t)
		})
	}
}

// The switch lets the kubelet start at once, and says so.
func TestSwitchedOff(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmdline, file := filepath.Join(dir, "cmdline"), filepath.Join(dir, "preflight.off")
	if why := DisabledBy(cmdline, file); why != "" {
		t.Error(why)
	}
	must(t, os.WriteFile(cmdline, []byte("root=/dev/sda1 xrefit.preflight=off refit.preflight=offline quiet\n"), 0o600))
	if why := DisabledBy(cmdline, file); why != "" {
		t.Error(why)
	}
	must(t, os.WriteFile(cmdline, []byte("root=/dev/sda1 refit.preflight=off quiet\n"), 0o600))
	if why := DisabledBy(cmdline, file); !strings.Contains(why, "kernel command line") {
		t.Error(why)
	}
	must(t, os.Remove(cmdline))
	must(t, os.WriteFile(file, nil, 0o600))
	why := DisabledBy(cmdline, file)
	if !strings.Contains(why, file) {
		t.Error(why)
	}
	n := newNode(t)
	o := Options{Config: n.conf, BootID: "b1", Log: slog.New(slog.DiscardHandler)}
	r, err := Skip(o, why)
	if _, done := Done(n.conf, "b1"); err != nil || !done || !r.Off || !strings.Contains(r.Released, file) {
		t.Errorf("%+v %v", r, err)
	}
}

// crowded is a runtime that cannot list layers on a full disk: containerd makes a folder
// to do so, and says why it could not in words.
type crowded struct{ *store }

func (s crowded) Parts(ctx context.Context, img cri.Target) ([]cri.Part, error) {
	parts, err := s.store.Parts(ctx, img)
	if err == nil {
		err = errors.New("layers of image " + img.Name + ": failed to create temp dir: mkdir /var/lib/x: no space left on device")
	}
	return parts, err
}

// A full disk is no damage: an image that cannot be listed for want of room stays.
func TestAFullDiskIsNoDamage(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.starts(t)
	r := n.released(t, crowded{n.runtime})
	if !strings.Contains(r.Released, "no space left") || len(r.Missing) > 0 || len(n.runtime.taken) > 0 {
		t.Errorf("%+v, taken out: %v", r, n.runtime.taken)
	}
	n.whole(t)
}
