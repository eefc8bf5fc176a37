package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/lab/kernel"
	"github.com/refit-dev/refit/internal/lab/machine"
)

// Insert plugs a file into one node as a block device and returns the device's
// path there. The kernel announces block devices to every node; the device file
// exists in this one's /dev only, and before the announcement that counts.
func (l *Lab) Insert(ctx context.Context, node, file string) (string, error) {
	dev, err := l.Path(node, "/dev")
	if err != nil {
		return "", err
	}
	file, err = filepath.Abs(file)
	if err != nil {
		return "", err
	}
	if used := kernel.LoopsOf(file); len(used) > 0 {
		return "", fmt.Errorf("%s is already plugged in somewhere (loop%d): eject it first", file, used[0])
	}
	m, err := machine.Load(l.nodeDir(node))
	if err != nil {
		return "", err
	}
	device, err := kernel.AttachLoop(file, kernel.Partitions)
	if err != nil {
		return "", err
	}
	defer device.Close()
	m.Media = append(m.Media, machine.Medium{Loop: device.Number, File: file})
	if err := m.Save(); err != nil { // before anything is shown: what is recorded is found again
		return "", errors.Join(err, kernel.DetachLoop(device.Number, file))
	}
	for _, n := range kernel.LoopNodes(device.Number) {
		path := filepath.Join(dev, n.Name)
		if err := unix.Mknod(path, unix.S_IFBLK|0o660, int(n.Device)); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("making %s in node %s: %w", path, node, err)
		}
	}
	return device.Path(), kernel.AnnounceLoop(device.Number)
}

// Eject removes a medium from a node. A program that has the device open can use it until
// it closes the device.
func (l *Lab) Eject(ctx context.Context, node, file string) error {
	if err := l.has(node); err != nil {
		return err
	}
	file, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	m, err := machine.Load(l.nodeDir(node))
	if err != nil {
		return err
	}
	i := slices.IndexFunc(m.Media, func(s machine.Medium) bool { return s.File == file })
	if i < 0 {
		return fmt.Errorf("%s is not plugged into node %s", file, node)
	}
	medium := m.Media[i]
	if dev, err := l.Path(node, "/dev"); err == nil { // a node that is off has no /dev
		for _, n := range kernel.LoopNodes(medium.Loop) {
			if err := os.Remove(filepath.Join(dev, n.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	if err := kernel.DetachLoop(medium.Loop, file); err != nil {
		return err
	}
	m.Media = slices.Delete(m.Media, i, i+1)
	return m.Save()
}
