package bundlewriter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

// Repaired is what Repair found and did.
type Repaired struct {
	Header *bundle.Header
	// Ranges were damaged, with Bytes in all. Unrepaired are why some still are.
	Ranges     int
	Bytes      int64
	Unrepaired []error
}

// DamagedHeaderError says that the header of a bundle is damaged, and its digest is not known.
type DamagedHeaderError struct {
	Path string
	Err  error
}

func (e *DamagedHeaderError) Error() string {
	return fmt.Sprintf("%s: %v. Its header has to come from another copy: name that copy with --repair-from and the digest of the bundle with --digest", e.Path, e.Err)
}

func (e *DamagedHeaderError) Unwrap() error { return e.Err }

// Repair finds the damaged ranges of a bundle in a file or on a device, and writes over them, in
// place, what another copy has. It reads only those ranges of the copy, compares each chunk before
// it writes it, and reads the result back. A range that is damaged in both stays as it is. So a
// kill at any point leaves no more damage than there was. Without a copy (from is empty) nothing is
// written. digest is that of the bundle, if its header is damaged. report is called for each range,
// with the error if it stays damaged. progress gets bytes of one pass or two.
func Repair(ctx context.Context, path, from, digest string, report func(bundlereader.Damage, error), progress func(done, total int64)) (Repaired, error) {
	r := &repairer{ctx: ctx, path: path, digest: digest, report: report, progress: progress}
	defer r.close()
	if err := r.open(from); err != nil {
		return Repaired{}, err
	}
	err := bundlereader.FindDamage(ctx, r.damaged, func(done, total int64) { progress(done, 2*total) }, r.repair)
	if err == nil {
		err = r.cutEnd()
	}
	if err == nil && r.Ranges > 0 {
		err = r.finish()
	}
	if err != nil {
		return r.Repaired, fmt.Errorf("repair %s: %w", path, err)
	}
	return r.Repaired, nil
}

type repairer struct {
	Repaired
	ctx          context.Context //nolint:containedctx // as long as Repair
	path, digest string
	report       func(bundlereader.Damage, error)
	progress     func(done, total int64)

	damaged, copy *bundlereader.File
	in, out       *os.File
	regular       bool
	buf           []byte
}

func (r *repairer) close() {
	for _, f := range []*os.File{r.in, r.out} {
		if f != nil {
			_ = f.Close() // what was written is synced
		}
	}
	if r.copy != nil {
		_ = r.copy.Close()
	}
}

// open opens the bundle and its copy. A damaged header comes from the copy.
func (r *repairer) open(from string) error {
	st, err := r.openInput()
	if err != nil {
		return err
	}
	own, broken := bundlereader.Open(r.in, bundlereader.UnknownSize)
	if err := r.checkOwn(own, broken, from != ""); err != nil {
		return err
	}
	if from != "" {
		if err := r.openCopy(from, own); err != nil {
			return err
		}
		if err := r.openOutput(st); err != nil {
			return err
		}
	}
	r.damaged = own
	if broken != nil {
		return r.repairHeader(broken)
	}
	r.Header = own.Header()
	return nil
}

// openInput opens the bundle for reading.
func (r *repairer) openInput() (st os.FileInfo, err error) {
	if r.in, err = os.OpenFile(r.path, os.O_RDONLY|syscall.O_NONBLOCK, 0); err == nil {
		st, err = r.in.Stat()
	}
	if err != nil {
		return nil, inputf("bundle: %w", err)
	}
	r.regular = st.Mode().IsRegular()
	if !r.regular && (st.Mode()&os.ModeDevice == 0 || st.Mode()&os.ModeCharDevice != 0) {
		return nil, inputf("bundle %s is neither a file nor a block device", r.path)
	}
	return st, nil
}

// checkOwn refuses what is another bundle, or none: it is not to be written over.
func (r *repairer) checkOwn(own *bundlereader.File, broken error, withCopy bool) error {
	var corrupt *bundle.CorruptError
	switch {
	case broken == nil && r.digest != "" && own.Header().Digest != r.digest:
		return inputf("%s has bundle %s, expected %s", r.path, own.Header().Digest, r.digest)
	case broken == nil:
		return nil
	case !errors.As(broken, &corrupt):
		return fmt.Errorf("%s: %w; if it was a bundle, write it again with refit bundle write", r.path, broken)
	case !withCopy || r.digest == "":
		return &DamagedHeaderError{r.path, broken}
	}
	return nil
}

