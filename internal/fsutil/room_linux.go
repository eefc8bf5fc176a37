package fsutil

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

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
