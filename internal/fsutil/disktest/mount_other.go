//go:build !linux

package disktest

import "testing"

// Tmpfs needs Linux.
func Tmpfs(t testing.TB, _ int64) *FS { return skip(t) }

// XFS needs Linux.
func XFS(t testing.TB, _ int64) *FS { return skip(t) }

// Ext4 needs Linux.
func Ext4(t testing.TB, _ int64) *FS { return skip(t) }

func skip(t testing.TB) *FS {
	t.Helper()
	t.Skip("small file systems are mounted on Linux only")
	return nil
}

// ReadOnly needs Linux.
func (f *FS) ReadOnly() { skip(f.t) }

// Writable needs Linux.
func (f *FS) Writable() { skip(f.t) }
