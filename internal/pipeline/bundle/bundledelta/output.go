package bundledelta

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlewriter"
)

// output is a file that gets its name when it is complete and on disk.
type output struct {
	*os.File
	path string
}

// newOutput begins a file, alone. What an earlier run left is dropped.
func newOutput(path string) (*output, error) {
	f, err := os.OpenFile(path+bundlewriter.PartialSuffix, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, &bundlewriter.InputError{Err: fmt.Errorf("output: %w", err)}
	}
	if err := fsutil.LockFile(f); err != nil {
		f.Close()
		return nil, &bundlewriter.InputError{Err: fmt.Errorf("output %s: another refit is writing it", path)}
	}
	if err := f.Truncate(0); err != nil {
		f.Close()
		return nil, err
	}
	return &output{f, path}, nil
}

// commit gives the file its name.
func (o *output) commit() error { return fsutil.Commit(o.File, o.path) }

// finish closes the file. One without its name is removed.
func (o *output) finish(err error) error {
	if err != nil {
		err = o.explain(err)
		if e := os.Remove(o.Name()); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	if e := o.Close(); !errors.Is(e, os.ErrClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// explain says what to do about a full disk.
func (o *output) explain(err error) error {
	if fsutil.IsFull(err) {
		return fmt.Errorf("%w: the disk of %s is full: free space there or write to another disk", err, filepath.Dir(o.path))
	}
	return err
}

// checkRoom compares what is free in the directory of a file with what it needs.
func checkRoom(path string, need int64) error {
	dir := filepath.Dir(path)
	room, err := fsutil.RoomAt(dir)
	if err != nil {
		return &bundlewriter.InputError{Err: fmt.Errorf("output: %w", err)}
	}
	if need > room.Free {
		return &bundlewriter.SpaceError{Path: dir, Needed: need, Free: room.Free}
	}
	return nil
}

// checkBase checks that a file is the base, or can be one.
func checkBase(f *bundlereader.File) error {
	if err := f.CheckSize(); err != nil {
		return fmt.Errorf("base: %w", err)
	}
	return nil
}
