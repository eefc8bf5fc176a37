package bundledelta

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

// Summary is what a delta of size bytes says of its base and its target, in little memory for any
// content of r. size may be bundlereader.UnknownSize. The header of the target has no chunk table.
func Summary(r io.ReaderAt, size int64) (base string, target *bundle.Header, err error) {
	d, err := begin(r)
	if err != nil {
		return "", nil, err
	}
	if err := d.pre.checkFileSize(size); err != nil {
		return "", nil, err
	}
	in, err := newDecoder(d.section(preambleSize, d.pre.Header), window)
	if err != nil {
		return "", nil, &DamagedError{Part: headerPart, Found: "cannot be read", Err: err}
	}
	defer in.Close()
	target, err = d.pre.decodeHeader(in, bundle.ReadSummary)
	return d.pre.Base, target, err
}

// UnpackHead writes the preamble, the header of the target and the plan of a delta, unpacked and
// not verified: ParseHead does that in another process.
func UnpackHead(w io.Writer, r io.ReaderAt) error {
	d, err := begin(r)
	if err != nil {
		return err
	}
	if _, err := w.Write(d.pre.marshal()); err != nil {
		return err
	}
	for _, s := range []struct {
		part   string
		packed io.Reader
		size   int64
	}{{headerPart, d.section(preambleSize, d.pre.Header), d.pre.Header.Size}, {planPart, d.planSection(), d.pre.Plan.Size}} {
		if err := unpackExactly(w, s.packed, s.size); err != nil {
			return &DamagedError{Part: s.part, Found: "cannot be read", Err: err}
		}
	}
	return nil
}

// unpackExactly writes what is packed, which has size bytes, else that is an error.
func unpackExactly(w io.Writer, packed io.Reader, size int64) error {
	in, err := newDecoder(packed, window)
	if err != nil {
		return err
	}
	defer in.Close()
	n, err := io.CopyBuffer(w, io.LimitReader(in, size+1), make([]byte, bufferSize))
	if err == nil && n != size {
		err = fmt.Errorf("it has %d bytes or more, %d are expected", n, size)
	}
	return err
}

// HeaderInHead returns the header of the target in what UnpackHead wrote. It is compared with no
// digest.
func HeaderInHead(head []byte) ([]byte, error) {
	pre, err := parsePreamble(head)
	if err != nil {
		return nil, err
	}
	if int64(len(head)) != preambleSize+pre.Header.Size+pre.Plan.Size {
		return nil, damaged("head", "has another size than the preamble says")
	}
	return head[preambleSize : preambleSize+pre.Header.Size], nil
}

// ParseHead returns the delta to a target, by what UnpackHead wrote. The header of the target is
// compared with its digest before anything of it is decoded. Steps of the delta are run with the
// delta itself.
func ParseHead(target string, head []byte) (*Delta, error) {
	header, err := HeaderInHead(head)
	if err != nil {
		return nil, err
	}
	d := &Delta{}
	if d.pre, err = parsePreamble(head); err != nil {
		return nil, err
	}
	if d.pre.Target != target {
		return nil, damaged("preamble", "names the bundle %s, expected %s", d.pre.Target, target)
	}
	d.target, err = d.pre.decodeHeader(bytes.NewReader(header), func(r io.Reader) (*bundle.Header, error) { return bundle.ReadHeader(r, target) })
	if err != nil {
		return nil, err
	}
	return d, d.readUnpackedPlan(bytes.NewReader(head[preambleSize+len(header):]))
}

// Step makes one blob of the target where neither its header nor the base is at hand. It may
// travel to another process as JSON.
type Step struct {
	// Size of the blob in bytes.
	Size int64 `json:"size"`
	// At is where its data begins in the delta.
	At    int64 `json:"at"`
	Piece piece `json:"piece"`
}

// Step returns the step that makes blob i of the target. ok is false for a blob that the base has.
func (d *Delta) Step(i int) (s Step, ok bool) {
	p := d.plan.pieces[i]
	return Step{Size: d.target.Metadata.Blobs[i].Size, At: d.at[i], Piece: p}, p.Data != nil || p.Patch != nil
}

// BaseBlobs returns the blobs of the base that make blob i of the target, by their numbers in the base.
// Of a blob that the base has without a known number it returns none.
func (d *Delta) BaseBlobs(i int) (out []int) {
	p := d.plan.pieces[i]
	if p.Copy != nil {
		return []int{*p.Copy}
	}
	if p.Patch == nil {
		return nil
	}
	for _, r := range p.Patch.Refs {
		out = append(out, r.Blob)
	}
	return out
}

