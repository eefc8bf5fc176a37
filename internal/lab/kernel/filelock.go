package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// AcquireLock waits until the lock is had or ctx ends. waiting, which may be nil, is
// called once if someone else holds it.
func AcquireLock(ctx context.Context, path string, waiting func()) (release func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	for notified := false; ; notified = true {
		f, err := tryLock(path)
		if f != nil || err != nil {
			return func() { f.Close() }, err
		}
		if !notified && waiting != nil {
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("another process holds %s: %w", path, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// tryLock returns the locked file, or nil if it cannot be had now.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if err == unix.EWOULDBLOCK {
			return nil, nil
		}
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	// The last holder may have removed the file since it was opened: then
	// another process can lock one of the same name.
	mine, err := f.Stat()
	if err == nil {
		var there os.FileInfo
		if there, err = os.Stat(path); err == nil && os.SameFile(mine, there) {
			return f, nil
		}
	}
	f.Close()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return nil, nil
}
