package bundlewriter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

// copySize is how much is copied at a time; reads and writes are aligned to it.
const copySize = 4 << 20

// BusyError says that a device is in use and was not touched.
type BusyError struct{ Device, By string }

func (e *BusyError) Error() string {
	return fmt.Sprintf("device %s is in use (%s): nothing was written; unmount it, or name the right device", e.Device, e.By)
}

// WriteMedium writes a bundle raw to a block device (or to a file) and reads it
// back from there. The first block is written last, so that an interrupted
// copy does not pass for a bundle; a file gets its name when it is whole. It refuses devices that are in use or too
// small before anything is written. progress gets bytes of both passes.
func WriteMedium(ctx context.Context, src, dst string, progress func(done, total int64)) (*bundle.Header, error) {
	if progress == nil {
		progress = func(int64, int64) {}
	}
	from, err := openSource(src, dst)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	to, err := openMedium(dst, from.Header().FileSize())
	if err != nil {
		return nil, err
	}
	defer to.Close()
	if to.Name() != dst {
		defer os.Remove(to.Name()) // gone if it got its name
	}
	size := from.Header().FileSize()
	if err := copyMedium(ctx, from, src, to, func(done int64) { progress(done, 2*size) }); err != nil {
		return nil, fmt.Errorf("write %s to %s: %w", src, dst, err)
	}
	if err := to.Close(); err != nil {
		return nil, fmt.Errorf("write %s to %s: %w", src, dst, err)
	}
	h, err := readBack(ctx, from.Header(), to.Name(), func(done int64) { progress(size+done, 2*size) })
	if err != nil || to.Name() == dst {
		return h, err
	}
	return h, renameComplete(to.Name(), dst)
}

// openSource opens a whole bundle that is not on the target.
func openSource(src, dst string) (*bundlereader.File, error) {
	from, err := bundlereader.OpenPath(src)
	if err != nil {
		return nil, err
	}
	err = from.CheckSize()
	if err != nil {
		err = fmt.Errorf("%s: %w", src, err)
	} else if disk, _ := bundlereader.SplitPath(src); sameFile(disk, dst) {
		err = inputf("%s and %s are the same file or device", src, dst)
	}
	if err != nil {
		from.Close()
		return nil, err
	}
	return from, nil
}

// renameComplete gives a file that is whole its name, in the place of what has it now.
func renameComplete(from, to string) error {
	if real, err := filepath.EvalSymlinks(to); err == nil {
		to = real
	}
	if err := os.Rename(from, to); err != nil {
		return fmt.Errorf("write %s: %w", to, err)
	}
	return fsutil.SyncDir(filepath.Dir(to))
}

// sameFile reports whether both paths are one file, one device, or a device and its partition.
func sameFile(a, b string) bool {
	stA, errA := os.Stat(a)
	stB, errB := os.Stat(b)
	if errA != nil || errB != nil || os.SameFile(stA, stB) {
		return errA == nil && errB == nil
	}
	return sameDevice(sysfsPath(stA), sysfsPath(stB))
}

// sameDevice compares directories of sysfs: that of a partition is in that of its device.
func sameDevice(a, b string) bool {
	return a != "" && b != "" && (strings.HasPrefix(a+"/", b+"/") || strings.HasPrefix(b+"/", a+"/"))
}

// openMedium opens the target for us alone: a device itself, or a new file next to the one
// that is to have the name.
func openMedium(dst string, size int64) (*os.File, error) {
	st, err := os.Stat(dst)
	if errors.Is(err, os.ErrNotExist) && !strings.HasPrefix(filepath.Clean(dst), "/dev/") {
		return openFile(dst, 0o644, size)
	}
	if err != nil {
		return nil, inputf("target: %w", err)
	}
	if st.Mode().IsRegular() {
		return openFile(dst, st.Mode().Perm(), size)
	}
	if st.Mode()&os.ModeDevice == 0 || st.Mode()&os.ModeCharDevice != 0 {
		return nil, inputf("target %s is neither a block device nor a file", dst)
	}
	return openDevice(dst, st, size)
}

