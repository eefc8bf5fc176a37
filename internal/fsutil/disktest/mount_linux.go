package disktest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Tmpfs mounts a tmpfs of that many bytes.
func Tmpfs(t testing.TB, size int64) *FS {
	t.Helper()
	f := mountPoint(t)
	err := unix.Mount("tmpfs", f.Dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", size))
	if errors.Is(err, unix.EPERM) {
		t.Skip("mounting a tmpfs is forbidden here:", err)
	}
	if err != nil {
		t.Fatal("mount a tmpfs:", err)
	}
	f.unmountAtEnd()
	return f
}

// Ext4 makes a file with an ext4 of that many bytes, without blocks reserved for root,
// and mounts it from a loop device.
func Ext4(t testing.TB, size int64) *FS {
	t.Helper()
	return loopFS(t, size, "ext4", "e2fsprogs", "-q", "-F", "-m", "0")
}

// XFS does the same with an XFS of at least 300 MiB, whose files can share blocks.
func XFS(t testing.TB, size int64) *FS {
	t.Helper()
	return loopFS(t, size, "xfs", "xfsprogs", "-q", "-f")
}

// loopFS makes a file system with mkfs of its kind, which is in a Debian package.
func loopFS(t testing.TB, size int64, kind, pkg string, flags ...string) *FS {
	t.Helper()
	f := mountPoint(t)
	mkfs, err := exec.LookPath("mkfs." + kind)
	if err != nil {
		if mkfs = "/usr/sbin/mkfs." + kind; !exists(mkfs) {
			t.Skipf("mkfs.%s is not installed (package %s)", kind, pkg)
		}
	}
	image := filepath.Join(t.TempDir(), kind+".img")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, size); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), mkfs, append(flags, image)...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", mkfs, err, out)
	}
	if out, err := exec.CommandContext(t.Context(), "mount", "-t", kind, "-o", "loop", image, f.Dir).CombinedOutput(); err != nil {
		t.Skipf("mounting from a loop device does not work here: %v: %s", err, out)
	}
	f.unmountAtEnd()
	return f
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func mountPoint(t testing.TB) *FS {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a file system")
	}
	return &FS{Dir: t.TempDir(), t: t}
}

func (f *FS) unmountAtEnd() {
	t, dir := f.t, f.Dir
	t.Cleanup(func() {
		err := unix.Unmount(dir, 0)
		if errors.Is(err, unix.EBUSY) { // a file of the test is still open
			err = unix.Unmount(dir, unix.MNT_DETACH)
		}
		if err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
}

// ReadOnly makes the mount read-only, as a kernel does after an error of the disk. No file
// may be open for writing.
func (f *FS) ReadOnly() { f.remount(unix.MS_RDONLY) }

// Writable undoes ReadOnly.
func (f *FS) Writable() { f.remount(0) }

// remount tries again for a while if the file system is busy: a program that another test
// starts in this moment has copies of this process's files until it runs.
func (f *FS) remount(flags uintptr) {
	f.t.Helper()
	var err error
	for range 500 {
		if err = unix.Mount("", f.Dir, "", unix.MS_REMOUNT|unix.MS_BIND|flags, ""); !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		f.t.Fatalf("remount %s: %v", f.Dir, err)
	}
}
