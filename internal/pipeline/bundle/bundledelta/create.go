package bundledelta

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

// Create writes a delta that makes target of base, to the file out. Memory is bounded: the index
// of 64 MiB, encoders, and mapped files that the kernel may drop. The unpacked blobs that one
// patch needs are on the disk of out meanwhile. progress (may be nil) gets bytes of both bundles.
func Create(ctx context.Context, base, target *bundlereader.File, out string, progress func(done, total int64)) error {
	if err := checkBase(base); err != nil {
		return err
	}
	c := &creator{ctx: ctx, base: base, target: target, total: base.Header().FileSize()}
	return c.write(preamble{format: formatVersion, Base: base.Header().Digest}, out, progress)
}

// CreateFrom writes a delta that makes target, to the file out, without the blobs that a bundle of an
// inventory has. The content of that bundle is not needed, so there are no patches.
func CreateFrom(ctx context.Context, s Saving, target *bundlereader.File, out string, progress func(done, total int64)) error {
	if n := len(target.Header().Metadata.Blobs); len(s.Has) != n {
		return fmt.Errorf("create delta %s: the saving is of %d blobs, the bundle has %d", out, len(s.Has), n)
	}
	c := &creator{ctx: ctx, target: target, has: s.Has}
	return c.write(preamble{format: sameVersion, Base: s.Bundle.Digest}, out, progress)
}

type creator struct {
	ctx          context.Context //nolint:containedctx // as long as Create
	base, target *bundlereader.File
	// has are the blobs of the target that the base has, if base is nil.
	has         []bool
	out         *os.File
	dir         string
	progress    func(done, total int64)
	done, total int64

	at      int64 // end of out
	data    hash.Hash
	refs    []ref          // of the base, by blob; Size -1: cannot be unpacked
	inBase  map[string]int // blobs of the base by digest
	catalog catalog
}

// write writes the delta to the file out.
func (c *creator) write(pre preamble, out string, progress func(done, total int64)) error {
	if err := checkBase(c.target); err != nil {
		return err
	}
	o, err := newOutput(out)
	if err != nil {
		return err
	}
	if progress == nil {
		progress = func(int64, int64) {}
	}
	c.out, c.dir, c.progress = o.File, filepath.Dir(out), progress
	c.total += c.target.Header().FileSize()
	if err = c.all(pre); err == nil {
		err = o.commit()
	}
	if err = o.finish(err); err != nil {
		return fmt.Errorf("create delta %s: %w", out, err)
	}
	return nil
}

func (c *creator) count(n int64) {
	c.done += n
	c.progress(c.done, c.total)
}

func (c *creator) all(pre preamble) error {
	h := c.target.Header()
	pre.Target, pre.Size = h.Digest, h.FileSize()
	c.at = preambleSize
	var err error
	if pre.Header, err = c.packed(h.Raw); err != nil {
		return err
	}
	if c.base != nil {
		if err := c.learnBase(); err != nil {
			return err
		}
	}
	from := c.at
	c.data = sha256.New()
	var lines bytes.Buffer
	if err := c.line(&lines, planHead{tools()}); err != nil {
		return err
	}
	for i := range h.Metadata.Blobs {
		p, err := c.blob(i)
		if err == nil {
			err = c.line(&lines, p)
		}
		if err != nil {
			return fmt.Errorf("blob %s of %s: %w", h.Metadata.Blobs[i].Digest, h.UserOf(i), err)
		}
		if p.Patch != nil && p.Patch.Tokens != nil {
			pre.format = tokenVersion
		}
		c.count(bundle.BlockSize + bundle.PaddedSize(h.Metadata.Blobs[i].Size))
	}
	pre.Data = section{c.at - from, c.at - from, bundle.FormatDigest([sha256.Size]byte(c.data.Sum(nil)))}
	if pre.Plan, err = c.packed(lines.Bytes()); err != nil {
		return err
	}
	// Last, so that an interrupted copy does not pass for a delta.
	_, err = c.out.WriteAt(pre.marshal(), 0)
	return err
}

