package bundledelta

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

// Restore makes the target of a delta of its base, in the file out. The file gets its name when
// all its bytes are verified and on disk. progress (may be nil) gets bytes of the target.
// Errors: *BaseError, *MissingError, *DamagedError, *bundlewriter.SpaceError, *bundle.CorruptError of
// the base.
func Restore(ctx context.Context, base *bundlereader.File, d *Delta, out string, progress func(done, total int64)) error {
	if found := base.Header().Digest; found != d.Base() {
		return &BaseError{Found: found, Want: d.Base(), Target: d.target.Digest}
	}
	if err := checkBase(base); err != nil {
		return err
	}
	pieces, err := resolve(base.Header(), d)
	if err != nil {
		return err
	}
	if err := checkRoom(out, d.target.FileSize()+d.SpoolSize()); err != nil {
		return err
	}
	o, err := newOutput(out)
	if err != nil {
		return err
	}
	if progress == nil {
		progress = func(int64, int64) {}
	}
	r := &restorer{ctx: ctx, base: base, d: d, pieces: pieces, out: o.File, dir: filepath.Dir(out), progress: progress}
	err = r.all()
	r.drop()
	if err == nil {
		err = o.commit()
	}
	if err = o.finish(err); err != nil {
		return fmt.Errorf("restore %s: %w", out, err)
	}
	return nil
}

// resolve checks that the base has the blobs that the delta names. It returns the plan with the
// places of blobs that the delta names by digest.
func resolve(base *bundle.Header, d *Delta) ([]piece, error) {
	blobs := base.Metadata.Blobs
	place := make(map[string]int, len(blobs))
	for i, b := range blobs {
		place[b.Digest] = i
	}
	pieces := slices.Clone(d.plan.pieces)
	var missing []int
	for i, p := range pieces {
		switch {
		case p.Same:
			at, ok := place[d.target.Metadata.Blobs[i].Digest]
			if !ok {
				missing = append(missing, i)
			}
			pieces[i] = piece{Copy: &at}
		case p.Copy != nil:
			if *p.Copy >= len(blobs) || blobs[*p.Copy].Digest != d.target.Metadata.Blobs[i].Digest {
				return nil, damaged("plan", "blob %d is not blob %d of the base", i, *p.Copy)
			}
		case p.Patch != nil:
			if err := checkRefs(blobs, i, p.Patch.Refs); err != nil {
				return nil, err
			}
		}
	}
	if missing != nil {
		return nil, &MissingError{Base: base.Digest, Target: d.target, Blobs: missing}
	}
	return pieces, nil
}

// checkRefs checks that the base has the blobs that the patch of blob i uses.
func checkRefs(base []bundle.Blob, i int, refs []ref) error {
	for _, r := range refs {
		if r.Blob >= len(base) || r.Packed == "" && r.Size != base[r.Blob].Size {
			return damaged("plan", "blob %d needs a blob %d of %d bytes, the base has none", i, r.Blob, r.Size)
		}
	}
	return nil
}

type restorer struct {
	ctx      context.Context
	base     *bundlereader.File
	d        *Delta
	pieces   []piece // of d, without those that name no place
	out      *os.File
	dir      string
	progress func(done, total int64)
	// old has the unpacked refs.
	old  *os.File
	refs []ref
}

func (r *restorer) drop() {
	if r.old != nil {
		r.old.Close()
	}
	r.old, r.refs = nil, nil
}

func (r *restorer) all() error {
	h := r.d.target
	if _, err := r.out.WriteAt(h.Raw, 0); err != nil {
		return err
	}
	for i := range h.Metadata.Blobs {
		if err := r.blob(i); err != nil {
			return err
		}
	}
	return r.out.Truncate(h.FileSize()) // the end of the archive is zeros
}

// blob writes a blob with its tar header. What follows it up to the next one is zeros.
func (r *restorer) blob(i int) error {
	h := r.d.target
	blob := h.Metadata.Blobs[i]
	head := bundle.TarHeader(bundle.BlobPath(blob.Digest), blob.Size)
	at := h.BlobOffset(i)
	if _, err := r.out.WriteAt(head[:], at-bundle.BlockSize); err != nil {
		return err
	}
	w := newBlobWriter(r, i)
	p := r.pieces[i]
	var err error
	switch {
	case p.Copy != nil:
		err = r.copy(w, *p.Copy)
	case p.Data != nil:
		err = r.data(w, r.d.at[i], *p.Data)
	default:
		err = r.patch(w, r.d.at[i], p.Patch)
	}
	if err == nil {
		err = w.finish()
	}
	if err != nil {
		return r.describe(i, err)
	}
	return nil
}

