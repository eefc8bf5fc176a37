package bundlewriter

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"

	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// bufferSize is what one blob is read by: larger reads save no processor time, and each worker holds one.
const bufferSize = 256 << 10

var buffers = sync.Pool{New: func() any { b := make([]byte, bufferSize); return &b }}

// copyBlob brings blob i to its place: from what an earlier run left there, or
// from its source.
func (w *writer) copyBlob(ctx context.Context, i int) error {
	b := w.p.blobs[i]
	if err := w.reuse(ctx, i); err == nil || !errors.Is(err, errNotThere) {
		return err
	}
	err := oci.Retry(ctx, b.store, func() error { return w.fetch(ctx, i) })
	if err != nil {
		return fmt.Errorf("blob %s of %s from %s: %w", b.desc.Digest, b.user, b.store, err)
	}
	header := bundle.TarHeader(bundle.BlobPath(b.desc.Digest.String()), b.desc.Size)
	_, err = w.f.WriteAt(header[:], w.offsets[i]-bundle.BlockSize)
	return err
}

// reuse takes a blob that an earlier run has finished: its tar header is
// written last. Its bytes are checked like any other's.
func (w *writer) reuse(ctx context.Context, i int) error {
	b := w.p.blobs[i]
	var have [bundle.BlockSize]byte
	if _, err := w.f.ReadAt(have[:], w.offsets[i]-bundle.BlockSize); err != nil {
		return errNotThere
	}
	if have != bundle.TarHeader(bundle.BlobPath(b.desc.Digest.String()), b.desc.Size) {
		return errNotThere
	}
	// the padding after the blob: an earlier run with other inputs may have had bytes here
	if err := w.clearPadding(i); err != nil {
		return err
	}
	err := w.stream(ctx, i, io.NewSectionReader(w.f, w.offsets[i], b.desc.Size), io.Discard, false)
	if err != nil && ctx.Err() == nil {
		return errNotThere
	}
	return err
}

func (w *writer) clearPadding(i int) error {
	size := w.p.blobs[i].desc.Size
	pad := make([]byte, bundle.PaddedSize(size)-size)
	_, err := w.f.WriteAt(pad, w.offsets[i]+size)
	return err
}

func (w *writer) fetch(ctx context.Context, i int) error {
	b := w.p.blobs[i]
	r, err := b.store.Open(ctx, b.desc)
	if err != nil {
		return oci.Transient(err)
	}
	defer r.Close()
	if err := w.clearPadding(i); err != nil {
		return err
	}
	return w.stream(ctx, i, r, io.NewOffsetWriter(w.f, w.offsets[i]), oci.Verifies(b.store))
}

// stream reads a blob once: hashes it and its chunks, measures it unpacked,
// and writes it to out. It does not hash the whole blob again if r verifies it.
func (w *writer) stream(ctx context.Context, i int, r io.Reader, out io.Writer, verified bool) (err error) {
	b := w.p.blobs[i]
	hs := newHashes(w.p.meta.ChunkSize, b.desc.Size, w.table[w.first[i]*bundle.HashSize:], verified)
	sinks := []io.Writer{hs, out}
	if b.measure {
		m := newSizer(b.desc.Size, w.p.checkLayers)
		defer func() { err = w.noteUnpacked(i, m, err) }()
		sinks = append(sinks, m)
	}
	var counted int64
	defer func() {
		if err != nil {
			w.count(-counted)
		}
	}()
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for left := b.desc.Size; left > 0; {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n, err := io.ReadFull(r, (*buf)[:min(left, bufferSize)])
		if err != nil {
			return oci.Transient(fmt.Errorf("ends after %d of %d bytes: %w", b.desc.Size-left+int64(n), b.desc.Size, err))
		}
		for _, s := range sinks {
			if _, err := s.Write((*buf)[:n]); err != nil {
				return err
			}
		}
		left -= int64(n)
		counted += int64(n)
		w.count(int64(n))
		w.flushBehind(i, b.desc.Size-left, n)
	}
	switch n, err := io.ReadFull(r, (*buf)[:1]); {
	case n > 0:
		return fmt.Errorf("the source has more than the %d bytes that its manifest says", b.desc.Size)
	case !errors.Is(err, io.EOF): // a store that verifies reports other bytes here
		return oci.Transient(fmt.Errorf("the source has other bytes, or fails at its end: %w", err))
	}
	return hs.verify(b.desc.Digest.String())
}

// noteUnpacked ends the measuring of a layer. One that must be unpacked to know its size is
// read again from the bundle.
func (w *writer) noteUnpacked(i int, m *sizer, failed error) error {
	n, ok, err := m.finish(failed)
	if failed != nil {
		return failed
	}
	if err == nil && !ok {
		n, err = unpackedSize(io.NewSectionReader(w.f, w.offsets[i], w.p.blobs[i].desc.Size))
	}
	if err != nil {
		return fmt.Errorf("the layer does not unpack: %w", err)
	}
	w.unpacked[i] = n
	return nil
}

func (w *writer) count(n int64) {
	done := w.done.Add(n)
	if w.progress != nil && n > 0 {
		w.progress(done, w.total)
	}
}

// flushEvery is after how many bytes of a blob the kernel is asked to start writing, so
// that the sync at the end finds little left.
const flushEvery = 16 << 20

func (w *writer) flushBehind(i int, written int64, n int) {
	if from := written / flushEvery * flushEvery; written-int64(n) < from {
		fsutil.WriteOut(w.f, w.offsets[i]+from-flushEvery, flushEvery)
	}
}

// hashes hashes a blob and its chunks. A blob of one chunk is hashed once, and one that its
// store verifies only by chunks.
type hashes struct {
	blob, chunk hash.Hash
	single      bool // the blob is one chunk
	chunkSize   int64
	left        int64 // of the current chunk
	rest        int64 // of the blob
	table       []byte
}

func newHashes(chunkSize, size int64, table []byte, verified bool) *hashes {
	h := &hashes{chunk: sha256.New(), single: size <= chunkSize, chunkSize: chunkSize, left: min(chunkSize, size), rest: size, table: table}
	if !h.single && !verified {
		h.blob = sha256.New()
	}
	return h
}

func (h *hashes) Write(p []byte) (int, error) {
	n := len(p)
	if h.blob != nil {
		h.blob.Write(p)
	}
	for len(p) > 0 {
		take := min(int64(len(p)), h.left)
		h.chunk.Write(p[:take])
		p = p[take:]
		h.left -= take
		h.rest -= take
		if h.left == 0 {
			h.closeChunk()
		}
	}
	return n, nil
}

func (h *hashes) closeChunk() {
	copy(h.table, h.chunk.Sum(nil))
	if h.single {
		return
	}
	h.table = h.table[min(len(h.table), bundle.HashSize):]
	h.chunk.Reset()
	h.left = min(h.chunkSize, h.rest)
}

func (h *hashes) verify(want string) error {
	whole := h.blob
	switch {
	case h.single:
		whole = h.chunk
	case whole == nil:
		return nil
	}
	sum := whole.Sum(nil)
	if got := bundle.FormatDigest([bundle.HashSize]byte(bytes.Clone(sum))); got != want {
		return fmt.Errorf("the source has other bytes, with digest %s", got)
	}
	return nil
}
