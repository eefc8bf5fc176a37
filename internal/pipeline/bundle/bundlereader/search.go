package bundlereader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/refit-dev/refit/internal/filesystem"
	"github.com/refit-dev/refit/internal/text"
)

// Limits of what Search reads, so that a medium that is made to keep it busy does not.
const (
	// maxSearchReads is how many reads of a medium there are, of any length.
	maxSearchReads = 500_000
	// maxSearchBytes is how many bytes are read: the headers of the largest bundles, and directories.
	maxSearchBytes = 512 << 20
)

// Survey is what Search found on a medium. Its texts have no control characters.
type Survey struct {
	// Found are the bundles, at most 20.
	Found []Found
	// FileSystems are the file systems that were searched, as people know them.
	FileSystems []string
	// Partitions are the numbers of the partitions that were searched.
	Partitions []int
	// Files is how many files were checked, More that there are others.
	Files int
	More  bool
	// Problems are why something was not searched, Err the first error of the medium itself.
	Problems []string
	Err      error
}

// Search finds the bundles on a medium of size bytes, raw or in its file systems. It reads a
// bounded part of the medium and stops when ctx ends; a survey is the result in any case.
// The agent calls it in a process without privileges.
func Search(ctx context.Context, r io.ReaderAt, size int64) Survey {
	b := &boundedReader{ctx: ctx, r: r, reads: maxSearchReads, bytes: maxSearchBytes}
	raw, err := isBundle(b)
	switch {
	case err != nil && b.failure() == nil:
		return Survey{Problems: []string{err.Error()}, More: true}
	case err != nil:
		return Survey{Err: err}
	case raw:
		f := Found{size: UnknownSize}
		f.Header, f.Err = Summary(b)
		return Survey{Found: []Found{f}, Err: b.failure()}
	}
	m := openMedium("", b, size)
	m.stopped = b.stopped
	m.collect()
	if n := len(m.parts.files) + len(m.parts.damaged); n > 0 {
		m.problems = append(m.problems, text.Count(n, "part")+" of a bundle: make one file or stick of all parts with refit bundle write")
	}
	s := Survey{Found: m.found, Files: min(m.files, maxFiles), More: m.files > maxFiles, Problems: m.problems, Err: b.failure()}
	for _, v := range m.volumes {
		s.FileSystems = append(s.FileSystems, text.CleanLine(v.String()))
		if v.partition > 0 {
			s.Partitions = append(s.Partitions, v.partition)
		}
	}
	if err := b.stopped(); err != nil {
		s.Problems, s.More = append(s.Problems, err.Error()), true
	}
	return s
}

// Name returns the place of a bundle that Search found: the path in its file system, after
// PARTITION: if there are partitions. It is empty if the bundle starts with the medium's first byte.
func (f Found) Name() string { return f.name }

// Size returns the size of the file in bytes, UnknownSize for a bundle without a file system.
func (f Found) Size() int64 { return f.size }

// Extents returns where a bundle in a file system is on the medium, at most limit extents.
func (f Found) Extents(limit int) ([]filesystem.Extent, error) {
	file, ok := f.file.(filesystem.File)
	if !ok {
		return nil, errors.New("the bundle is not in a file system")
	}
	list, err := file.Extents(limit)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if !list[i].Zeros {
			list[i].At += f.start
		}
	}
	return list, nil
}

// errSearchLimit ends the search of a medium that needs too many reads.
var errSearchLimit = errors.New("the search ended: the medium needs too many reads")

// boundedReader reads until its bounds or its context end.
type boundedReader struct {
	ctx context.Context
	r   io.ReaderAt

	mu           sync.Mutex
	reads, bytes int64
	failed       error
}

// stopped returns why nothing is read any more.
func (b *boundedReader) stopped() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.ctx.Err() != nil:
		return errors.New("the search ended: the medium is too slow or has too many files")
	case b.reads <= 0 || b.bytes <= 0:
		return errSearchLimit
	}
	return nil
}

// failure returns the first error of the medium.
func (b *boundedReader) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}

// ReadAt implements io.ReaderAt.
func (b *boundedReader) ReadAt(p []byte, off int64) (int, error) {
	if err := b.stopped(); err != nil {
		return 0, err
	}
	n, err := b.r.ReadAt(p, off)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads--
	b.bytes -= int64(n)
	if err != nil && !errors.Is(err, io.EOF) && b.failed == nil {
		b.failed = fmt.Errorf("read at byte %d: %w", off, err)
	}
	return n, err
}
