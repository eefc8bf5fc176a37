package kernel

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func file(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: attaches loop devices")
	}
	path := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(path, bytes.Repeat([]byte("disk"), 1<<18), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, number := range LoopsOf(path) {
			_ = DetachLoop(number, path)
		}
	})
	return path
}

func TestAFileIsAttachedUntilItIsDetached(t *testing.T) {
	path := file(t)
	d, err := AttachLoop(path, Partitions)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(d.Path())
	if err != nil || len(got) != 1<<20 || !bytes.HasPrefix(got, []byte("diskdisk")) {
		t.Errorf("read %d bytes of %s, %v", len(got), d.Path(), err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if got := LoopsOf(path); !slices.Equal(got, []int{d.Number}) {
		t.Errorf("attached to %v, want %d", got, d.Number)
	}
	if got := LoopsBelow(filepath.Dir(path)); got[d.Number] != path || len(got) != 1 {
		t.Errorf("attached below: %v", got)
	}
	if nodes := LoopNodes(d.Number); len(nodes) != 1 || "/dev/"+nodes[0].Name != d.Path() {
		t.Errorf("device files: %v", nodes)
	}
	if err := AnnounceLoop(d.Number); err != nil {
		t.Error(err)
	}
	if err := DetachLoop(d.Number, path+".other"); err != nil || len(LoopsOf(path)) != 1 {
		t.Errorf("a device was detached in the name of another file (%v)", err)
	}
	if err := DetachLoop(d.Number, path); err != nil || len(LoopsOf(path)) != 0 {
		t.Errorf("still attached to %v, %v", LoopsOf(path), err)
	}
}

func TestAutoDetachEndsWithTheLastUser(t *testing.T) {
	path := file(t)
	d, err := AttachLoop(path, AutoDetach)
	if err != nil {
		t.Fatal(err)
	}
	if len(LoopsOf(path)) != 1 {
		t.Error("not attached")
	}
	d.Close()
	if got := LoopsOf(path); len(got) != 0 {
		t.Errorf("still attached to %v", got)
	}
}
