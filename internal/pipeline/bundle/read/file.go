package read

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// UnknownSize is the size of a device: it may be larger than the bundle on it.
const UnknownSize = -1

// readStep bounds how much memory one unchecked length in a header can cost
// before the bytes for it were really read.
const readStep = 1 << 20

// File is an opened bundle. Its methods may be called at the same time by
// several goroutines.
type File struct {
	r    io.ReaderAt
	size int64
	h    *bundle.Header
	c    io.Closer
}

// Open reads and checks the header of a bundle. size is that of a regular file
// or UnknownSize for a device. Errors: bundle.ErrNotBundle,
// *bundle.CorruptError, *bundle.TooNewError.
func Open(r io.ReaderAt, size int64) (*File, error) {
	var raw []byte
	need := int64(bundle.BlockSize)
	for int64(len(raw)) < need {
		var err error
		if raw, err = grow(r, raw, need); err != nil {
			return nil, err
		}
		if need, err = bundle.HeaderSize(raw); err != nil {
			return nil, err
		}
	}
	h, err := bundle.ParseHeader(raw[:need:need])
	if err != nil {
		return nil, err
	}
	return &File{r: r, size: size, h: h}, nil
}

// grow reads on until raw has need bytes, a step at a time.
func grow(r io.ReaderAt, raw []byte, need int64) ([]byte, error) {
	for int64(len(raw)) < need {
		at := len(raw)
		n := int(min(readStep, max(need-int64(at), 64<<10)))
		raw = append(raw, make([]byte, n)...)
		got, err := r.ReadAt(raw[at:], int64(at))
		raw = raw[:at+got]
		if int64(len(raw)) >= need {
			return raw, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, &bundle.CorruptError{Part: "header", Offset: int64(len(raw)), Found: "cannot be read", Err: err}
		}
		if err != nil {
			return nil, ended(raw)
		}
	}
	return raw, nil
}

// ended tells a truncated bundle from something that never was one.
func ended(raw []byte) error {
	if _, err := bundle.HeaderSize(raw); err != nil {
		return err
	}
	if len(raw) == 0 {
		return fmt.Errorf("%w: it is empty", bundle.ErrNotBundle)
	}
	return &bundle.CorruptError{Part: "header", Offset: int64(len(raw)), Found: "the file ends here: it was not copied completely"}
}

// OpenPath opens a bundle in a file or on a block device. Close it.
func OpenPath(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open bundle: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open bundle: %w", err)
	}
	size := st.Size()
	switch {
	case st.Mode()&os.ModeDevice != 0:
		size = UnknownSize
	case !st.Mode().IsRegular():
		f.Close()
		return nil, fmt.Errorf("open bundle %s: not a regular file or a device", path)
	}
	b, err := Open(f, size)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	b.c = f
	return b, nil
}

// Close closes what OpenPath opened.
func (f *File) Close() error {
	if f.c == nil {
		return nil
	}
	return f.c.Close()
}

// Header is the checked header.
func (f *File) Header() *bundle.Header { return f.h }

// CheckSize says whether a regular file has exactly the bytes of the bundle.
// A device may have more; if it has less, reading finds it.
func (f *File) CheckSize() error {
	want := f.h.FileSize()
	switch {
	case f.size < 0 || f.size == want:
		return nil
	case f.size < want:
		return &bundle.CorruptError{Part: "file", Offset: f.size, Length: want - f.size,
			Found: fmt.Sprintf("ends here, the bundle has %d bytes: it was not copied completely", want)}
	}
	return &bundle.CorruptError{Part: "file", Offset: want, Length: f.size - want, Found: "bytes after the end of the bundle"}
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
		return nil, f.unreadable(c.Blob, at+int64(got), err)
	}
	if sum := sha256.Sum256(buf); sum != c.Digest {
		return nil, f.mismatch(c, sum)
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
