package loopdevice

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
		for _, number := range Attached(path) {
			_ = Detach(number, path)
		}
	})
	return path
}

func TestAFileIsAttachedUntilItIsDetached(t *testing.T) {
	path := file(t)
	d, err := Attach(path, Partitions)
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
	if got := Attached(path); !slices.Equal(got, []int{d.Number}) {
		t.Errorf("attached to %v, want %d", got, d.Number)
	}
	if got := AttachedBelow(filepath.Dir(path)); got[d.Number] != path || len(got) != 1 {
		t.Errorf("attached below: %v", got)
	}
	if nodes := Nodes(d.Number); len(nodes) != 1 || "/dev/"+nodes[0].Name != d.Path() {
		t.Errorf("device files: %v", nodes)
	}
	if err := Announce(d.Number); err != nil {
		t.Error(err)
	}
	if err := Detach(d.Number, path+".other"); err != nil || len(Attached(path)) != 1 {
		t.Errorf("a device was detached in the name of another file (%v)", err)
	}
	if err := Detach(d.Number, path); err != nil || len(Attached(path)) != 0 {
		t.Errorf("still attached to %v, %v", Attached(path), err)
	}
}

func TestAutoDetachEndsWithTheLastUser(t *testing.T) {
	path := file(t)
	d, err := Attach(path, AutoDetach)
	if err != nil {
		t.Fatal(err)
	}
	if len(Attached(path)) != 1 {
		t.Error("not attached")
	}
	d.Close()
	if got := Attached(path); len(got) != 0 {
		t.Errorf("still attached to %v", got)
	}
}
