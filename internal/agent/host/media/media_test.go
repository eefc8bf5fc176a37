package media

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What counts as plugged in.
func TestScanDevices(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: device nodes are made")
	}
	p := Places{Sys: t.TempDir(), Dev: t.TempDir(), Allow: []string{AllDevices}}
	device := func(name, number, size, seq string) {
		write(t, filepath.Join(p.Sys, name, "dev"), number+"\n")
		write(t, filepath.Join(p.Sys, name, "size"), size+"\n")
		write(t, filepath.Join(p.Sys, name, "diskseq"), seq+"\n")
	}
	node := func(name string, minor uint32) {
		path := filepath.Join(p.Dev, name)
		_ = os.MkdirAll(filepath.Dir(path), 0o755)
		if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(7, minor))); err != nil {
			t.Fatal(err)
		}
	}
	device("loop1", "7:1", "2048", "5")
	node("loop1", 1)
	device("loop2", "7:2", "2048", "6") // of another node: not in this /dev
	device("loop3", "7:3", "2048", "7") // the name is here, but is another device
	node("loop3", 9)
	device("loop4", "7:4", "0", "8") // an empty drive
	node("loop4", 4)
	device("cciss!c0d0", "7:5", "8", "9") // in a subdirectory
	node("cciss/c0d0", 5)
	device("ram0", "7:6", "8", "1")
	node("ram0", 6)
	write(t, filepath.Join(p.Dev, "loop7"), "a file, not a device")
	device("loop7", "7:7", "8", "1")

	got, err := Scan(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []Medium{
		{Path: filepath.Join(p.Dev, "cciss/c0d0"), Device: true, Key: "7:5/8/9/"},
		{Path: filepath.Join(p.Dev, "loop1"), Device: true, Key: "7:1/2048/5/"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	device("loop1", "7:1", "2048", "10") // another stick in the same place
	again, err := Scan(p, []string{filepath.Join(p.Dev, "loop1")})
	if err != nil {
		t.Fatal(err)
	}
	if len(again) != 2 || again[1].Key == got[1].Key {
		t.Fatalf("a swapped medium must have another key and be listed once: %v", again)
	}
}

func TestScanFiles(t *testing.T) {
	dir := t.TempDir()
	f := filepath.Join(dir, "bundle")
	write(t, f, "one")
	p := Places{Sys: filepath.Join(dir, "none")}
	files := []string{f, filepath.Join(dir, "absent"), dir}
	a, err := Scan(p, files)
	if err != nil || len(a) != 1 || a[0].Path != f || !a[0].Expected {
		t.Fatalf("got %v, %v; want the one regular file", a, err)
	}
	r, size, err := Open(a[0])
	if err != nil || size != 3 {
		t.Fatalf("size %d, %v", size, err)
	}
	defer r.Close()
	if b, err := io.ReadAll(r); err != nil || string(b) != "one" {
		t.Fatalf("read %q, %v", b, err)
	}
	if _, err := r.Write([]byte("x")); err == nil {
		t.Fatal("a medium was opened for writing")
	}
	_ = os.Remove(f)
	write(t, f, "two")
	b, _ := Scan(p, files)
	if len(b) != 1 || b[0].Key == a[0].Key {
		t.Fatalf("a replaced file must have another key: %v", b)
	}
}

func TestEvents(t *testing.T) {
	t.Run("only block devices count", func(t *testing.T) {
		if !isBlock([]byte("change@/devices/virtual/block/loop0\x00ACTION=change\x00SUBSYSTEM=block\x00DEVNAME=loop0\x00")) {
			t.Error("an event of a block device was not seen")
		}
		if isBlock([]byte("add@/devices/net/eth0\x00SUBSYSTEM=net\x00X=SUBSYSTEM=block\x00")) {
			t.Error("an event of a network device was taken for a block device's")
		}
	})
	t.Run("it ends with its context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- Events(ctx, func() {}) }()
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, unix.EPERM) {
			t.Fatal(err)
		}
	})
}
