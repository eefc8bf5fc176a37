package bundlereader

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// UnknownSize is the size of a device: it may be larger than the bundle on it.
const UnknownSize = -1

// readStep bounds the memory for reading a header again.
const readStep = 1 << 20

// File is an opened bundle. Its methods may be called at the same time by
// several goroutines.
type File struct {
	r    io.ReaderAt
	size int64
	h    *bundle.Header
	c    io.Closer
	// where names the part with an offset, of a bundle in parts; else nil.
	where func(offset, length int64) string
	// joined has the parts of a bundle of which some may be missing; else nil.
	joined *Joined
	// places are the files and devices with the bundle, of OpenPath.
	places []string
}

// Open reads and checks the header of a bundle. size is that of a regular file
// or UnknownSize for a device. Errors: bundle.ErrNotBundle,
// *bundle.CorruptError, *bundle.TooNewError.
func Open(r io.ReaderAt, size int64) (*File, error) { return OpenOf("", r, size) }

// OpenOf is Open for the bundle digest: another one is refused
// (*bundle.OtherBundleError) before anything of it is decoded.
func OpenOf(digest string, r io.ReaderAt, size int64) (*File, error) {
	h, err := bundle.ReadHeader(header(r), digest)
	if err != nil {
		return nil, orDelta(r, err)
	}
	return &File{r: r, size: size, h: h}, nil
}

// Summary is what a bundle says of itself, without its chunk table: it takes little
// memory, for any content of r.
func Summary(r io.ReaderAt) (*bundle.Header, error) {
	h, err := bundle.ReadSummary(header(r))
	return h, orDelta(r, err)
}

// SummaryPath is Summary of a bundle at a path, as OpenPath takes it. wrongSize is
// what CheckSize says of it.
func SummaryPath(path string) (h *bundle.Header, wrongSize, err error) {
	s, err := openPath(path)
	if err != nil {
		return nil, nil, err
	}
	defer s.c.Close()
	if h, err = Summary(s.r); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return h, CheckSize(s.size, h.FileSize()), nil
}

// ListPath returns all bundles at a path, as OpenPath takes it. The error is
// bundle.ErrNotBundle if there is none.
func ListPath(path string) ([]Found, error) {
	if places, part := placesOf(path); places != nil {
		return listPlaces(path, places, part)
	}
	disk, name := SplitPath(path)
	f, size, err := openDisk(disk)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if name == "" {
		if m := searchable(disk, f, size); m != nil {
			if m.search(); len(m.found) > 0 {
				return m.found, nil
			}
			return nil, fmt.Errorf("%s: %w", path, m.noBundle())
		}
	}
	h, wrongSize, err := SummaryPath(path)
	var parts *bundle.PartsError
	if errors.As(err, &parts) {
		return []Found{{Path: path, Err: err}}, nil
	}
	if errors.Is(err, bundle.ErrNotBundle) {
		return nil, err
	}
	if err == nil {
		err = wrongSize
	}
	return []Found{{Path: path, Header: h, Err: err}}, nil
}

// header reads the beginning of r, not much at once: most devices have no bundle.
func header(r io.ReaderAt) io.Reader {
	return bufio.NewReaderSize(io.NewSectionReader(r, 0, bundle.MaxHeaderSize), 64<<10)
}

// OpenPath opens a bundle in a file or on a block device, raw or in a file system. In
// a file system it finds the only bundle; the path DISK#NAME or DISK#PARTITION:NAME
// names a file (SplitPath). A directory has the only bundle in its files. A bundle in parts
// (bundle.Part) is opened by the directory or medium with all parts, by one of its parts, or by
// several places with commas between them. Errors: as Open, *SeveralError,
// *bundle.PartsError. Close the file.
func OpenPath(path string) (*File, error) {
	s, err := openPath(path)
	if err != nil {
		return nil, err
	}
	return s.open()
}

// OpenRaw is OpenPath for a bundle that starts with the first byte of a file or device.
func OpenRaw(path string) (*File, error) {
	f, size, err := openDisk(path)
	if err != nil {
		return nil, err
	}
	return source{r: f, size: size, name: path, c: f}.open()
}

