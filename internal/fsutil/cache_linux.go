package fsutil

import (
	"os"

	"golang.org/x/sys/unix"
)

// WriteOut asks the kernel to begin writing a range of a file out, so that the
// sync at the end has little left to do. It is a hint: an error here would come
// again from that sync.
func WriteOut(f *os.File, from, length int64) {
	_ = unix.SyncFileRange(int(f.Fd()), from, length, unix.SYNC_FILE_RANGE_WRITE)
}

// DropCache drops what the kernel caches of a file, so that it is read from the
// medium.
func DropCache(f *os.File) error { return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) }
