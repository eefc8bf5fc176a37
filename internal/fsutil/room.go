package fsutil

import (
	"errors"
	"io/fs"
	"path/filepath"
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
