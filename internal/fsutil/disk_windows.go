package fsutil

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/windows"
)

// noFollow is nothing: Windows makes symbolic links for administrators only.
const noFollow = 0

func replaceSmall(path string, data []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".refit-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone after the rename
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Chmod(f.Name(), mode)
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// ErrLocked is the error of Lock and LockFile while another process has the lock.
var ErrLocked error = windows.ERROR_LOCK_VIOLATION

// LockFile takes a lock that ends with the file or the process.
func LockFile(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{})
}

// unlockFile does nothing: processes that are started share no lock, and closing ends it.
func unlockFile(*os.File) {}

// SyncDir does nothing: Windows cannot sync a directory, and NTFS keeps a journal of renames.
func SyncDir(string) error { return nil }

// Commit syncs a complete file, closes it, since an open file cannot be renamed, and gives it
// its name.
func Commit(f *os.File, path string) error {
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Unnamed is an empty file that the system deletes with its last handle.
func Unnamed(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, ".refit-*")
	if err != nil {
		return nil, err
	}
	path := f.Name()
	if err := f.Close(); err != nil {
		return nil, err
	}
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	h, err := windows.CreateFile(name, windows.GENERIC_READ|windows.GENERIC_WRITE, windows.FILE_SHARE_DELETE, nil,
		windows.OPEN_EXISTING, windows.FILE_ATTRIBUTE_TEMPORARY|windows.FILE_FLAG_DELETE_ON_CLOSE, 0)
	if err != nil {
		_ = os.Remove(path) // the error says more
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return os.NewFile(uintptr(h), path), nil
}

// Map maps a file that only this process has. unmap ends that.
func Map(f *os.File, size int64) (content []byte, unmap func() error, err error) {
	m, err := windows.CreateFileMapping(windows.Handle(f.Fd()), nil, windows.PAGE_READONLY, 0, 0, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	defer windows.CloseHandle(m) // the view keeps it
	at, err := windows.MapViewOfFile(m, windows.FILE_MAP_READ, 0, 0, uintptr(size))
	if err != nil {
		return nil, nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), size), func() error { return windows.UnmapViewOfFile(at) }, nil
}

// Allocated is how many bytes of the disk a file has. refit makes no sparse files on Windows.
func Allocated(f *os.File) (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}