func (c *creator) line(to *bytes.Buffer, v any) error {
	b, err := json.Marshal(v)
	to.Write(append(b, '\n'))
	return err
}

// packed appends b to the output, in zstd.
func (c *creator) packed(b []byte) (section, error) {
	s := section{Size: int64(len(b)), Digest: bundle.DigestOf(b)}
	from := c.at
	err := c.pack(bytes.NewReader(b), s.Size, io.NewOffsetWriter(c.out, c.at), &c.at)
	s.Length = c.at - from
	return s, err
}

// pack writes r, of size bytes, in zstd to w, and adds its length to at.
func (c *creator) pack(r io.Reader, size int64, w io.Writer, at *int64) error {
	n := &countWriter{w: w}
	z, err := newEncoder(n, size, window)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(z, withContext{c.ctx, r}, make([]byte, bufferSize))
	if err = errors.Join(err, z.Close()); err != nil {
		return err
	}
	*at += n.n
	return nil
}

type countWriter struct {
	w io.Writer
	n int64
}

func (c *countWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// appendData appends what r has to the data.
func (c *creator) appendData(r io.Reader) error {
	n, err := io.CopyBuffer(io.MultiWriter(io.NewOffsetWriter(c.out, c.at), c.data), r, make([]byte, bufferSize))
	c.at += n
	return err
}

// learnBase unpacks all blobs of the base once, for their sketches.
func (c *creator) learnBase() error {
	blobs := c.base.Header().Metadata.Blobs
	c.inBase, c.catalog = map[string]int{}, catalog{}
	limit := max(minFeatures, min(maxFeatures, allFeatures/max(1, len(blobs))))
	for i, b := range blobs {
		c.inBase[b.Digest] = i
		packed, err := packingOf(c.base, i)
		if err != nil {
			return fmt.Errorf("base: %w", err)
		}
		s := newSketcher(limit)
		n, err := c.measure(c.base, i, packed, s)
		var corrupt *bundle.CorruptError
		if errors.As(err, &corrupt) || c.ctx.Err() != nil {
			return fmt.Errorf("base: %w", err)
		}
		c.refs = append(c.refs, ref{Blob: i, Packed: packed, Size: n})
		if err == nil {
			c.catalog.add(i, s.sketch())
		}
		c.count(bundle.BlockSize + bundle.PaddedSize(b.Size))
	}
	return nil
}

// packingOf tells how a blob is packed.
func packingOf(f *bundlereader.File, blob int) (string, error) {
	head := make([]byte, 4)
	n, err := io.ReadFull(f.Blob(blob), head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", err
	}
	return packing(head[:n]), nil
}

// measure unpacks a blob into w and returns its unpacked size.
func (c *creator) measure(f *bundlereader.File, blob int, packed string, w io.Writer) (int64, error) {
	in, err := unpack(withContext{c.ctx, f.Blob(blob)}, packed)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	return io.CopyBuffer(w, in, make([]byte, bufferSize))
}

// blob appends what blob i of the target needs.
func (c *creator) blob(i int) (piece, error) {
	blob := c.target.Header().Metadata.Blobs[i]
	if c.has != nil && c.has[i] {
		return piece{Same: true}, nil
	}
	if have, ok := c.inBase[blob.Digest]; ok {
		return piece{Copy: &have}, nil
	}
	if c.base != nil {
		p, err := c.patch(i, blob)
		if err != nil || p != nil {
			return piece{Patch: p}, err
		}
	}
	whole, err := c.whole(i)
	return piece{Data: &whole}, err
}

// whole appends the blob itself.
func (c *creator) whole(i int) (int64, error) {
	from := c.at
	to := io.MultiWriter(io.NewOffsetWriter(c.out, c.at), c.data)
	err := c.pack(c.target.Blob(i), c.target.Header().Metadata.Blobs[i].Size, to, &c.at)
	return c.at - from, err
}

// patch appends a patch for the blob, if there is one that is smaller than the blob. A nil patch
// without an error means that there is none.
func (c *creator) patch(i int, blob bundle.Blob) (*patch, error) {
	packed, err := packingOf(c.target, i)
	if err != nil || packed == packedZstd {
		return nil, err
	}
	f, err := fsutil.Unnamed(c.dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := newSketcher(maxFeatures)
	size, err := c.measure(c.target, i, packed, io.MultiWriter(f, s))
	if err != nil {
		return nil, c.unlessPacked(packed, err)
	}
	p := &patch{differences: differences{Size: size}}
	for _, old := range c.catalog.similar(s.sketch()) {
		p.Refs = append(p.Refs, c.refs[old])
	}
	if p.oldSize() == 0 || size == 0 {
		return nil, nil
	}
	return c.patchContent(i, blob, p, packed, f)
}

// patchContent appends a patch that makes what f has.
func (c *creator) patchContent(i int, blob bundle.Blob, p *patch, packed string, f *os.File) (_ *patch, err error) {
	content, unmap, err := fsutil.Map(f, p.Size)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unmap()) }()
	spool, err := fsutil.Unnamed(c.dir)
	if err != nil {
		return nil, err
	}
	defer spool.Close()
	if err := p.spool(c.ctx, c.baseBlob(p), spool); err != nil {
		return nil, err
	}
	parts, err := c.diff(&p.differences, spool, p.oldSize(), content, window)
	defer func() { parts.close() }()
	if err != nil {
		return nil, err
	}
	if packed == packedGzip {
		more, err := c.packLayer(i, blob, p, content, spool)
		parts = append(parts, more...)
		if err != nil || p.Gzip == nil && p.Tokens == nil || p.length() >= blob.Size {
			return nil, err
		}
	}
	return p, c.appendParts(parts)
}

