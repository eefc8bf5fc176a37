package disktest

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

// A full file system refuses every write, still serves its files, and accepts writes again
// after Free. A read-only one refuses with EROFS.
func TestFileSystems(t *testing.T) {
	t.Parallel()
	Each(t, Small, func(t *testing.T, f *FS) {
		t.Parallel()
		held := f.Path("held")
		if err := os.WriteFile(held, []byte("here before"), 0o600); err != nil {
			t.Fatal(err)
		}
		f.Fill()
		if err := os.WriteFile(f.Path("more"), make([]byte, 4096), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("a full file system took 4096 bytes: %v", err)
		}
		f.Free()
		if err := os.WriteFile(f.Path("more"), make([]byte, 4096), 0o600); err != nil {
			t.Errorf("after room was made: %v", err)
		}
		f.FillTo(256 << 10)
		if err := os.WriteFile(f.Path("more"), make([]byte, 64<<10), 0o600); err != nil {
			t.Errorf("256 KiB are to be free: %v", err)
		}
		f.ReadOnly()
		if err := os.WriteFile(held, nil, 0o600); !errors.Is(err, syscall.EROFS) {
			t.Errorf("a read-only file system: %v", err)
		}
		if b, err := os.ReadFile(held); err != nil || string(b) != "here before" {
			t.Errorf("read from a read-only file system: %q, %v", b, err)
		}
		f.Writable()
		if err := os.WriteFile(held, nil, 0o600); err != nil {
			t.Error(err)
		}
	})
}

func TestDamages(t *testing.T) {
	t.Parallel()
	for _, d := range Damages() {
		whole := []byte(`{"a": "a value that is long enough to be cut in the middle of it"}`)
		if got := d.Of(whole); string(got) == string(whole) {
			t.Errorf("%s leaves the file as it was", d.Name)
		}
	}
}
