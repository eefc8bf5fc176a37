package bundlestore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundledelta"
)

// DeltaRestorer makes blobs of a bundle from a delta that is plugged in and from its base. What the
// delta makes is trusted as what a medium has: every chunk is compared before it is stored.
type DeltaRestorer struct {
	plugged *PluggedDelta
	delta   *bundledelta.Delta
	read    DeltaReader
	base    *baseSource // nil if nothing of the base is known here
	// unread is the base on a medium whose header is not approved; nil if base is not.
	unread *Plugged
	set    *MediaSet
	dir    string // for spools
}

// OpenDelta opens a delta that an administrator approved, or trusted keys signed. The base is in the
// library, or on a medium in this node if allowed reports that its header may be parsed.
func (s *MediaSet) OpenDelta(ctx context.Context, d *PluggedDelta, l *Library, allowed func(*bundle.Header) bool) (*DeltaRestorer, error) {
	r := &DeltaRestorer{plugged: d, read: s.deltaReader(), set: s, dir: filepath.Dir(l.dir)}
	var err error
	if r.delta, err = d.open(ctx, r.read); err != nil {
		return nil, err
	}
	if r.base = s.openBase(d.Base(), l, allowed); r.base == nil {
		if m := s.With(d.Base()); m != nil && m.inParts == nil {
			r.unread = m
		}
		return r, nil
	}
	return r, r.delta.CheckBase(r.base.shelf.Bundle())
}

// openBase finds the base of a delta, nil if its header is not at hand.
func (s *MediaSet) openBase(digest string, l *Library, allowed func(*bundle.Header) bool) *baseSource {
	b := &baseSource{shelf: l.Shelf(digest), places: map[string]int{}}
	if m := s.With(digest); m != nil && (b.shelf != nil || m.Header() != nil && allowed(m.Header())) {
		var known *bundle.Header
		if b.shelf != nil {
			known = b.shelf.Bundle()
		}
		f, err := m.Reader(known)
		if err != nil {
			s.Fail(m, err)
			return nil
		}
		b.medium, b.failed = f, func(err error) { s.Fail(m, err) }
		if b.shelf == nil {
			b.shelf = newShelf(f.Header(), l.store)
		}
	}
	if b.shelf == nil {
		return nil
	}
	for i, blob := range b.shelf.Bundle().Metadata.Blobs {
		b.places[blob.Digest] = i
	}
	return b
}

// Header is the header of the bundle that the delta makes.
func (r *DeltaRestorer) Header() *bundle.Header { return r.delta.Target() }

// Missing returns those of some blobs of the bundle that cannot be made, since content of the base is
// neither in this node's store nor on a medium in this node.
func (r *DeltaRestorer) Missing(blobs []int) (out []int) {
	for _, i := range blobs {
		if _, ok := r.sources(i); !ok {
			out = append(out, i)
		}
	}
	return out
}

// MissingBase returns the chunks of the base that are missing for some blobs, and the shelf for them. It
// is nil if this node does not know the base.
func (r *DeltaRestorer) MissingBase(blobs []int) (base *Shelf, chunks []int) {
	if r.base == nil {
		return nil, nil
	}
	asked := map[int]bool{}
	for _, i := range blobs {
		for _, n := range r.baseBlobs(i) {
			if asked[n] || r.base.has(n) {
				continue
			}
			asked[n] = true
			first, count := r.base.shelf.Bundle().Chunks.OfBlob(n)
			for c := first; c < first+count; c++ {
				if !r.base.shelf.Has(c) {
					chunks = append(chunks, c)
				}
			}
		}
	}
	return r.base.shelf, chunks
}

// baseBlobs returns the blobs of the base that make blob i, nil if the base does not have them.
func (r *DeltaRestorer) baseBlobs(i int) []int {
	if _, made := r.delta.Step(i); made {
		return r.delta.BaseBlobs(i)
	}
	if n, ok := r.base.places[r.Header().Metadata.Blobs[i].Digest]; ok {
		return []int{n}
	}
	return nil
}

// sources returns the blobs of the base that make blob i. ok is false if one is not at hand.
func (r *DeltaRestorer) sources(i int) (blobs []int, ok bool) {
	if r.unread != nil {
		return nil, true
	}
	_, made := r.delta.Step(i)
	if r.base == nil {
		return nil, made && len(r.delta.BaseBlobs(i)) == 0
	}
	blobs = r.baseBlobs(i)
	for _, n := range blobs {
		if !r.base.has(n) {
			return nil, false
		}
	}
	return blobs, made || len(blobs) > 0
}

