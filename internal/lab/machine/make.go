package machine

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// LinkOrCopy gives a file a second name, or a copy in another file system.
func LinkOrCopy(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	in, err := os.Open(from) // another file system
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	defer out.Close()
	_, err = io.Copy(out, in)
	return err
}

// MakeDisk makes a node's disk: a sparse file of size bytes with a file system.
func MakeDisk(ctx context.Context, path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard", path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("making a file system in %s: %w: %s", path, err, out)
	}
	return nil
}
