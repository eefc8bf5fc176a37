// Package filelock makes processes wait for each other by a lock on a file.
//
// Promise: at most one holder at a time on this machine; the kernel gives the
// lock back when its holder ends, however it ends. The file stays.
//
// Called by the other packages of the lab.
//
//	release, err := filelock.Acquire(ctx, "/run/x.lock", func() { fmt.Println("waiting") })
//	defer release()
package filelock

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Acquire waits until the lock is had or ctx ends. waiting, which may be nil, is
// called once if someone else holds it.
func Acquire(ctx context.Context, path string, waiting func()) (release func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for told := false; ; told = true {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if err != unix.EWOULDBLOCK {
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if !told && waiting != nil {
			waiting()
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("another process holds %s: %w", path, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