// SpoolSize is how much room making some blobs takes for a while, in bytes.
func (r *DeltaRestorer) SpoolSize(blobs []int) (most int64) {
	for _, i := range blobs {
		if s, ok := r.delta.Step(i); ok {
			most = max(most, s.SpoolSize())
		}
	}
	return most
}

// Restore makes blobs and stores their chunks. It skips blobs that are here and those whose base is
// missing. A blob that comes out wrong is skipped too; several in a row end the work. room is how many
// bytes of the disk the unpacked base may take. Other errors are ErrStore and those of the context.
func (r *DeltaRestorer) Restore(ctx context.Context, to ChunkKeeper, blobs []int, room int64, got func(bytes int64)) error {
	var first error
	bad, row := 0, 0
	for _, i := range blobs {
		if r.isHere(to, i) {
			continue
		}
		sources, ok := r.sources(i)
		if !ok {
			continue
		}
		err := r.restoreBlob(ctx, i, sources, room, &chunkWriter{to: to, header: r.Header(), blob: i, got: got})
		switch {
		case err == nil:
			row = 0
			continue
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrStore):
			return err
		case errors.Is(err, errBase): // it is missing from now on
			continue
		}
		first = cmp.Or(first, err)
		bad++
		if row++; row >= maxUnreadable {
			break
		}
	}
	if first != nil {
		return fmt.Errorf("%d blobs of the delta cannot be made: %w", bad, first)
	}
	return nil
}

// isHere reports whether all chunks of a blob are stored.
func (r *DeltaRestorer) isHere(to ChunkKeeper, i int) bool {
	first, count := r.Header().Chunks.OfBlob(i)
	for n := first; n < first+count; n++ {
		if !to.Has(n) {
			return false
		}
	}
	return true
}

// restoreBlob makes one blob.
func (r *DeltaRestorer) restoreBlob(ctx context.Context, i int, sources []int, room int64, to *chunkWriter) error {
	to.begin()
	step, made := r.delta.Step(i)
	var err error
	if made || r.unread != nil {
		err = r.run(ctx, i, step, sources, room, to)
	} else {
		_, err = io.CopyBuffer(to, r.base.blob(sources[0]), make([]byte, 64<<10))
	}
	complete, failed := to.finish()
	err = cmp.Or(r.base.takeError(), failed, err) // the process says less
	if err == nil && !complete {
		err = errDeltaBlob
	}
	if err == nil || errors.Is(err, ErrStore) || errors.Is(err, errBase) {
		return err
	}
	h := r.Header()
	err = fmt.Errorf("blob %s of %s: %w", h.Metadata.Blobs[i].Digest, h.UserOf(i), err)
	if step.PacksGzip() && errors.Is(err, errDeltaBlob) {
		err = fmt.Errorf("%w. If refit bundle verify finds no damage in the delta, this agent packs gzip otherwise than the refit that made it. Make it with the refit of the nodes, or bring the full bundle", err)
	}
	return err
}

// Times without a new chunk after which a process that makes a blob ends: stallTime, and a second for
// each unpackRate bytes that it unpacks before.
const (
	stallTime  = 5 * time.Minute
	unpackRate = 4 << 20
)

// run runs a step in a process without privileges.
func (r *DeltaRestorer) run(ctx context.Context, i int, step bundledelta.Step, sources []int, room int64, to *chunkWriter) error {
	job := DeltaJob{Step: &step, Delta: placeOf(r.plugged.place), medium: r.plugged.medium}
	if m := r.unread; m != nil {
		job.Base, job.baseMedium = &baseJob{m.Header().Digest, placeOf(m.opened.place), r.Header().Metadata.Blobs[i].Digest}, m.opened.medium
	}
	if step.UsesSpool() {
		if need := step.SpoolSize(); need > room {
			return fmt.Errorf("%w: %w: unpacking content of the base takes %d bytes for a while, %d are free", ErrStore, syscall.ENOSPC, need, max(0, room))
		}
		spool, err := fsutil.Unnamed(r.dir)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrStore, err)
		}
		defer spool.Close()
		job.spool = spool
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stall := stallTime + time.Duration(step.SpoolSize()/unpackRate)*time.Second
	timer := time.AfterFunc(stall, cancel)
	defer timer.Stop()
	to.stored = func() { timer.Reset(stall) }
	err := r.read(ctx, job, r.base.frames(sources), to)
	if r.unread != nil && err != nil && strings.Contains(err.Error(), errBase.Error()) { // the process only says so
		r.set.Fail(r.unread, err)
		r.unread = nil
		return fmt.Errorf("%w: %w", errBase, err)
	}
	return err
}

// errDeltaBlob says that a delta makes other bytes than the bundle has.
var errDeltaBlob = errors.New("the delta makes other bytes than the bundle has: copy it again")

