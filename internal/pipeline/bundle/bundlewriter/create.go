package bundlewriter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// PartialSuffix marks an output that is not complete. A second run with the
// same inputs goes on with it.
const PartialSuffix = ".partial"

// parallelCopies bounds how many blobs are copied at a time.
const parallelCopies = 4

// Create makes a bundle. progress (may be nil) gets bytes of blobs; it is
// called by several goroutines at the same time. The result is the header of
// what was written. Errors: *InputError, *SpaceError, errors of sources and
// disk, the context's.
//
// After a crash or an error the unfinished output stays next to out, and the next run with
// the same inputs reads only the missing parts from the sources.
func Create(ctx context.Context, out string, o Options, progress func(done, total int64)) (*bundle.Header, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	o.scratch = filepath.Dir(out)
	in, err := open(ctx, o.Sources)
	defer in.close()
	if err != nil {
		return nil, err
	}
	p, err := makePlan(ctx, in, &o)
	if err != nil {
		return nil, err
	}
	if err := checkChart(&p.meta, o.Warn); err != nil {
		return nil, err
	}
	if o.Accept != nil {
		if err := o.Accept(&p.meta); err != nil {
			return nil, err
		}
	}
	f, err := openPartial(out, p.end)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	w := newWriter(f, p, progress)
	if err := w.copyAll(ctx); err != nil {
		return nil, fmt.Errorf("create bundle %s: %w", out, err)
	}
	h, err := w.header(&o)
	if err != nil {
		return nil, fmt.Errorf("create bundle %s: %w", out, err)
	}
	if err := commit(f, out, h); err != nil {
		return nil, fmt.Errorf("create bundle %s: %w", out, err)
	}
	return h, nil
}

// openPartial opens the unfinished output for us alone, if there is room.
func openPartial(out string, size int64) (*os.File, error) {
	f, err := os.OpenFile(out+PartialSuffix, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, inputf("output: %w", err)
	}
	if err := fsutil.LockFile(f); err != nil {
		f.Close()
		return nil, inputf("output %s: another refit is writing it", out)
	}
	if err := checkSpace(f, out, size); err != nil {
		if st, e := f.Stat(); e == nil && st.Size() == 0 {
			os.Remove(f.Name())
		}
		f.Close()
		return nil, err
	}
	return f, f.Truncate(size)
}

// checkSpace compares what is free with what is still to be written.
func checkSpace(f *os.File, out string, size int64) error {
	room, err := fsutil.RoomAt(filepath.Dir(out))
	if err != nil {
		return fmt.Errorf("output %s: %w", out, err)
	}
	held, err := fsutil.Allocated(f)
	if err != nil {
		return fmt.Errorf("output %s: %w", out, err)
	}
	if need := size - held; need > room.Free {
		return &SpaceError{Path: filepath.Dir(out), Needed: need, Free: room.Free}
	}
	return nil
}

// commit puts the complete output under its name, durably.
func commit(f *os.File, out string, h *bundle.Header) error {
	if _, err := f.WriteAt(h.Raw, 0); err != nil {
		return err
	}
	return fsutil.Commit(f, out)
}

// writer fills the output.
type writer struct {
	f        *os.File
	p        *plan
	table    []byte
	first    []int64 // chunk number of each blob's first chunk
	offsets  []int64
	unpacked []int64
	total    int64
	done     atomic.Int64
	progress func(done, total int64)
}

func newWriter(f *os.File, p *plan, progress func(done, total int64)) *writer {
	w := &writer{f: f, p: p, table: make([]byte, p.table), unpacked: make([]int64, len(p.blobs)), progress: progress}
	at, chunk := p.header, int64(0)
	for _, b := range p.meta.Blobs {
		w.offsets = append(w.offsets, at+bundle.BlockSize)
		w.first = append(w.first, chunk)
		at += bundle.BlockSize + bundle.PaddedSize(b.Size)
		chunk += bundle.ChunkCount(b.Size, p.meta.ChunkSize)
		w.total += b.Size
	}
	return w
}

func (w *writer) copyAll(ctx context.Context) error {
	// what an earlier run left where header and end go must not pass for them
	if _, err := w.f.WriteAt(make([]byte, bundle.BlockSize), 0); err != nil {
		return err
	}
	if _, err := w.f.WriteAt(make([]byte, bundle.EndSize), w.p.end-bundle.EndSize); err != nil {
		return err
	}
	g, groupCtx := errgroup.WithContext(ctx)
	g.SetLimit(parallelCopies)
	for i := range w.p.blobs {
		if groupCtx.Err() != nil {
			break
		}
		g.Go(func() error { return w.copyBlob(groupCtx, i) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// header makes the header now that all is known, signed if there is a key.
func (w *writer) header(o *Options) (*bundle.Header, error) {
	m := &w.p.meta
	for i, n := range w.unpacked {
		m.Blobs[i].UnpackedSize = n
	}
	for i := range m.Images {
		for _, b := range m.Images[i].Blobs {
			m.Images[i].UnpackedSize += w.unpacked[b]
		}
	}
	raw, err := bundle.Marshal(m, w.table)
	if err != nil {
		return nil, err
	}
	if int64(len(raw)) != w.p.header {
		return nil, fmt.Errorf("the header has %d bytes and was planned with %d: this is a defect of refit", len(raw), w.p.header)
	}
	h, err := bundle.ParseHeader(raw)
	if err != nil {
		return nil, fmt.Errorf("the sources make no valid bundle: %w", err)
	}
	if o.Key == nil {
		return h, nil
	}
	env, err := bundle.Sign(o.Key, h.Digest, m.Name, m.Version)
	if err != nil {
		return nil, err
	}
	return h.WithSignature(env)
}

// errNotThere says that an earlier run did not finish a blob.
var errNotThere = errors.New("not there")
