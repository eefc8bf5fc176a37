package fsutil

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// OpenRegular opens a regular file for reading. It never waits: an ordinary open of a
// pipe without a writer would block for ever.
func OpenRegular(path string) (*os.File, error) {
	return openKind(path, func(m os.FileMode) bool { return m.IsRegular() }, "a regular file")
}

// ReadSmall reads a file of at most most bytes, or a pipe that has a writer.
func ReadSmall(path string, most int64) ([]byte, error) {
	f, err := openKind(path, func(m os.FileMode) bool { return m.IsRegular() || m.Type() == os.ModeNamedPipe }, "a regular file or a pipe")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s has more than the %d bytes allowed", path, most)
	}
	return b, err
}

func openKind(path string, ok func(os.FileMode) bool, want string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !ok(st.Mode()) {
		err = fmt.Errorf("%s is not %s", path, want)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