// chunkWriter stores a blob chunk by chunk.
type chunkWriter struct {
	to     ChunkKeeper
	header *bundle.Header
	blob   int
	got    func(bytes int64)
	stored func() // may be nil

	mu        sync.Mutex
	next, end int
	buf       []byte
	err       error
}

func (w *chunkWriter) begin() {
	first, count := w.header.Chunks.OfBlob(w.blob)
	w.next, w.end = first, first+count
}

// finish ends the writing. It returns the first error of it, and whether all chunks came.
func (w *chunkWriter) finish() (complete bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	err = w.err
	w.err = cmp.Or(err, io.ErrClosedPipe)
	return w.next == w.end, err
}

// Write stores each chunk that is complete.
func (w *chunkWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	total := len(p)
	for len(p) > 0 && w.err == nil {
		if w.next == w.end {
			w.err = errDeltaBlob
			break
		}
		size := w.header.Chunks.Chunk(w.next).Size
		n := min(size-int64(len(w.buf)), int64(len(p)))
		w.buf, p = append(w.buf, p[:n]...), p[n:]
		if int64(len(w.buf)) == size {
			w.put()
		}
	}
	if w.err != nil {
		return 0, w.err
	}
	return total, nil
}

func (w *chunkWriter) put() {
	kept, err := w.to.Put(w.next, w.buf)
	switch {
	case errors.Is(err, ErrBadChunk):
		w.err = errDeltaBlob
		return
	case err != nil:
		w.err = fmt.Errorf("%w: %w", ErrStore, err)
		return
	}
	if kept {
		w.got(int64(len(w.buf)))
	}
	w.next, w.buf = w.next+1, w.buf[:0]
	if w.stored != nil {
		w.stored()
	}
	failpoint.Here(failpoint.MediumCopy)
}

// errBase says that content of the base cannot be read any more.
var errBase = errors.New("base of the delta")

// baseSource has blobs of the base of a delta: in this node's store, and on a medium.
type baseSource struct {
	shelf  *Shelf
	medium ChunkReader // nil if the base is on no medium
	// failed records that the medium cannot be read.
	failed func(error)
	// places are the blobs of the base by digest.
	places map[string]int

	mu sync.Mutex
	// err is the last error of reading a blob.
	err error
}

// takeError returns the last error of reading a blob, once.
func (b *baseSource) takeError() error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.err
	b.err = nil
	return err
}

// has reports whether blob i of the base is at hand.
func (b *baseSource) has(i int) bool {
	if b.shelf.HasBlob(i) {
		return true
	}
	first, count := b.shelf.Bundle().Chunks.OfBlob(i)
	for n := first; n < first+count; n++ {
		if (b.medium == nil || !b.medium.Covers(n)) && !b.shelf.Has(n) {
			return false
		}
	}
	return true
}

// frames reads blobs of the base, each after its size in 8 bytes.
func (b *baseSource) frames(blobs []int) io.Reader {
	var all []io.Reader
	for _, i := range blobs {
		size := binary.BigEndian.AppendUint64(nil, uint64(b.shelf.Bundle().Metadata.Blobs[i].Size))
		all = append(all, bytes.NewReader(size), b.blob(i))
	}
	return io.MultiReader(all...)
}

// blob reads a blob of the base; each chunk is compared.
func (b *baseSource) blob(i int) io.Reader {
	first, count := b.shelf.Bundle().Chunks.OfBlob(i)
	return &baseBlob{from: b, next: first, end: first + count}
}

type baseBlob struct {
	from      *baseSource
	next, end int
	buf, rest []byte
}

func (r *baseBlob) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		if r.next == r.end {
			return 0, io.EOF
		}
		var err error
		if r.rest, err = r.from.chunk(r.next, r.buf); err != nil {
			r.from.mu.Lock()
			r.from.err = err
			r.from.mu.Unlock()
			return 0, err
		}
		r.buf = r.rest[:cap(r.rest)]
		r.next++
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// chunk reads chunk n of the base.
func (b *baseSource) chunk(n int, buf []byte) ([]byte, error) {
	if b.shelf.Has(n) {
		if data, err := b.shelf.Get(n); err == nil {
			return data, nil
		}
	}
	if b.medium == nil || !b.medium.Covers(n) {
		return nil, fmt.Errorf("%w: chunk %d of bundle %s: %w", errBase, n, b.shelf.Digest(), ErrAbsent)
	}
	data, err := b.medium.ReadChunk(n, buf)
	if err != nil {
		b.medium = nil
		b.failed(err)
		return nil, fmt.Errorf("%w: %w", errBase, err)
	}
	return data, nil
}
