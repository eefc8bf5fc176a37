package blobstore

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/refit-dev/refit/internal/failpoint"
)

// Errors that callers tell apart.
var (
	// ErrBadChunk: the bytes are not those of the chunk. Whoever sent them is
	// wrong; nothing was written.
	ErrBadChunk = errors.New("chunk does not match its digest")
	// ErrAbsent: the chunk or blob is not here.
	ErrAbsent = errors.New("not in the store")
)

// Blob says what a blob must be.
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

func hexOf(digest string) (string, error) {
	h, ok := strings.CutPrefix(digest, "sha256:")
	if _, err := hex.DecodeString(h); !ok || err != nil || len(h) != 64 || strings.ToLower(h) != h {
		return "", fmt.Errorf("%q is not a digest: want sha256: and 64 lower-case hex digits", digest)
	}
	return h, nil
}

// Store is a directory of blobs. Safe for concurrent use by one process.
type Store struct {
	dir string

	mu    sync.Mutex
	parts map[string]*part
}

// Open makes the directory if needed.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("blob store %s: %w", dir, err)
	}
	return &Store{dir: dir, parts: map[string]*part{}}, nil
}

// Dir is the store's directory.
func (s *Store) Dir() string { return s.dir }

func (s *Store) path(digest string) string {
	return filepath.Join(s.dir, strings.TrimPrefix(digest, "sha256:"))
}

// Has reports whether the blob is complete.
func (s *Store) Has(digest string) bool {
	if _, err := hexOf(digest); err != nil {
		return false
	}
	_, err := os.Stat(s.path(digest))
	return err == nil
}

// Open opens a complete blob for reading.
func (s *Store) Open(digest string) (*os.File, error) {
	if _, err := hexOf(digest); err != nil {
		return nil, err
	}
	f, err := os.Open(s.path(digest))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("blob %s: %w", digest, ErrAbsent)
	}
	return f, err
}

// Path is where a complete blob lies; callers must only read it.
func (s *Store) Path(digest string) (string, error) {
	if !s.Has(digest) {
		return "", fmt.Errorf("blob %s: %w", digest, ErrAbsent)
	}
	return s.path(digest), nil
}

// part returns the entry of a blob, with what is on disk counted.
func (s *Store) part(b Blob) (*part, error) {
	s.mu.Lock()
	p := s.parts[b.Digest]
	if p == nil {
		if err := b.check(); err != nil {
			s.mu.Unlock()
			return nil, err
		}
		p = &part{blob: b, final: s.path(b.Digest)}
		s.parts[b.Digest] = p
	}
	s.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p, p.begin()
}

// Put writes chunk n of a blob after comparing it. kept is false if the chunk
// was here already. With the last chunk the blob is synced and gets its name.
func (s *Store) Put(b Blob, n int, data []byte) (kept bool, err error) {
	p, err := s.part(b)
	if err != nil {
		return false, err
	}
	return p.put(n, data)
}

// Finish completes a blob that has all its chunks; only a blob of no bytes
// needs it, since no chunk of it ever arrives.
func (s *Store) Finish(b Blob) error {
	p, err := s.part(b)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done || p.left > 0 {
		return nil
	}
	if err := p.create(); err != nil {
		return err
	}
	return p.complete()
}

// Get reads chunk n into buf (which must have room for a chunk) and compares
// it. ErrAbsent if it is not here.
func (s *Store) Get(b Blob, n int, buf []byte) ([]byte, error) {
	p, err := s.part(b)
	if err != nil {
		return nil, err
	}
	return p.get(n, buf)
}

// HasChunk reports whether chunk n of a blob is here.
func (s *Store) HasChunk(b Blob, n int) bool {
	p, err := s.part(b)
	if err != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return n >= 0 && n < len(p.have) && p.have[n]
}

// Have says which chunks of a blob are here.
func (s *Store) Have(b Blob) ([]bool, error) {
	p, err := s.part(b)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]bool, len(p.have))
	copy(out, p.have)
	return out, nil
}

// List names the complete and the partial blobs, and their bytes on disk.
func (s *Store) List() (map[string]int64, error) {
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
func (s *Store) Remove(digest string) error {
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
		p.close()
	}
	for _, f := range []string{s.path(digest), s.path(digest) + partSuffix} {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("blob %s: %w", digest, err)
		}
	}
	return nil
}

const partSuffix = ".part"

// part is a blob that is being filled, or a complete one that is read.
type part struct {
	blob  Blob
	final string

	mu    sync.Mutex
	began bool
	done  bool
	gone  bool
	f     *os.File
	have  []bool
	left  int
}

func (p *part) begin() error {
	if p.began {
		return nil
	}
	p.have = make([]bool, p.blob.Chunks())
	p.left = len(p.have)
	p.done = false
	if st, err := os.Stat(p.final); err == nil && st.Size() == p.blob.Size {
		p.markAll()
		p.began = true
		return nil
	}
	// Without a partial file nothing is made yet: most blobs of a bundle are
	// only asked for, never filled, on a node that does not want them.
	f, err := os.OpenFile(p.final+partSuffix, os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		p.began = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("partial blob %s: %w", p.blob.Digest, err)
	}
	p.f = f
	if err := p.recount(); err != nil {
		p.close()
		return err
	}
	p.began = true
	if p.left == 0 {
		return p.complete()
	}
	return nil
}

