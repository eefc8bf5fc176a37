//go:build unix

package fsutil

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

const noFollow = unix.O_NOFOLLOW

func replaceSmall(path string, data []byte, mode fs.FileMode) error {
	t, err := renameio.NewPendingFile(path, renameio.WithPermissions(mode), renameio.WithExistingPermissions(), renameio.WithTempDir(filepath.Dir(path)))
	if err != nil {
		return err
	}
	defer func() { _ = t.Cleanup() }()
	if _, err := t.Write(data); err != nil {
		return err
	}
	_ = labelOpen(t.File, path) // it has the label of its directory, which serves for small files
	return t.CloseAtomicallyReplace()
}

// ErrLocked is the error of Lock and LockFile while another process has the lock.
var ErrLocked error = unix.EWOULDBLOCK

// LockFile takes a lock that ends with the file or the process.
func LockFile(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

func unlockFile(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// Commit syncs a complete file, gives it its name, and syncs the directory. On Windows the file
// is closed then.
func Commit(f *os.File, path string) error {
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// Unnamed is an empty file without a name, gone with the process. File systems without such
// files give it one for a moment.
func Unnamed(dir string) (*os.File, error) {
	if f, err := openUnnamed(dir); err == nil {
		return f, nil
	}
	f, err := os.CreateTemp(dir, ".refit-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Map maps a file that only this process has. unmap ends that.
func Map(f *os.File, size int64) (content []byte, unmap func() error, err error) {
	content, err = unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	return content, func() error { return unix.Munmap(content) }, nil
}

// SyncDir makes renames in a directory last.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync of %s: %w", dir, err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync of %s: %w", dir, err)
	}
	return nil
}

// Allocated is how many bytes of the disk a file has.
func Allocated(f *os.File) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, err
	}
	return st.Blocks * 512, nil
}
