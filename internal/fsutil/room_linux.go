package fsutil

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Room of a file system, in bytes and in files.
type Room struct {
	// ID tells file systems apart.
	ID          string
	Free, Total int64
	// FreeFiles and Files are inodes; Files is 0 where a file system has no such limit.
	FreeFiles, Files int64
}

// RoomAt is the room of the file system that path is on; path or the nearest
// directory above it that exists.
func RoomAt(path string) (Room, error) {
	for {
		r, err := roomAt(path)
		if err == nil || !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
			return r, err
		}
		path = filepath.Dir(path)
	}
}

func roomAt(path string) (Room, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Room{}, fmt.Errorf("room at %s: %w", path, err)
	}
	var f unix.Stat_t
	if err := unix.Stat(path, &f); err != nil {
		return Room{}, fmt.Errorf("room at %s: %w", path, err)
	}
	return Room{
		ID:    fmt.Sprintf("%d:%d", unix.Major(f.Dev), unix.Minor(f.Dev)),
		Free:  int64(st.Bavail) * st.Bsize,
		Total: int64(st.Blocks) * st.Bsize,

		FreeFiles: int64(st.Ffree), Files: int64(st.Files),
	}, nil
}

// SyncFS writes out everything of the file system that path is on.
func SyncFS(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync of the file system of %s: %w", path, err)
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("sync of the file system of %s: %w", path, err)
	}
	return nil
}
