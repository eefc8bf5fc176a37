package bundlereader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/refit-dev/refit/internal/filesystem"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
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
	// Deltas are the delta bundles, at most 20. They have no header: package bundledelta reads it.
	Deltas []Found
	// Parts are those of bundles in parts, at most 256, and Headers what these bundles say of
	// themselves, where the parts on the medium have the whole header.
	Parts   []FoundPart
	Headers []*bundle.Header
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
	case BeginsDelta(b):
		return Survey{Deltas: []Found{{file: b, size: UnknownSize}}, Err: b.failure()}
	}
	m := &medium{stopped: b.stopped}
	if !m.parts.add(b, "", UnknownSize) { // a part may begin with the first byte, as a bundle does
		m = openMedium("", b, size)
		m.stopped, m.keepDeltas = b.stopped, true
		m.collect()
	}
	s := Survey{Found: m.found, Deltas: m.deltas, Files: min(m.files, maxFiles), More: m.files > maxFiles, Problems: m.problems}
	s.addParts(&m.parts)
	s.Err = b.failure()
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

// addParts adds the parts of a medium, each once, and the headers in them.
func (s *Survey) addParts(pool *partPool) {
	for _, d := range pool.damaged {
		s.problem(d.Err)
	}
	for _, group := range bundle.GroupParts(pool.files) {
		group, torn := bundle.IntactParts(group)
		if torn != nil {
			s.problem(torn)
		}
		if len(group) == 0 {
			continue
		}
		if len(s.Parts)+len(group) > bundle.MaxParts {
			s.More = true
			return
		}
		for _, p := range group {
			s.Parts = append(s.Parts, FoundPart{Part: p.Part, File: Found{name: p.Name, file: pool.readers[p.Name], size: p.FileSize, start: pool.starts[p.Name]}})
		}
		if j := Join(group[0].Size, pool.pieces(group)); group[0].Number == 1 {
			s.addHeader(group[0], j)
		}
	}
}

// addHeader adds the header of a bundle in parts, unless a part with some of it is elsewhere.
func (s *Survey) addHeader(first bundle.PartFile, j *Joined) {
	h, err := summaryOfParts(first, j)
	switch {
	case errors.Is(err, ErrMissingPart):
		s.problem(fmt.Errorf("the header of bundle %s is not only in %s: put the next parts on the same medium", first.Bundle, first.Part))
	case err != nil:
		s.problem(err)
	case len(s.Headers) < maxFound:
		s.Headers = append(s.Headers, h)
	}
}

func (s *Survey) problem(err error) {
	if len(s.Problems) < maxFound {
		s.Problems = append(s.Problems, text.CleanLine(err.Error()))
	}
}

// FoundPart is a part of a bundle that Search found.
type FoundPart struct {
	Part bundle.Part
	// File is where it is.
	File Found
}

// Name returns the place of a bundle that Search found: the path in its file system, after
// PARTITION: if there are partitions. It is empty if the bundle starts with the medium's first byte.
func (f Found) Name() string { return f.name }

// Size returns the size of the file in bytes, UnknownSize for a bundle without a file system.
func (f Found) Size() int64 { return f.size }

// Reader reads the bytes of the file that Search found, within the bounds of the search.
func (f Found) Reader() io.ReaderAt { return f.file }

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
