package bundlewriter

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/text"
)

// maxPartName is how many bytes of the bundle's name and version are in the names of its parts.
const maxPartName = 100

// Split writes a bundle into files of at most size bytes in the directory dir, and reads them
// back. It returns their paths. A part gets its header last and its name when it is complete, so
// that an interrupted copy does not pass for a part. It writes over no file; after an error it
// removes what it wrote. progress gets bytes of both passes.
func Split(ctx context.Context, src, dir string, size int64, progress func(done, total int64)) ([]string, *bundle.Header, error) {
	if progress == nil {
		progress = func(int64, int64) {}
	}
	from, err := bundlereader.OpenPath(src)
	if err != nil {
		return nil, nil, err
	}
	defer from.Close()
	if err := from.CheckSize(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", src, err)
	}
	h := from.Header()
	if size <= bundle.PartHeaderSize {
		return nil, nil, inputf("parts of %d bytes: a part has a header of %d bytes", size, bundle.PartHeaderSize)
	}
	parts, err := bundle.SplitParts(h.Digest, h.FileSize(), size-bundle.PartHeaderSize)
	if err != nil {
		return nil, nil, &InputError{err}
	}
	paths, err := partPaths(dir, h, parts)
	if err != nil {
		return nil, nil, err
	}
	s := splitter{from: from.Unverified(), progress: func(done int64) { progress(done, 2*h.FileSize()) }}
	for i, p := range parts {
		if err = s.write(ctx, p, paths[i]); err != nil {
			break
		}
	}
	if err == nil {
		err = readPartsBack(ctx, h, paths[0], func(done int64) { progress(h.FileSize()+done, 2*h.FileSize()) })
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("split %s into %s: %w", src, dir, err), s.undo())
	}
	return paths, h, nil
}

// partPaths names the parts, and checks that none of the files exists and that there is room.
func partPaths(dir string, h *bundle.Header, parts []bundle.Part) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, inputf("output: %w", err)
	}
	name := text.Prefix(h.Metadata.Name+"-"+h.Metadata.Version, maxPartName)
	var paths []string
	for _, part := range parts {
		p := filepath.Join(dir, partName(name, part))
		if _, err := os.Lstat(p); err == nil {
			return nil, inputf("%s exists already: use an empty directory", p)
		}
		paths = append(paths, p)
	}
	room, err := fsutil.RoomAt(dir)
	if err != nil {
		return nil, inputf("output: %w", err)
	}
	if need := h.FileSize() + int64(len(parts))*bundle.PartHeaderSize; room.Free < need {
		return nil, &SpaceError{Path: dir, Needed: need, Free: room.Free}
	}
	return paths, nil
}

func partName(name string, p bundle.Part) string {
	return fmt.Sprintf("%s.part-%03d-of-%03d", name, p.Number, p.Count)
}

type splitter struct {
	from     io.ReaderAt
	progress func(done int64)
	written  []string
}

// undo removes the parts that were written.
func (s *splitter) undo() error {
	var all error
	for _, p := range s.written {
		if err := os.Remove(p); err != nil && !errors.Is(err, os.ErrNotExist) {
			all = errors.Join(all, err)
		}
	}
	return all
}

// write writes one part, under its name when it is complete.
func (s *splitter) write(ctx context.Context, p bundle.Part, path string) error {
	temp := filepath.Join(filepath.Dir(path), ".refit-"+strings.TrimPrefix(filepath.Base(path), "."))
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	s.written = append(s.written, temp, path)
	err = s.fill(ctx, f, p)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return fsutil.SyncDir(filepath.Dir(path))
}

func (s *splitter) fill(ctx context.Context, f *os.File, p bundle.Part) error {
	sum := sha256.New()
	buf := make([]byte, copySize)
	for done := int64(0); done < p.Length; {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n := min(int64(len(buf)), p.Length-done)
		if got, err := s.from.ReadAt(buf[:n], p.Offset+done); int64(got) < n {
			return fmt.Errorf("read at offset %d: %w", p.Offset+done+int64(got), err)
		}
		sum.Write(buf[:n])
		at := bundle.PartHeaderSize + done
		if _, err := f.WriteAt(buf[:n], at); err != nil {
			return err
		}
		fsutil.WriteOut(f, at, n)
		done += n
		s.progress(p.Offset + done)
	}
	if err := f.Sync(); err != nil {
		return err
	}
	p.Digest = bundle.FormatDigest([sha256.Size]byte(sum.Sum(nil)))
	if _, err := f.WriteAt(p.Header(), 0); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return fsutil.DropCache(f) // the parts are read back from the disk, not from memory
}

func readPartsBack(ctx context.Context, want *bundle.Header, path string, progress func(done int64)) error {
	b, err := bundlereader.OpenPath(path)
	if err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	defer b.Close()
	if b.Header().Digest != want.Digest {
		return fmt.Errorf("read back: found bundle %s, wrote %s", b.Header().Digest, want.Digest)
	}
	if err := bundlereader.Verify(ctx, b, func(done, _ int64) { progress(done) }); err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	return nil
}