// baseBlob reads the blobs of a patch.
func (c *creator) baseBlob(p *patch) func(n int) (io.Reader, error) {
	return func(n int) (io.Reader, error) { return c.base.Blob(p.Refs[n].Blob), nil }
}

// unlessPacked drops the error of a layer that does not unpack: the delta has it as it is.
func (c *creator) unlessPacked(packed string, err error) error {
	var corrupt *bundle.CorruptError
	if packed == "" || errors.As(err, &corrupt) || c.ctx.Err() != nil {
		return err
	}
	return nil
}

// diff makes the three streams of a patch, which make content of what a file has. Close them.
func (c *creator) diff(d *differences, file *os.File, size int64, content []byte, most int) (parts streams, err error) {
	var old []byte
	if size > 0 {
		var unmap func() error
		if old, unmap, err = fsutil.Map(file, size); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, unmap()) }()
	}
	for range 3 {
		s, err := newStream(c.ctx, c.dir, d.Size, most)
		if err != nil {
			return parts, err
		}
		parts = append(parts, s)
	}
	if err := writePatch(newIndex(old), content, patchStreams{parts[0], parts[1], parts[2]}); err != nil {
		return parts, err
	}
	for i, length := range []*int64{&d.Control, &d.Diff, &d.Extra} {
		if *length, err = parts[i].end(); err != nil {
			return parts, err
		}
	}
	return parts, nil
}

// appendParts appends streams that have ended.
func (c *creator) appendParts(parts streams) error {
	for _, s := range parts {
		if err := c.appendData(s.f); err != nil {
			return err
		}
	}
	return nil
}

type streams []*stream

func (s streams) close() {
	for _, one := range s {
		one.f.Close()
	}
}

// stream packs to a file without a name.
type stream struct {
	ctx context.Context //nolint:containedctx // as long as Create
	f   *os.File
	z   io.WriteCloser
}

func newStream(ctx context.Context, dir string, size int64, most int) (*stream, error) {
	f, err := fsutil.Unnamed(dir)
	if err != nil {
		return nil, err
	}
	z, err := newEncoder(f, size, most)
	if err != nil {
		f.Close()
		return nil, err
	}
	return &stream{ctx, f, z}, nil
}

func (s *stream) Write(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.z.Write(p)
}

// end ends the stream and returns its length; then f is at its beginning.
func (s *stream) end() (int64, error) {
	if err := s.z.Close(); err != nil {
		return 0, err
	}
	n, err := s.f.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = s.f.Seek(0, io.SeekStart)
	}
	return n, err
}