// source is where the bytes of a bundle are.
type source struct {
	r    io.ReaderAt
	size int64
	// name is the path that opens it.
	name  string
	c     io.Closer
	where func(offset, length int64) string
	// paths are those of the parts of a bundle in parts, or that of a bundle that was found.
	paths []string
}

// places returns the files and devices that have the bundle, or its parts.
func (s source) places() (out []string) {
	paths := s.paths
	if len(paths) == 0 {
		paths = []string{s.name}
	}
	for _, p := range paths {
		if disk, _ := SplitPath(p); !slices.Contains(out, disk) {
			out = append(out, disk)
		}
	}
	return out
}

func (s source) open() (*File, error) {
	b, err := Open(s.r, s.size)
	if err != nil {
		s.c.Close()
		return nil, fmt.Errorf("%s: %w", s.name, located(err, s.where))
	}
	b.c, b.where, b.places = s.c, s.where, s.places()
	return b, nil
}

// openPath finds the bytes of a bundle.
func openPath(path string) (source, error) {
	if places, part := placesOf(path); places != nil {
		return openPlaces(path, places, part)
	}
	disk, name := SplitPath(path)
	f, size, err := openDisk(disk)
	if err != nil {
		return source{}, err
	}
	raw := source{r: f, size: size, name: path, c: f}
	m := searchable(disk, f, size)
	if name == "" && m == nil {
		return raw, nil
	}
	if name != "" && m == nil {
		f.Close()
		return source{}, fmt.Errorf("%s: %s has no file system: it begins with a bundle, or cannot be read", path, disk)
	}
	var found Found
	if name == "" {
		found, err = m.one()
	} else {
		found, err = m.named(name)
	}
	var several *SeveralError
	if errors.As(err, &several) {
		f.Close()
		return source{}, err
	}
	if err != nil {
		f.Close()
		return source{}, fmt.Errorf("%s: %w", path, err)
	}
	return source{found.file, found.size, cmp.Or(found.Path, path), f, found.where, found.paths()}, nil
}

// searchable returns the medium in which to search for bundles, or nil if the bundle starts with
// the first byte, or that byte cannot be read.
func searchable(path string, f *os.File, size int64) *medium {
	if raw, err := isBundle(f); raw || err != nil {
		return nil
	}
	if size == UnknownSize {
		var err error
		if size, err = f.Seek(0, io.SeekEnd); err != nil {
			return nil
		}
	}
	return openMedium(path, f, size)
}

// openDisk opens what a bundle may be in, and says its size. It never waits: a
// pipe without a writer, or an empty drive, would keep a blocking open for ever.
func openDisk(path string) (*os.File, int64, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("open bundle: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, fmt.Errorf("open bundle: %w", err)
	}
	switch {
	case st.Mode().IsRegular():
		return f, st.Size(), nil
	case st.Mode()&os.ModeDevice != 0 && st.Mode()&os.ModeCharDevice == 0:
		return f, UnknownSize, nil
	}
	f.Close()
	return nil, 0, fmt.Errorf("open bundle %s: not a regular file or a block device", path)
}

// Close closes what OpenPath opened.
func (f *File) Close() error {
	if f.c == nil {
		return nil
	}
	return f.c.Close()
}

// Places are the files and devices that OpenPath found the bundle in: several for one in parts.
func (f *File) Places() []string { return f.places }

// Header is the checked header.
func (f *File) Header() *bundle.Header { return f.h }

// Unverified reads the bytes of the file as they are on the medium, for a copy that is verified
// when it is complete.
func (f *File) Unverified() io.ReaderAt { return f.r }

// CheckSize says whether a regular file has exactly the bytes of the bundle.
// A device may have more; if it has less, reading finds it.
func (f *File) CheckSize() error { return CheckSize(f.size, f.h.FileSize()) }

