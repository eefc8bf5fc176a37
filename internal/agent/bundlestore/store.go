package bundlestore

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Errors that callers distinguish.
var (
	// ErrBadChunk: the bytes are not those of the chunk. The sender is at fault, and
	// nothing was written.
	ErrBadChunk = errors.New("chunk does not match its digest")
	// ErrAbsent: the chunk or blob is not here.
	ErrAbsent = errors.New("not in the store")
)

// Blob is what a blob must be.
type Blob struct {
	// Digest as sha256:<hex>.
	Digest string
	// Size and ChunkSize in bytes.
	Size, ChunkSize int64
	// Sums are the SHA-256 of its chunks, in order.
	Sums [][32]byte
}

// Chunks is the number of its chunks.
func (b Blob) Chunks() int { return len(b.Sums) }

// span is the offset and length of chunk n.
func (b Blob) span(n int) (off, size int64) {
	off = int64(n) * b.ChunkSize
	return off, min(b.ChunkSize, b.Size-off)
}

func (b Blob) check() error {
	if _, err := hexOf(b.Digest); err != nil {
		return err
	}
	want := int64(0)
	if b.Size > 0 {
		if b.ChunkSize <= 0 {
			return fmt.Errorf("blob %s: chunk size %d is not positive", b.Digest, b.ChunkSize)
		}
		want = (b.Size + b.ChunkSize - 1) / b.ChunkSize
	}
	if int64(len(b.Sums)) != want {
		return fmt.Errorf("blob %s: %d bytes make %d chunks, the table has %d", b.Digest, b.Size, want, len(b.Sums))
	}
	return nil
}

// compare checks that data is chunk n.
func (b Blob) compare(n int, data []byte) error {
	if n < 0 || n >= b.Chunks() {
		return fmt.Errorf("blob %s has no chunk %d", b.Digest, n)
	}
	off, size := b.span(n)
	if int64(len(data)) != size || sha256.Sum256(data) != b.Sums[n] {
		return fmt.Errorf("blob %s, chunk %d at offset %d: %w", b.Digest, n, off, ErrBadChunk)
	}
	return nil
}

// sameChunks reports whether two bundles divide the blob into the same chunks. They may
// differ: each bundle has a chunk size and a chunk table of its own.
func (b Blob) sameChunks(o Blob) bool {
	if b.Size != o.Size || b.ChunkSize != o.ChunkSize || len(b.Sums) != len(o.Sums) {
		return false
	}
	return len(b.Sums) == 0 || &b.Sums[0] == &o.Sums[0] || slices.Equal(b.Sums, o.Sums)
}

func hexOf(digest string) (string, error) {
	h, ok := strings.CutPrefix(digest, "sha256:")
	if _, err := hex.DecodeString(h); !ok || err != nil || len(h) != 64 || strings.ToLower(h) != h {
		return "", fmt.Errorf("%q is not a digest: want sha256: and 64 lower-case hex digits", digest)
	}
	return h, nil
}

// BlobStore is a directory of blobs. Safe for concurrent use by one process.
type BlobStore struct {
	dir string

	mu    sync.Mutex
	parts map[string]*part
}

// BlobsAt is the store in a directory that may be missing: then the store is empty, and its
// first blob creates the directory.
func BlobsAt(dir string) *BlobStore { return &BlobStore{dir: dir, parts: map[string]*part{}} }

// Dir is the store's directory.
func (s *BlobStore) Dir() string { return s.dir }

func (s *BlobStore) path(digest string) string {
	return filepath.Join(s.dir, strings.TrimPrefix(digest, "sha256:"))
}

// Has reports whether the blob is complete.
func (s *BlobStore) Has(digest string) bool {
	if _, err := hexOf(digest); err != nil {
		return false
	}
	_, err := os.Stat(s.path(digest))
	return err == nil
}

// Open opens a complete blob for reading.
func (s *BlobStore) Open(digest string) (*os.File, error) {
	if _, err := hexOf(digest); err != nil {
		return nil, err
	}
	f, err := os.Open(s.path(digest))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("blob %s: %w", digest, ErrAbsent)
	}
	return f, err
}

// Path is the location of a complete blob; callers must only read it.
func (s *BlobStore) Path(digest string) (string, error) {
	if !s.Has(digest) {
		return "", fmt.Errorf("blob %s: %w", digest, ErrAbsent)
	}
	return s.path(digest), nil
}