// errOther says that what came out is not the blob.
var errOther = errors.New("other bytes")

// describe names what is wrong: the disk, the base, or the delta.
func (r *restorer) describe(i int, err error) error {
	var corrupt *bundle.CorruptError
	switch {
	case errors.As(err, &corrupt):
		return fmt.Errorf("base: %w", err)
	case fsutil.IsFull(err), r.ctx.Err() != nil, errors.Is(err, os.ErrClosed):
		return err
	}
	h := r.d.target
	e := &DamagedError{Part: fmt.Sprintf("blob %s of %s", h.Metadata.Blobs[i].Digest, h.UserOf(i)), Found: "cannot be made", Err: err}
	p := r.d.plan.pieces[i]
	if errors.Is(err, errOther) && p.Patch != nil && p.Patch.Gzip != nil {
		e.Found = fmt.Sprintf("cannot be made. If refit bundle verify finds no damage, gzip packs it otherwise here (%s) than where the delta was made (%.200q). Use that refit, or make the delta with this one", tools(), r.d.plan.Tools)
	}
	return e
}

// copy takes a blob of the base as it is; its bytes are compared with the target's chunks.
func (r *restorer) copy(w io.Writer, blob int) error {
	_, err := io.CopyBuffer(w, r.base.Blob(blob), make([]byte, bufferSize))
	return err
}

func (r *restorer) data(w io.Writer, at, length int64) error {
	return unpackData(w, io.NewSectionReader(r.d.r, at, length))
}

// unpackData writes a blob that the delta has whole.
func unpackData(w io.Writer, packed io.Reader) error {
	in, err := newDecoder(packed, window)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.CopyBuffer(w, in, make([]byte, bufferSize))
	return err
}

func (r *restorer) patch(w io.Writer, at int64, p *patch) error {
	if err := r.unpackRefs(p); err != nil {
		return err
	}
	return p.apply(w, r.d.r, at, r.old)
}

// apply writes the blob of a patch, whose streams begin at a place of the delta, given the old bytes and
// their tokens.
func (p *patch) apply(w io.Writer, delta io.ReaderAt, at int64, old io.ReaderAt) error {
	content, err := p.open(delta, at, io.NewSectionReader(old, 0, p.oldSize()), window)
	if err != nil {
		return err
	}
	defer content.Close()
	switch {
	case p.Tokens != nil:
		return p.repack(w, content, delta, at+p.differences.length(), old)
	case p.Gzip == nil:
		return content.copyTo(w)
	}
	g, err := newGzipWriter(w, p.Gzip)
	if err != nil {
		return err
	}
	if err := content.copyTo(g); err != nil {
		return err
	}
	return g.Close()
}

// repack packs the content of a layer with tokens, whose streams begin at a place of the delta.
func (p *patch) repack(w io.Writer, content *patcher, delta io.ReaderAt, at int64, old io.ReaderAt) error {
	t := p.Tokens
	tokens, err := t.open(delta, at, io.NewSectionReader(old, p.oldSize(), p.oldTokens()), tokenWindow)
	if err != nil {
		return err
	}
	defer tokens.Close()
	frames, err := newDecoder(io.NewSectionReader(delta, at+t.length(), t.Frames), tokenWindow)
	if err != nil {
		return err
	}
	defer frames.Close()
	r := newRepacker(w, tokens, frames)
	if err := content.copyTo(r); err != nil {
		return err
	}
	return r.Close()
}

// unpackRefs puts blobs of the base in a row on disk. Those of the blob before may be there.
func (r *restorer) unpackRefs(p *patch) error {
	if r.old != nil && slices.Equal(r.refs, p.Refs) {
		return nil
	}
	r.drop()
	f, err := fsutil.Unnamed(r.dir)
	if err != nil {
		return err
	}
	r.old = f
	if err := p.spool(r.ctx, func(n int) (io.Reader, error) { return r.base.Blob(p.Refs[n].Blob), nil }, f); err != nil {
		return err
	}
	r.refs = p.Refs
	return nil
}

