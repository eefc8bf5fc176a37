package fsutil

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// A lock ends with unlock, also while a process that is being started shares the file.
func TestUnlockEndsASharedLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err != nil || to != path {
			continue
		}
		n, err := strconv.Atoi(filepath.Base(fd))
		if err != nil {
			t.Fatal(err)
		}
		shared, err := syscall.Dup(n)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = syscall.Close(shared) }()
	}
	if _, err := Lock(path); !errors.Is(err, ErrLocked) {
		t.Errorf("a second lock: %v", err)
	}
	unlock()
	again, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	again()
}
