package disktest

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Small is enough for a few state files and quickly filled.
const Small = 4 << 20

// FS is a mounted file system. Its methods end the test if they fail.
type FS struct {
	// Dir is the mount point.
	Dir string
	t   testing.TB
}

// Each runs a test on each kind of small file system.
func Each(t *testing.T, size int64, test func(t *testing.T, f *FS)) {
	t.Helper()
	for _, kind := range []struct {
		name string
		make func(testing.TB, int64) *FS
	}{{"tmpfs", Tmpfs}, {"ext4", Ext4}} {
		t.Run(kind.name, func(t *testing.T) { test(t, kind.make(t, size)) })
	}
}

// Path of a file in it.
func (f *FS) Path(elem ...string) string {
	return filepath.Join(append([]string{f.Dir}, elem...)...)
}

// On returns the same file system for a subtest's failures.
func (f *FS) On(t testing.TB) *FS { return &FS{Dir: f.Dir, t: t} }

func (f *FS) filler(n int) string { return f.Path("filler-" + strconv.Itoa(n)) }

// Fill writes until not a byte and not a new file has room.
func (f *FS) Fill() {
	f.t.Helper()
	f.fillTo(0)
}

// FillTo leaves about n bytes free.
func (f *FS) FillTo(n int64) {
	f.t.Helper()
	f.fillTo(n)
}

func (f *FS) fillTo(free int64) {
	f.t.Helper()
	w, err := os.Create(f.filler(0))
	if err != nil && !errors.Is(err, syscall.ENOSPC) {
		f.t.Fatal(err)
	}
	if err != nil {
		return
	}
	defer w.Close()
	var size int64
	// Large writes first: each of them fails whole or ends short, small ones take the rest.
	for block := 64 << 10; block > 0; block /= 8 {
		for err = nil; err == nil; {
			var n int
			n, err = w.Write(make([]byte, block))
			size += int64(n)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			f.t.Fatal(err)
		}
	}
	// Delayed allocation finds out at the sync.
	if err := w.Sync(); err != nil && !errors.Is(err, syscall.ENOSPC) {
		f.t.Fatal(err)
	}
	if free > 0 {
		if err := w.Truncate(max(size-free, 0)); err != nil {
			f.t.Fatal(err)
		}
		return
	}
	f.fillFiles()
}

// fillFiles takes the last inodes or directory blocks: an empty file must not fit either.
func (f *FS) fillFiles() {
	for n := 1; n < 100_000; n++ {
		w, err := os.Create(f.filler(n))
		if errors.Is(err, syscall.ENOSPC) {
			return
		}
		if err != nil {
			f.t.Fatal(err)
		}
		_, err = w.Write(make([]byte, 4096))
		w.Close()
		if err == nil {
			continue
		}
		if n > 64 { // empty files still fit, as they do on a full disk with free inodes
			return
		}
	}
}

// Free removes what Fill wrote. The files are emptied first: a program that another test
// starts in this moment has them open until it runs, and their blocks with them.
func (f *FS) Free() {
	f.t.Helper()
	all, err := filepath.Glob(f.Path("filler-*"))
	if err != nil {
		f.t.Fatal(err)
	}
	for _, p := range all {
		if err := errors.Join(os.Truncate(p, 0), os.Remove(p)); err != nil {
			f.t.Fatal(err)
		}
	}
}