// unpackTo writes an unpacked blob of the base, which blob reads, and its tokens if they are needed. Both have
// the sizes of the reference, else that is an error.
func (r ref) unpackTo(w, tokens io.Writer, blob io.Reader) error {
	if r.Tokens > 0 {
		to, also := &roomWriter{w, r.Size}, &roomWriter{tokens, r.Tokens}
		err := inflate(blob, to, also, nil)
		if err == nil && to.left+also.left > 0 {
			err = fmt.Errorf("%d bytes and %d of tokens are missing", to.left, also.left)
		}
		return err
	}
	in, err := unpack(blob, r.Packed)
	if err != nil {
		return err
	}
	defer in.Close()
	n, err := io.CopyBuffer(w, io.LimitReader(in, r.Size+1), make([]byte, bufferSize))
	if err == nil && n != r.Size {
		err = fmt.Errorf("has %d bytes or more, %d are expected", n, r.Size)
	}
	return err
}

// roomWriter fails if more than a number of bytes is written.
type roomWriter struct {
	w    io.Writer
	left int64
}

func (r *roomWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > r.left {
		return 0, errors.New("has more bytes than are expected")
	}
	n, err := r.w.Write(p)
	r.left -= int64(n)
	return n, err
}

// withContext is a reader that stops when its context ends.
type withContext struct {
	ctx context.Context //nolint:containedctx // as long as the reader
	r   io.Reader
}

func (w withContext) Read(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.r.Read(p)
}

// blobWriter writes a blob to its place and compares each chunk, then the whole.
type blobWriter struct {
	r     *restorer
	blob  int
	at    int64 // in the file
	left  int64 // of the blob
	chunk int   // number of the next chunk that ends
	room  int64 // of the current chunk
	sum   hash.Hash
	whole hash.Hash // nil if one chunk is all
}

func newBlobWriter(r *restorer, i int) *blobWriter {
	h := r.d.target
	first, n := h.Chunks.OfBlob(i)
	size := h.Metadata.Blobs[i].Size
	w := &blobWriter{r: r, blob: i, at: h.BlobOffset(i), left: size, chunk: first, sum: sha256.New()}
	if n > 1 {
		w.whole = sha256.New()
	}
	w.room = min(h.Metadata.ChunkSize, size)
	return w
}

func (w *blobWriter) Write(p []byte) (int, error) {
	if err := w.r.ctx.Err(); err != nil {
		return 0, err
	}
	if int64(len(p)) > w.left {
		return 0, fmt.Errorf("%w: more than %d", errOther, w.r.d.target.Metadata.Blobs[w.blob].Size)
	}
	if _, err := w.r.out.WriteAt(p, w.at); err != nil {
		return 0, err
	}
	if w.whole != nil {
		w.whole.Write(p)
	}
	w.at += int64(len(p))
	for rest := p; len(rest) > 0; {
		n := min(int64(len(rest)), w.room)
		w.sum.Write(rest[:n])
		rest = rest[n:]
		w.left, w.room = w.left-n, w.room-n
		if w.room > 0 {
			break
		}
		if err := w.endChunk(); err != nil {
			return 0, err
		}
	}
	w.r.progress(w.at, w.r.d.target.FileSize())
	return len(p), nil
}

func (w *blobWriter) endChunk() error {
	h := w.r.d.target
	if want := h.Chunks.Chunk(w.chunk).Digest; [sha256.Size]byte(w.sum.Sum(nil)) != want {
		return fmt.Errorf("%w: found sha256:%x, expected sha256:%x in a chunk that ends at offset %d", errOther, w.sum.Sum(nil), want, w.at)
	}
	w.sum.Reset()
	w.chunk++
	w.room = min(h.Metadata.ChunkSize, w.left)
	return nil
}

func (w *blobWriter) finish() error {
	blob := w.r.d.target.Metadata.Blobs[w.blob]
	if w.left > 0 {
		return fmt.Errorf("%w: %d are missing", errOther, w.left)
	}
	if w.whole != nil && bundle.FormatDigest([sha256.Size]byte(w.whole.Sum(nil))) != blob.Digest {
		return fmt.Errorf("%w: the whole blob has digest sha256:%x", errOther, w.whole.Sum(nil))
	}
	return nil
}