// openFile makes a temporary file next to dst, under a name that is always the same: one
// that a kill left behind is written over by the next try.
func openFile(dst string, mode os.FileMode, size int64) (*os.File, error) {
	if real, err := filepath.EvalSymlinks(dst); err == nil {
		dst = real
	}
	temp := filepath.Join(filepath.Dir(dst), ".refit-"+filepath.Base(dst))
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, inputf("target: %w", err)
	}
	room, err := fsutil.RoomAt(filepath.Dir(dst))
	if err != nil {
		return nil, inputf("target: %w", err)
	}
	if room.Free < size {
		return nil, &SpaceError{Path: filepath.Dir(dst), Needed: size, Free: room.Free}
	}
	return os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
}

func openDevice(dst string, st os.FileInfo, size int64) (*os.File, error) {
	if by := usedBy(st); by != "" {
		return nil, &BusyError{dst, by}
	}
	// the kernel gives O_EXCL on a device only if no other process claims it or a
	// partition of it: mounts, swap, volumes
	f, err := os.OpenFile(dst, os.O_RDWR|os.O_EXCL, 0)
	if errors.Is(err, syscall.EBUSY) {
		return nil, &BusyError{dst, "claimed by the kernel: mounted, swap, or part of a volume"}
	}
	if err != nil {
		return nil, inputf("target: %w", err)
	}
	room, err := f.Seek(0, io.SeekEnd)
	if err == nil && room < size {
		err = &SpaceError{Path: dst, Needed: size, Free: room}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// copyMedium copies everything but the first block, syncs, then that block.
func copyMedium(ctx context.Context, from *bundlereader.File, src string, to *os.File, progress func(int64)) error {
	in := from.Unverified()
	size := from.Header().FileSize()
	if _, err := to.WriteAt(make([]byte, bundle.BlockSize), 0); err != nil {
		return err
	}
	buf := make([]byte, copySize)
	for at := int64(bundle.BlockSize); at < size; {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// up to the next multiple of the buffer: devices like aligned writes
		n := min(int64(len(buf))-at%int64(len(buf)), size-at)
		if got, err := in.ReadAt(buf[:n], at); int64(got) < n {
			return fmt.Errorf("read %s: %w", src, err)
		}
		if _, err := to.WriteAt(buf[:n], at); err != nil {
			return err
		}
		fsutil.WriteOut(to, at, n)
		at += n
		progress(at)
	}
	if err := to.Sync(); err != nil {
		return err
	}
	if _, err := to.WriteAt(from.Header().Raw[:bundle.BlockSize], 0); err != nil {
		return err
	}
	if err := to.Sync(); err != nil {
		return err
	}
	// read back from the medium, not from memory
	return fsutil.DropCache(to)
}

func readBack(ctx context.Context, want *bundle.Header, dst string, progress func(int64)) (*bundle.Header, error) {
	b, err := bundlereader.OpenRaw(dst)
	if err != nil {
		return nil, fmt.Errorf("read back: %w", err)
	}
	return verifyCopy(ctx, want, b, dst, progress)
}

// verifyCopy compares what was read back with what was written, and closes it.
func verifyCopy(ctx context.Context, want *bundle.Header, b *bundlereader.File, dst string, progress func(int64)) (*bundle.Header, error) {
	defer b.Close()
	if b.Header().Digest != want.Digest {
		return nil, fmt.Errorf("read back %s: found bundle %s, wrote %s", dst, b.Header().Digest, want.Digest)
	}
	if err := bundlereader.Verify(ctx, b, func(done, _ int64) { progress(done) }); err != nil {
		return nil, fmt.Errorf("read back %s: %w", dst, err)
	}
	return b.Header(), nil
}
