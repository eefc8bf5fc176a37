package bundlestore

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
)

const partSuffix = ".part"

// part is a blob that is being filled, or a complete one that is being read.
type part struct {
	blob  Blob
	final string

	mu      sync.Mutex
	counted bool
	done    bool
	gone    bool
	f       *os.File
	have    []bool
	left    int
	// compared is when a chunk was compared with its digest last.
	compared []time.Time
}

// countChunks counts the chunks on disk, unless they are counted. It checks a complete blob
// again every time: if others delete it, it must be wanted again.
func (p *part) countChunks() error {
	if p.counted && (!p.done || p.hasFullSize()) {
		return nil
	}
	p.have, p.compared = make([]bool, p.blob.Chunks()), make([]time.Time, p.blob.Chunks())
	p.left = len(p.have)
	p.done = false
	if p.hasFullSize() {
		p.markAll()
		p.counted = true
		return nil
	}
	// Do not create a file here: most blobs of a bundle are only asked for, and never
	// filled, on a node that does not want them.
	f, err := os.OpenFile(p.final+partSuffix, os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		p.counted = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("partial blob %s: %w", p.blob.Digest, err)
	}
	p.f = f
	if err := p.recount(); err != nil {
		p.reset()
		return err
	}
	if p.left == 0 {
		if err := p.complete(); err != nil {
			return err
		}
	}
	p.counted = true
	return nil
}

// hasFullSize reports whether the complete blob has its final name and size.
func (p *part) hasFullSize() bool {
	st, err := os.Stat(p.final)
	return err == nil && st.Size() == p.blob.Size
}

// createFile makes the partial file.
func (p *part) createFile() error {
	if p.f != nil {
		return nil
	}
	f, err := os.OpenFile(p.final+partSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) { // the directory could not be made when the store was opened
		if err = os.MkdirAll(filepath.Dir(p.final), 0o700); err == nil {
			f, err = os.OpenFile(p.final+partSuffix, os.O_RDWR|os.O_CREATE, 0o600)
		}
	}
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

// recount compares the chunks that an earlier process left behind.
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

// writeChunk writes a chunk that was compared.
func (p *part) writeChunk(n int, data []byte) (bool, error) {
	off, _ := p.blob.span(n)
	if p.done || p.have[n] {
		return false, nil
	}
	if err := p.createFile(); err != nil {
		return false, err
	}
	if _, err := p.f.WriteAt(data, off); err != nil {
		return false, fmt.Errorf("blob %s: %w", p.blob.Digest, err)
	}
	failpoint.Here(failpoint.ChunkWritten)
	p.have[n], p.compared[n] = true, time.Now()
	p.left--
	if p.left > 0 {
		return true, nil
	}
	return true, p.complete()
}

// complete gives a blob its final name. If that fails, its chunks on disk are counted anew
// next time: a blob is complete only under its final name.
func (p *part) complete() error {
	err := p.finish()
	if err != nil {
		p.reset()
	}
	return err
}

// finish syncs, compares the whole blob once more, and gives it the final name.
func (p *part) finish() error {
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
	if err := fsutil.SyncDir(filepath.Dir(p.final)); err != nil {
		return err
	}
	_ = p.f.Close() // synced above; reads open it again
	p.f = nil
	p.markAll()
	return nil
}

// checkWhole is required because bundles share blobs: the chunk table of one bundle must not
// be able to fill a blob of another.
func (p *part) checkWhole() error {
	want, _ := hexOf(p.blob.Digest)
	if len(p.blob.Sums) == 1 && hex.EncodeToString(p.blob.Sums[0][:]) == want {
		return nil
	}
	h := sha256.New()
	if _, err := io.CopyBuffer(h, io.NewSectionReader(p.f, 0, p.blob.Size), make([]byte, min(p.blob.Size+1, 256<<10))); err != nil {
		return fmt.Errorf("blob %s: %w", p.blob.Digest, err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("blob %s: its chunks match the chunk table but make sha256:%s: the bundle's chunk table is wrong", p.blob.Digest, got)
	}
	return nil
}

// readChunk reads a chunk and compares it, unless that was done within recent.
func (p *part) readChunk(n int, buf []byte, recent time.Duration) ([]byte, error) {
	if n < 0 || n >= len(p.have) || !p.have[n] {
		return nil, fmt.Errorf("blob %s, chunk %d: %w", p.blob.Digest, n, ErrAbsent)
	}
	off, size := p.blob.span(n)
	if p.readAt(buf[:size], off) {
		if time.Since(p.compared[n]) < recent {
			return buf[:size], nil
		}
		if sha256.Sum256(buf[:size]) == p.blob.Sums[n] {
			p.compared[n] = time.Now()
			return buf[:size], nil
		}
	}
	p.dropChunk(n)
	return nil, fmt.Errorf("blob %s, chunk %d no longer matches on this disk and is wanted again: %w", p.blob.Digest, n, ErrAbsent)
}

// readAt opens a complete blob for one read only: thousands of blobs must not keep as many
// files open.
func (p *part) readAt(buf []byte, off int64) bool {
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

// dropChunk takes a corrupt chunk out of service. A complete blob becomes a partial one, so
// that its other chunks are not lost.
func (p *part) dropChunk(n int) {
	if p.done {
		_ = os.Rename(p.final, p.final+partSuffix)
		p.reset()
		return
	}
	p.have[n], p.compared[n] = false, time.Time{}
	p.left++
}

// reset makes the next caller count the chunks on disk.
func (p *part) reset() {
	if p.f != nil {
		_ = p.f.Close()
		p.f = nil
	}
	p.counted = false
	p.have, p.compared, p.left, p.done = nil, nil, 0, false
}
