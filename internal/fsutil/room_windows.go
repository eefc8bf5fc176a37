package fsutil

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/windows"
)

// roomAt knows no inodes: NTFS and FAT report none.
func roomAt(path string) (Room, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return Room{}, fmt.Errorf("room at %s: %w", path, err)
	}
	var free, total uint64
	if err := windows.GetDiskFreeSpaceEx(name, &free, &total, nil); err != nil {
		return Room{}, fmt.Errorf("room at %s: %w", path, err)
	}
	return Room{ID: filepath.VolumeName(path), Free: int64(free), Total: int64(total)}, nil
}
