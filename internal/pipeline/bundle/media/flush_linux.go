package media

import (
	"os"

	"golang.org/x/sys/unix"
)

// flush asks the kernel to begin writing a range out.
func flush(f *os.File, from, length int64) {
	// a hint: an error here would come again from the sync at the end
	_ = unix.SyncFileRange(int(f.Fd()), from, length, unix.SYNC_FILE_RANGE_WRITE)
}

// forget drops what the kernel caches of a file, so that it is read from the
// medium.
func forget(f *os.File) error { return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) }
