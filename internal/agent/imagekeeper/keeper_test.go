package imagekeeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/refit-dev/refit/internal/agent/host/containerd"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil/disktest"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// memory is a runtime in memory.
type memory struct {
	names map[string]string // name -> digest
	pins  map[string]bool
	fail  map[string]error
	loads int
	deaf  bool // does not report pins
}

func newMemory() *memory {
	return &memory{names: map[string]string{}, pins: map[string]bool{}, fail: map[string]error{}}
}

func (m *memory) Present(context.Context) (out []pin.RuntimeImage, err error) {
	for n, d := range m.names {
		out = append(out, pin.RuntimeImage{Tags: []string{n}, Digests: []string{pin.Repository(n) + "@" + d}, Pinned: m.pins[n] && !m.deaf})
	}
	return out, nil
}

func (m *memory) Load(ctx context.Context, img containerd.Image, _ containerd.Blobs) ([]string, error) {
	if err := m.fail[img.Name]; err != nil {
		return nil, err
	}
	m.loads++
	m.names[img.Name] = img.Digest
	names, _, err := m.Pin(ctx, img)
	return names, err
}

func (m *memory) Pin(_ context.Context, img containerd.Image) ([]string, bool, error) {
	if m.names[img.Name] != img.Digest {
		return nil, false, nil
	}
	m.pins[img.Name] = true
	return []string{img.Name}, true, nil
}

func (m *memory) Unpin(_ context.Context, names []string) error {
	for _, n := range names {
		delete(m.pins, n)
	}
	return nil
}

// shelf says which images are complete.
type shelf []string

func (s shelf) Image(img model.PinSetImage) (containerd.Image, bool) {
	return containerd.Image{Name: img.Name, Digest: img.Digest}, slices.Contains(s, img.Name)
}
func (shelf) MayPull(model.PinSetImage) bool     { return false }
func (shelf) Refuses(model.PinSetImage) bool     { return false }
func (shelf) Open(string) (io.ReadCloser, error) { return nil, errors.New("not used") }

func list(names ...string) (out []model.PinSetImage) {
	for _, n := range names {
		out = append(out, model.PinSetImage{Name: n, Digest: "sha256:" + n})
	}
	return out
}