// openCopy opens the copy, which must be the same bundle.
func (r *repairer) openCopy(from string, own *bundlereader.File) error {
	if sameFile(r.path, from) {
		return inputf("%s and %s are the same file or device", r.path, from)
	}
	var err error
	if r.copy, err = bundlereader.OpenPath(from); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	want := r.digest
	if own != nil {
		want = own.Header().Digest
	}
	if found := r.copy.Header().Digest; found != want {
		return inputf("copy %s has bundle %s, expected %s", from, found, want)
	}
	return nil
}

// openOutput opens the file or device for writing, alone.
func (r *repairer) openOutput(st os.FileInfo) error {
	if !st.Mode().IsRegular() {
		var err error
		r.out, err = openDevice(r.path, st, r.copy.Header().FileSize())
		return err
	}
	f, err := os.OpenFile(r.path, os.O_RDWR, 0)
	if err != nil {
		return inputf("bundle: %w", err)
	}
	r.out = f
	if err := fsutil.LockFile(f); err != nil {
		return inputf("bundle %s: another refit is writing it", r.path)
	}
	return nil
}

// repairHeader writes the header of the copy. Its digest is the one that the user named.
func (r *repairer) repairHeader(broken error) error {
	h := r.copy.Header()
	r.Header = h
	if err := r.write(h.Raw, 0); err != nil {
		return fmt.Errorf("repair %s: %w", r.path, err)
	}
	r.report(bundlereader.Damage{Length: h.HeaderSize(), Chunk: -1, Err: broken}, nil)
	var err error
	r.damaged, err = bundlereader.OpenOf(r.digest, r.in, bundlereader.UnknownSize)
	return err
}

// write writes verified bytes over a damaged range.
func (r *repairer) write(b []byte, at int64) error {
	failpoint.Here(failpoint.MediumCopy)
	if _, err := r.out.WriteAt(b, at); err != nil {
		return err
	}
	fsutil.WriteOut(r.out, at, int64(len(b)))
	r.Ranges, r.Bytes = r.Ranges+1, r.Bytes+int64(len(b))
	return nil
}

func (r *repairer) repair(d bundlereader.Damage) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	good, err := d.Want, error(nil)
	switch {
	case r.copy == nil:
		err = d.Err
	case d.Chunk >= 0:
		good, err = r.copy.ReadChunk(d.Chunk, r.buf)
	}
	if err != nil {
		r.Unrepaired = append(r.Unrepaired, err)
		r.report(d, err)
		return nil
	}
	if d.Chunk >= 0 {
		r.buf = good[:cap(good)]
	}
	if err := r.write(good, d.Offset); err != nil {
		return err
	}
	r.report(d, nil)
	return nil
}

// cutEnd cuts what follows the end of the bundle in a file.
func (r *repairer) cutEnd() error {
	st, err := r.in.Stat()
	size := r.Header.FileSize()
	if err != nil || !r.regular || st.Size() <= size {
		return err
	}
	d := bundlereader.Damage{Offset: size, Length: st.Size() - size, Chunk: -1, Err: bundlereader.CheckSize(st.Size(), size)}
	if r.out == nil {
		r.Unrepaired = append(r.Unrepaired, d.Err)
		r.report(d, d.Err)
		return nil
	}
	r.Ranges++
	r.report(d, nil)
	return r.out.Truncate(size)
}

// finish syncs and reads the result back.
func (r *repairer) finish() error {
	size := r.Header.FileSize()
	if err := errors.Join(r.out.Sync(), fsutil.DropCache(r.out)); err != nil {
		return err
	}
	if len(r.Unrepaired) > 0 {
		return nil
	}
	back, err := bundlereader.OpenOf(r.Header.Digest, io.NewSectionReader(r.in, 0, size), size)
	if err == nil {
		err = bundlereader.Verify(r.ctx, back, func(done, total int64) { r.progress(total+done, 2*total) })
	}
	if err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	return nil
}