// CheckSize compares the size of a regular file, or UnknownSize, with that of the bundle.
func CheckSize(size, want int64) error {
	switch {
	case size < 0 || size == want:
		return nil
	case size < want:
		return &bundle.CorruptError{Part: "file", Offset: size, Length: want - size,
			Found: fmt.Sprintf("ends here, the bundle has %d bytes: it was not copied completely", want)}
	}
	return &bundle.CorruptError{Part: "file", Offset: want, Length: size - want, Found: "bytes after the end of the bundle"}
}

// ReadChunk reads chunk n and verifies it. buf is used if it is large enough.
func (f *File) ReadChunk(n int, buf []byte) ([]byte, error) {
	if n < 0 || n >= f.h.Chunks.Len() {
		return nil, fmt.Errorf("bundle %s: there is no chunk %d, it has %d", f.h.Digest, n, f.h.Chunks.Len())
	}
	c := f.h.Chunks.Chunk(n)
	if int64(cap(buf)) < c.Size {
		buf = make([]byte, c.Size)
	}
	buf = buf[:c.Size]
	at := f.h.BlobOffset(c.Blob) + c.Offset
	if got, err := f.r.ReadAt(buf, at); got < len(buf) {
		return nil, located(f.unreadable(c.Blob, at+int64(got), err), f.where)
	}
	if sum := sha256.Sum256(buf); sum != c.Digest {
		return nil, located(f.mismatch(c, sum), f.where)
	}
	return buf, nil
}

// mismatch is the error for a chunk whose bytes are wrong.
func (f *File) mismatch(c bundle.Chunk, sum [sha256.Size]byte) error {
	if err := f.sameHeader(); err != nil {
		return err
	}
	return &bundle.CorruptError{Part: "blob", Digest: f.h.Metadata.Blobs[c.Blob].Digest, Image: f.h.UserOf(c.Blob),
		Offset: f.h.BlobOffset(c.Blob) + c.Offset, Length: c.Size, Found: fmt.Sprintf("found sha256:%x, expected sha256:%x", sum, c.Digest)}
}

func (f *File) unreadable(blob int, at int64, err error) error {
	e := &bundle.CorruptError{Part: "blob", Digest: f.h.Metadata.Blobs[blob].Digest, Image: f.h.UserOf(blob), Offset: at, Found: "cannot be read", Err: err}
	if errors.Is(err, io.EOF) {
		e.Found, e.Err = "the file or device ends here", nil
	}
	return e
}

// sameHeader reads the header again: another one means that the medium was
// swapped after Open.
func (f *File) sameHeader() error {
	if f.joined != nil && !f.joined.Covers(0, f.h.HeaderSize()) {
		return nil // the header came from elsewhere
	}
	buf := make([]byte, min(readStep, len(f.h.Raw)))
	for at := 0; at < len(f.h.Raw); at += len(buf) {
		want := f.h.Raw[at:min(at+len(buf), len(f.h.Raw))]
		got, err := f.r.ReadAt(buf[:len(want)], int64(at))
		if got < len(want) {
			return &bundle.CorruptError{Part: "header", Offset: int64(at + got), Found: "was readable before and is not now: was the medium removed?", Err: err}
		}
		if i := differs(buf[:len(want)], want); i >= 0 {
			return &bundle.CorruptError{Part: "header", Offset: int64(at + i), Found: "is not what it was when the bundle was opened: was the medium swapped?"}
		}
	}
	return nil
}

// Blob streams a blob; what it returns was verified chunk by chunk.
func (f *File) Blob(i int) io.Reader {
	first, n := f.h.Chunks.OfBlob(i)
	return &blobReader{f: f, next: first, end: first + n}
}

type blobReader struct {
	f         *File
	next, end int
	buf, rest []byte
	err       error
}

func (b *blobReader) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		if err := b.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func (b *blobReader) fill() error {
	if b.err != nil {
		return b.err
	}
	if b.next == b.end {
		return io.EOF
	}
	if b.buf, b.err = b.f.ReadChunk(b.next, b.buf); b.err != nil {
		return b.err
	}
	b.rest = b.buf
	b.next++
	return nil
}