func TestKeeper(t *testing.T) {
	sync := func(t *testing.T, k *Keeper, want []model.PinSetImage, src Source) Result {
		t.Helper()
		r, err := k.Sync(t.Context(), want, src, func(Result) {})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	open := func(t *testing.T, m *memory, dir string) *Keeper {
		t.Helper()
		k := NewKeeper(m, dir, statefile.Ignore)
		return k
	}
	t.Run("images are held as their blobs arrive", func(t *testing.T) {
		m, dir := newMemory(), t.TempDir()
		k := open(t, m, dir)
		if r := sync(t, k, list("a:1", "b:1"), shelf{"a:1"}); r.Held != 1 || r.Pinned != 1 || r.Waiting != 1 || r.Complete() {
			t.Fatalf("%+v", r)
		}
		if r := sync(t, k, list("a:1", "b:1"), shelf{"a:1", "b:1"}); !r.Complete() {
			t.Fatalf("%+v", r)
		}
	})
	t.Run("what is there already is pinned, not loaded", func(t *testing.T) {
		m := newMemory()
		m.names["a:1"] = "sha256:a:1"
		if r := sync(t, open(t, m, t.TempDir()), list("a:1"), shelf{}); !r.Complete() || m.loads != 0 {
			t.Fatalf("%+v, %d loads", r, m.loads)
		}
	})
	t.Run("a failing image is named, the others go on", func(t *testing.T) {
		m := newMemory()
		m.fail["a:1"] = errors.New("unexpected EOF")
		r := sync(t, open(t, m, t.TempDir()), list("a:1", "b:1"), shelf{"a:1", "b:1"})
		if r.Pinned != 1 || r.Failed["a:1"] == nil {
			t.Fatalf("%+v", r)
		}
	})
	t.Run("a full disk stops the loading, and room lets it go on", func(t *testing.T) {
		m := newMemory()
		k := open(t, m, t.TempDir())
		m.fail["b:1"] = fmt.Errorf("rpc error: write layer: %w", syscall.ENOSPC)
		all := list("a:1", "b:1", "c:1", "d:1")
		r := sync(t, k, all, shelf{"a:1", "b:1", "c:1", "d:1"})
		if r.Full != "b:1" || r.Pinned != 1 || r.Waiting != 2 || len(r.Failed) != 1 || m.loads != 1 {
			t.Fatalf("%+v, %d loads", r, m.loads)
		}
		if !m.pins["a:1"] {
			t.Error("what was pinned is not any more")
		}
		m.fail["b:1"] = errors.New("rpc error: code = Unknown desc = write: no space left on device")
		if r = sync(t, k, all, shelf{"a:1", "b:1", "c:1", "d:1"}); r.Full != "b:1" {
			t.Fatalf("a runtime that reports it in words: %+v", r)
		}
		delete(m.fail, "b:1")
		if r = sync(t, k, all, shelf{"a:1", "b:1", "c:1", "d:1"}); !r.Complete() || r.Full != "" {
			t.Fatalf("%+v", r)
		}
	})
	t.Run("what left the list is unpinned, also after a restart; foreign pins stay", func(t *testing.T) {
		m, dir := newMemory(), t.TempDir()
		m.names["foreign:1"], m.pins["foreign:1"] = "sha256:f", true
		sync(t, open(t, m, dir), list("a:1", "b:1"), shelf{"a:1", "b:1"})
		if r := sync(t, open(t, m, dir), list("b:1"), shelf{"b:1"}); !r.Complete() {
			t.Fatalf("%+v", r)
		}
		if m.pins["a:1"] || !m.pins["b:1"] || !m.pins["foreign:1"] {
			t.Fatalf("pins now: %v", m.pins)
		}
	})
	t.Run("a lost pin or image is restored", func(t *testing.T) {
		m := newMemory()
		k := open(t, m, t.TempDir())
		sync(t, k, list("a:1", "b:1"), shelf{"a:1", "b:1"})
		delete(m.pins, "a:1")
		delete(m.names, "b:1")
		if r := sync(t, k, list("a:1", "b:1"), shelf{"a:1", "b:1"}); !r.Complete() {
			t.Fatalf("%+v", r)
		}
	})
	t.Run("killed before the record: pinned again, remembered, and let go later", func(t *testing.T) {
		m, dir := newMemory(), t.TempDir()
		restore := failpoint.OnHit(func(n string) {
			if n == failpoint.PinRecord {
				panic("killed")
			}
		})
		func() {
			defer func() { _ = recover() }()
			_, _ = open(t, m, dir).Sync(t.Context(), list("a:1"), shelf{"a:1"}, func(Result) {})
		}()
		restore()
		sync(t, open(t, m, dir), list("a:1"), shelf{"a:1"})
		sync(t, open(t, m, dir), nil, shelf{})
		if m.pins["a:1"] {
			t.Fatal("the pin was forgotten and stays for ever")
		}
	})
}

// Held and pinned mean that the runtime said so: while a pass goes on, nothing
// may look complete that is not.
func TestProgressNeverPromisesMoreThanWasSeen(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(m *memory)
		src     shelf
	}{
		"half is there, pinned by others, the rest has not arrived": {func(m *memory) {
			for _, n := range []string{"a:1", "b:1"} {
				m.names[n], m.pins[n] = "sha256:"+n, true
			}
		}, nil},
		"half is there, not pinned, the rest has not arrived": {func(m *memory) {
			m.names["a:1"], m.names["b:1"] = "sha256:a:1", "sha256:b:1"
		}, nil},
		"all are loaded, and the runtime does not report pins": {func(m *memory) { m.deaf = true }, shelf{"a:1", "b:1", "c:1", "d:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			c.prepare(m)
			k := NewKeeper(m, t.TempDir(), statefile.Ignore)
			r, err := k.Sync(t.Context(), list("a:1", "b:1", "c:1", "d:1"), c.src, func(r Result) {
				if r.Complete() || r.Held > len(m.names) {
					t.Errorf("said on the way: %+v, %d images are there", r, len(m.names))
				}
			})
			if err != nil || r.Complete() {
				t.Fatalf("%+v %v", r, err)
			}
		})
	}
}

// A tag that moves to another digest keeps its pin when the old digest goes.
func TestATagThatMovesStaysPinned(t *testing.T) {
	m := newMemory()
	k := NewKeeper(m, t.TempDir(), statefile.Ignore)
	for _, digest := range []string{"sha256:1", "sha256:2"} {
		want := []model.PinSetImage{{Name: "a:1", Digest: digest}}
		if _, err := k.Sync(t.Context(), want, shelf{"a:1"}, func(Result) {}); err != nil {
			t.Fatal(err)
		}
	}
	if !m.pins["a:1"] {
		t.Fatal("the pin of the new image was taken off with that of the old one")
	}
}