// CheckBase checks that the plan fits to the header of the base.
func (d *Delta) CheckBase(base *bundle.Header) error {
	if base.Digest != d.pre.Base {
		return &BaseError{Found: base.Digest, Want: d.pre.Base, Target: d.target.Digest}
	}
	_, err := resolve(base, d)
	var missing *MissingError
	if errors.As(err, &missing) { // other sources may have these blobs
		return nil
	}
	return err
}

// UsesSpool reports whether Run needs a spool.
func (s Step) UsesSpool() bool { return s.Piece.Patch != nil }

// PacksGzip reports whether Run packs a layer again. Another version of Go or of the compression
// library may pack it to other bytes.
func (s Step) PacksGzip() bool { return s.Piece.Patch != nil && s.Piece.Patch.Gzip != nil }

// SpoolSize is how many bytes Run writes to its spool.
func (s Step) SpoolSize() int64 {
	if s.Piece.Patch == nil {
		return 0
	}
	return s.Piece.Patch.spoolSize()
}

// Run writes the blob to w, never more than its size, and compares it with nothing. base reads the
// blobs of the base, in the order of BaseBlobs: it is called once for each. spool is an empty file
// for SpoolSize bytes, nil if UsesSpool is false. Memory has a bound that does not depend
// on the delta.
func (s Step) Run(ctx context.Context, delta io.ReaderAt, base func(n int) (io.Reader, error), spool *os.File, w io.Writer) error {
	if err := errors.Join(s.Piece.check(tokenVersion), checkSizes(s.Size, s.At)); err != nil {
		return err
	}
	out := &exactWriter{ctx: ctx, w: w, left: s.Size}
	var err error
	switch p := s.Piece; {
	case p.Data != nil:
		err = unpackData(out, io.NewSectionReader(delta, s.At, *p.Data))
	case p.Patch != nil:
		if err = p.Patch.spool(ctx, base, spool); err == nil {
			err = p.Patch.apply(out, delta, s.At, spool)
		}
	default:
		err = errPiece
	}
	if err == nil && out.left > 0 {
		err = fmt.Errorf("%w: %d are missing", errOther, out.left)
	}
	return err
}

// spool writes the old bytes of a patch to a file, then their tokens.
func (p *patch) spool(ctx context.Context, base func(n int) (io.Reader, error), to *os.File) error {
	content, tokens := int64(0), p.oldSize()
	for n, r := range p.Refs {
		blob, err := base(n)
		if err == nil {
			err = r.unpackTo(io.NewOffsetWriter(to, content), io.NewOffsetWriter(to, tokens), withContext{ctx, blob})
		}
		if err != nil {
			return fmt.Errorf("unpack blob %d of the base: %w", r.Blob, err)
		}
		content, tokens = content+r.Size, tokens+r.Tokens
	}
	return nil
}

// exactWriter fails if more than a number of bytes is written, or if its context has ended.
type exactWriter struct {
	ctx  context.Context //nolint:containedctx // as long as Run
	w    io.Writer
	left int64
}

func (e *exactWriter) Write(p []byte) (int, error) {
	if err := e.ctx.Err(); err != nil {
		return 0, err
	}
	if int64(len(p)) > e.left {
		return 0, fmt.Errorf("%w: more than expected", errOther)
	}
	n, err := e.w.Write(p)
	e.left -= int64(n)
	return n, err
}

// RunWithBase is Run with the whole base. It also makes blobs that the base has; blob is the digest
// of the one to make. wrap may mark the errors of reading the base.
func (s Step) RunWithBase(ctx context.Context, delta io.ReaderAt, base *bundlereader.File, wrap func(io.Reader) io.Reader, blob string, spool *os.File, w io.Writer) error {
	blobs := base.Header().Metadata.Blobs
	if p := s.Piece.Patch; p != nil {
		if err := checkRefs(blobs, 0, p.Refs); err != nil {
			return err
		}
		return s.Run(ctx, delta, func(n int) (io.Reader, error) { return wrap(base.Blob(p.Refs[n].Blob)), nil }, spool, w)
	}
	if s.Piece.Data != nil {
		return s.Run(ctx, delta, nil, nil, w)
	}
	n := slices.IndexFunc(blobs, func(b bundle.Blob) bool { return b.Digest == blob })
	if n < 0 {
		return damaged(planPart, "the base has no blob %s", blob)
	}
	_, err := io.CopyBuffer(&exactWriter{ctx: ctx, w: w, left: s.Size}, wrap(base.Blob(n)), make([]byte, bufferSize))
	return err
}