// part returns the entry of a blob, locked, with the chunks on disk counted in the division
// of b.
func (s *BlobStore) part(b Blob) (*part, error) {
	if err := b.check(); err != nil {
		return nil, err
	}
	for {
		s.mu.Lock()
		p := s.parts[b.Digest]
		if p == nil {
			p = &part{blob: b, final: s.path(b.Digest)}
			s.parts[b.Digest] = p
		}
		s.mu.Unlock()
		p.mu.Lock()
		if p.gone { // removed in between
			p.mu.Unlock()
			continue
		}
		if !p.blob.sameChunks(b) {
			p.reset()
			p.blob = b
		}
		if err := p.countChunks(); err != nil {
			p.mu.Unlock()
			return nil, err
		}
		return p, nil
	}
}

// Put writes chunk n of a blob after comparing it. kept is false if the chunk was here
// already. With the last chunk the blob is synced and gets its final name.
func (s *BlobStore) Put(b Blob, n int, data []byte) (kept bool, err error) {
	if err := b.compare(n, data); err != nil {
		return false, err
	}
	p, err := s.part(b)
	if err != nil {
		return false, err
	}
	defer p.mu.Unlock()
	return p.writeChunk(n, data)
}

// Finish completes a blob that has all its chunks. Only a blob of no bytes needs it, since
// no chunk of it ever arrives.
func (s *BlobStore) Finish(b Blob) error {
	p, err := s.part(b)
	if err != nil {
		return err
	}
	defer p.mu.Unlock()
	if p.done || p.left > 0 {
		return nil
	}
	if err := p.createFile(); err != nil {
		return err
	}
	return p.complete()
}

// Get reads chunk n into buf (which must be large enough for a chunk) and compares it.
// ErrAbsent if it is not here.
func (s *BlobStore) Get(b Blob, n int, buf []byte) ([]byte, error) {
	p, err := s.part(b)
	if err != nil {
		return nil, err
	}
	defer p.mu.Unlock()
	return p.readChunk(n, buf, 0)
}

// recent is how long a chunk that was compared is sent to peers without another comparison.
// Its bytes are usually in memory still; a peer compares what it gets in any case.
const recent = 5 * time.Minute

// getRecent is Get without the comparison of a chunk that was compared a short time ago.
func (s *BlobStore) getRecent(b Blob, n int, buf []byte) ([]byte, error) {
	p, err := s.part(b)
	if err != nil {
		return nil, err
	}
	defer p.mu.Unlock()
	return p.readChunk(n, buf, recent)
}

// HasChunk reports whether chunk n of a blob is here.
func (s *BlobStore) HasChunk(b Blob, n int) bool {
	p, err := s.part(b)
	if err != nil {
		return false
	}
	defer p.mu.Unlock()
	return n >= 0 && n < len(p.have) && p.have[n]
}

// Have reports which chunks of a blob are here.
func (s *BlobStore) Have(b Blob) ([]bool, error) {
	p, err := s.part(b)
	if err != nil {
		return nil, err
	}
	defer p.mu.Unlock()
	out := make([]bool, len(p.have))
	copy(out, p.have)
	return out, nil
}

// List names the complete and the partial blobs, and their bytes on disk.
func (s *BlobStore) List() (map[string]int64, error) {
	es, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("blob store: %w", err)
	}
	out := map[string]int64{}
	for _, e := range es {
		d := "sha256:" + strings.TrimSuffix(e.Name(), partSuffix)
		if _, err := hexOf(d); err != nil {
			continue // not ours
		}
		if st, err := e.Info(); err == nil {
			out[d] += st.Size()
		}
	}
	return out, nil
}

// Remove deletes a blob, complete or partial.
func (s *BlobStore) Remove(digest string) error {
	if _, err := hexOf(digest); err != nil {
		return err
	}
	s.mu.Lock()
	p := s.parts[digest]
	delete(s.parts, digest)
	s.mu.Unlock()
	if p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.reset()
		p.gone = true
	}
	for _, f := range []string{s.path(digest), s.path(digest) + partSuffix} {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("blob %s: %w", digest, err)
		}
	}
	return nil
}