// owner is a runtime that knows which pins are refit's.
type owner struct {
	*memory
	own map[string]bool
}

func (o *owner) Pin(ctx context.Context, img containerd.Image) ([]string, bool, error) {
	names, ok, err := o.memory.Pin(ctx, img)
	if ok {
		o.own[img.Name] = true
	}
	return names, ok, err
}

func (o *owner) Load(ctx context.Context, img containerd.Image, blobs containerd.Blobs) ([]string, error) {
	names, err := o.memory.Load(ctx, img, blobs)
	o.own[img.Name] = err == nil
	return names, err
}

func (o *owner) OwnPins(context.Context) (names []string, err error) {
	for n := range o.own {
		if o.pins[n] {
			names = append(names, n)
		}
	}
	return names, nil
}

// A damaged record is rebuilt from what the runtime knows: what is wanted stays pinned
// throughout, what is not wanted is released, pins of others and of the installer stay.
func TestADamagedRecordIsRebuilt(t *testing.T) {
	t.Parallel()
	for _, d := range disktest.Damages() {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			m, dir := &owner{memory: newMemory(), own: map[string]bool{"contact:1": true}}, t.TempDir()
			m.names["foreign:1"], m.pins["foreign:1"] = "sha256:f", true
			m.names["contact:1"], m.pins["contact:1"] = "sha256:c", true
			if err := os.WriteFile(filepath.Join(dir, firstContactFile), []byte(`{"names":["contact:1"]}`), 0o600); err != nil {
				t.Fatal(err)
			}
			all := shelf{"a:1", "b:1", "c:1"}
			if r, err := NewKeeper(m, dir, statefile.Ignore).Sync(t.Context(), list(all...), all, func(Result) {}); err != nil || !r.Complete() {
				t.Fatalf("%+v %v", r, err)
			}
			d.Apply(t, filepath.Join(dir, "pins.json"))
			var noted []statefile.Problem
			k := NewKeeper(m, dir, func(p statefile.Problem) { noted = append(noted, p) })
			if len(noted) != 1 || noted[0].Reason != statefile.ReasonDamaged {
				t.Errorf("%+v", noted)
			}
			// c is wanted no more; b waits for its blobs, so nothing is released yet.
			delete(m.names, "b:1")
			if r, err := k.Sync(t.Context(), list("a:1", "b:1"), shelf{"a:1"}, func(Result) {}); err != nil || r.Waiting != 1 {
				t.Fatalf("%+v %v", r, err)
			}
			if !m.pins["c:1"] {
				t.Error("a pin was released while a wanted image waits")
			}
			// A restart in between forgets nothing.
			k = NewKeeper(m, dir, func(p statefile.Problem) { t.Errorf("%+v", p) })
			if r, err := k.Sync(t.Context(), list("a:1", "b:1"), all, func(Result) {}); err != nil || !r.Complete() {
				t.Fatalf("%+v %v", r, err)
			}
			if !m.pins["a:1"] || !m.pins["b:1"] || m.pins["c:1"] || !m.pins["foreign:1"] || !m.pins["contact:1"] {
				t.Errorf("pins now: %v", m.pins)
			}
		})
	}
}

// A disk that takes no record keeps no image from being pinned; with room again the record
// is written.
func TestARecordThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	disktest.Each(t, disktest.Small, func(t *testing.T, f *disktest.FS) {
		m := newMemory()
		var noted []statefile.Problem
		k := NewKeeper(m, f.Dir, func(p statefile.Problem) { noted = append(noted, p) })
		f.Fill()
		for range 2 {
			if r, err := k.Sync(t.Context(), list("a:1"), shelf{"a:1"}, func(Result) {}); err != nil || !r.Complete() {
				t.Fatalf("%+v %v", r, err)
			}
		}
		if len(noted) != 1 || noted[0].Reason != statefile.ReasonNotWritable || noted[0].Repaired {
			t.Errorf("%+v", noted)
		}
		f.Free()
		if _, err := k.Sync(t.Context(), list("a:1"), shelf{"a:1"}, func(Result) {}); err != nil {
			t.Fatal(err)
		}
		if len(noted) != 2 || !noted[1].Repaired {
			t.Errorf("%+v", noted)
		}
		after := NewKeeper(m, f.Dir, func(p statefile.Problem) { t.Errorf("%+v", p) })
		if len(after.own) != 1 {
			t.Errorf("%v", after.own)
		}
	})
}