// create makes the partial file.
func (p *part) create() error {
	if p.f != nil {
		return nil
	}
	f, err := os.OpenFile(p.final+partSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("partial blob %s: %w", p.blob.Digest, err)
	}
	if err := f.Truncate(p.blob.Size); err != nil {
		return errors.Join(fmt.Errorf("partial blob %s: %w", p.blob.Digest, err), f.Close())
	}
	p.f = f
	return nil
}

func (p *part) markAll() {
	for i := range p.have {
		p.have[i] = true
	}
	p.left, p.done = 0, true
}

// recount compares what an earlier life of the program left behind.
func (p *part) recount() error {
	st, err := p.f.Stat()
	if err != nil {
		return fmt.Errorf("partial blob %s: %w", p.blob.Digest, err)
	}
	if st.Size() > 0 {
		buf := make([]byte, min(p.blob.ChunkSize, p.blob.Size))
		for n := range p.have {
			off, size := p.blob.span(n)
			if _, err := io.ReadFull(io.NewSectionReader(p.f, off, size), buf[:size]); err != nil {
				continue // shorter than the chunk, or unreadable: wanted again
			}
			if sha256.Sum256(buf[:size]) == p.blob.Sums[n] {
				p.have[n] = true
				p.left--
			}
		}
	}
	if err := p.f.Truncate(p.blob.Size); err != nil {
		return fmt.Errorf("partial blob %s: %w", p.blob.Digest, err)
	}
	return nil
}

func (p *part) put(n int, data []byte) (bool, error) {
	if n < 0 || n >= p.blob.Chunks() {
		return false, fmt.Errorf("blob %s has no chunk %d", p.blob.Digest, n)
	}
	off, size := p.blob.span(n)
	if int64(len(data)) != size || sha256.Sum256(data) != p.blob.Sums[n] {
		return false, fmt.Errorf("blob %s, chunk %d at offset %d: %w", p.blob.Digest, n, off, ErrBadChunk)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return false, fmt.Errorf("blob %s was removed: %w", p.blob.Digest, ErrAbsent)
	}
	if p.done || p.have[n] {
		return false, nil
	}
	if err := p.create(); err != nil {
		return false, err
	}
	if _, err := p.f.WriteAt(data, off); err != nil {
		return false, fmt.Errorf("blob %s: %w", p.blob.Digest, err)
	}
	failpoint.Here(failpoint.ChunkWritten)
	p.have[n] = true
	p.left--
	if p.left > 0 {
		return true, nil
	}
	return true, p.complete()
}

// complete syncs, compares the whole once more, and gives the final name.
func (p *part) complete() error {
	failpoint.Here(failpoint.BlobSync)
	if err := p.f.Sync(); err != nil {
		return fmt.Errorf("blob %s: %w", p.blob.Digest, err)
	}
	if err := p.checkWhole(); err != nil {
		return err
	}
	failpoint.Here(failpoint.BlobRename)
	if err := os.Rename(p.final+partSuffix, p.final); err != nil {
		return fmt.Errorf("blob %s: %w", p.blob.Digest, err)
	}
	if err := syncDir(filepath.Dir(p.final)); err != nil {
		return err
	}
	_ = p.f.Close() // synced above; reads open it again
	p.f = nil
	p.markAll()
	return nil
}

// checkWhole is needed since blobs are shared by bundles: the chunk table of
// one bundle must not be able to fill in a blob of another.
func (p *part) checkWhole() error {
	want, _ := hexOf(p.blob.Digest)
	if len(p.blob.Sums) == 1 && hex.EncodeToString(p.blob.Sums[0][:]) == want {
		return nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(p.f, 0, p.blob.Size)); err != nil {
		return fmt.Errorf("blob %s: %w", p.blob.Digest, err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		p.reset()
		return fmt.Errorf("blob %s: its chunks match the chunk table but make sha256:%s: the bundle's chunk table is wrong", p.blob.Digest, got)
	}
	return nil
}

func (p *part) get(n int, buf []byte) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n < 0 || n >= len(p.have) || !p.have[n] || p.gone {
		return nil, fmt.Errorf("blob %s, chunk %d: %w", p.blob.Digest, n, ErrAbsent)
	}
	off, size := p.blob.span(n)
	if p.read(buf[:size], off) && sha256.Sum256(buf[:size]) == p.blob.Sums[n] {
		return buf[:size], nil
	}
	p.spoilt(n)
	return nil, fmt.Errorf("blob %s, chunk %d no longer matches on this disk and is wanted again: %w", p.blob.Digest, n, ErrAbsent)
}

// read opens a complete blob for one read only: thousands of blobs must not
// keep as many files open.
func (p *part) read(buf []byte, off int64) bool {
	f := p.f
	if f == nil {
		var err error
		if f, err = os.Open(p.final); err != nil {
			return false
		}
		defer f.Close()
	}
	_, err := f.ReadAt(buf, off)
	return err == nil
}

// spoilt takes a chunk that rotted out of service. A complete blob becomes a
// partial one, so that the rest of it is not lost.
func (p *part) spoilt(n int) {
	if p.done {
		_ = os.Rename(p.final, p.final+partSuffix)
		p.reset()
		return
	}
	p.have[n] = false
	p.left++
}

func (p *part) reset() {
	p.close()
	p.gone = false
	p.began = false
	p.have, p.left, p.done = nil, 0, false
}

func (p *part) close() {
	if p.f != nil {
		_ = p.f.Close()
		p.f = nil
	}
	p.gone = true
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync of %s: %w", dir, err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync of %s: %w", dir, err)
	}
	return nil
}
