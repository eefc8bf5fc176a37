package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/lab/kernel"
	"github.com/refit-dev/refit/internal/lab/machine"
	"github.com/refit-dev/refit/internal/lab/supervisor"
)

// CutPower ends the node as a power cut does: writes that the kernel has not flushed to
// its disk are lost. It freezes the node's processes, copies the disk's file at that
// moment, and starts the node from the copy. CutPower returns when it has started again.
func (l *Lab) CutPower(ctx context.Context, node string) error {
	if err := l.has(node); err != nil {
		return err
	}
	m, err := machine.Load(l.nodeDir(node))
	if err != nil {
		return err
	}
	l.trim(ctx, node)
	thaw, err := kernel.FreezeCgroup(m.Group, patience)
	if err != nil {
		return fmt.Errorf("node %s: %w", node, err)
	}
	// Thawed once its pid 1 is marked to die, or in any case.
	defer func() { _ = thaw() }()
	copied := supervisor.CutDisk(m.Disk) + ".part"
	if err := copySparse(ctx, m.Disk, copied); err != nil {
		return errors.Join(fmt.Errorf("copying the disk of %s: %w", node, err), os.Remove(copied))
	}
	if err := os.Rename(copied, supervisor.CutDisk(m.Disk)); err != nil {
		return err
	}
	return l.again(ctx, node, func() error {
		if _, err := supervisor.Call(ctx, l.Dir, supervisor.Request{Op: supervisor.OpCrash, Node: node}); err != nil {
			return err
		}
		return thaw()
	})
}

// trim makes holes of the blocks that the node's file system has freed, since a copy of the disk has
// them too. The disks of a node that loses power often would fill the machine. It flushes nothing.
// A node that does not answer loses power all the same.
func (l *Lab) trim(ctx context.Context, node string) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_, _ = l.Output(ctx, node, "fstrim", "/")
}

// copySparse copies a file without its holes.
func copySparse(ctx context.Context, from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	for off := int64(0); ctx.Err() == nil; {
		begin, err := unix.Seek(int(in.Fd()), off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // nothing but a hole is left
			return errors.Join(out.Truncate(st.Size()), out.Close())
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(int(in.Fd()), begin, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(out, begin), io.NewSectionReader(in, begin, end-begin)); err != nil {
			return err
		}
		off = end
	}
	return ctx.Err()
}
