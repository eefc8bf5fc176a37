package fsutil

import (
	"fmt"

	"golang.org/x/sys/unix"
)

func roomAt(path string) (Room, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Room{}, fmt.Errorf("room at %s: %w", path, err)
	}
	block := int64(st.Bsize)
	return Room{ID: fmt.Sprintf("%v", st.Fsid.Val), Free: int64(st.Bavail) * block, Total: int64(st.Blocks) * block, FreeFiles: int64(st.Ffree), Files: int64(st.Files)}, nil
}
