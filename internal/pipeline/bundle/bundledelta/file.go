package bundledelta

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

// Delta is an opened delta: its preamble, the header of its target and the plan are checked.
type Delta struct {
	r      io.ReaderAt
	c      io.Closer
	pre    preamble
	target *bundle.Header
	plan   plan
	// at is where the data of each piece begins.
	at []int64
}

// Kinds of a blob in a delta.
const (
	KindCopied  = "copied"  // a blob of the base has the same bytes
	KindPatched = "patched" // from blobs of the base
	KindNew     = "new"     // the delta has it whole
)

// IsDelta reports whether the file at a path begins as a delta does.
func IsDelta(path string) bool {
	f, err := fsutil.OpenRegular(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return bundlereader.BeginsDelta(f)
}

// OpenPath opens a delta in a file. Close it.
func OpenPath(path string) (*Delta, error) {
	f, err := fsutil.OpenRegular(path)
	if err != nil {
		return nil, fmt.Errorf("open delta: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open delta: %w", err)
	}
	d, err := Open(f, st.Size())
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	d.c = f
	return d, nil
}

// Open opens a delta of size bytes. Errors: *DamagedError, *TooNewError, that it is none, those
// of the target's header.
func Open(r io.ReaderAt, size int64) (*Delta, error) {
	d, err := begin(r)
	if err != nil {
		return nil, err
	}
	if err := d.pre.checkFileSize(size); err != nil {
		return nil, err
	}
	if err := d.readHeader(); err != nil {
		return nil, err
	}
	return d, d.readPlan()
}

// begin reads the preamble of a delta.
func begin(r io.ReaderAt) (*Delta, error) {
	b := make([]byte, preambleSize)
	n, err := r.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	d := &Delta{r: r}
	d.pre, err = parsePreamble(b[:n])
	return d, err
}

// checkFileSize compares the size of a file with that of the delta in it. A device may have more,
// and its size is bundlereader.UnknownSize.
func (p preamble) checkFileSize(size int64) error {
	if want := p.fileSize(); size != want && size != bundlereader.UnknownSize {
		return damaged("file", "has %d bytes, %d were written: copy it again", size, want)
	}
	return nil
}

// Close closes what OpenPath opened.
func (d *Delta) Close() error {
	if d.c == nil {
		return nil
	}
	return d.c.Close()
}

// Base is the digest of the base.
func (d *Delta) Base() string { return d.pre.Base }

// Target is the header of the bundle that the delta makes.
func (d *Delta) Target() *bundle.Header { return d.target }

// Size is the size of the delta in bytes.
func (d *Delta) Size() int64 { return d.pre.fileSize() }

// Blob says what blob i of the target costs in the delta, in bytes, and its kind.
func (d *Delta) Blob(i int) (cost int64, kind string) {
	p := d.plan.pieces[i]
	switch {
	case p.Copy != nil, p.Same:
		kind = KindCopied
	case p.Patch != nil:
		kind = KindPatched
	default:
		kind = KindNew
	}
	return p.length(), kind
}

// SpoolSize is how many bytes of unpacked blobs Restore has on disk at a time, at most.
func (d *Delta) SpoolSize() int64 {
	var most int64
	for _, p := range d.plan.pieces {
		if p.Patch != nil {
			most = max(most, p.Patch.spoolSize())
		}
	}
	return most
}

func (d *Delta) section(at int64, s section) *io.SectionReader {
	return io.NewSectionReader(d.r, at, s.Length)
}

// readHeader unpacks the header of the target and decodes it.
func (d *Delta) readHeader() error {
	in, err := newDecoder(d.section(preambleSize, d.pre.Header), window)
	if err != nil {
		return &DamagedError{Part: headerPart, Found: "cannot be read", Err: err}
	}
	defer in.Close()
	d.target, err = d.pre.decodeHeader(in, func(r io.Reader) (*bundle.Header, error) { return bundle.ReadHeader(r, d.pre.Target) })
	return err
}

// Parts of a delta in messages.
const (
	headerPart = "header of the bundle"
	planPart   = "plan"
)

// decodeHeader decodes the unpacked header of the target. It has the digest that the delta names,
// else decode returns an error.
func (p preamble) decodeHeader(in io.Reader, decode func(io.Reader) (*bundle.Header, error)) (*bundle.Header, error) {
	sum := sha256.New()
	limited := io.TeeReader(io.LimitReader(in, p.Header.Size+1), sum)
	h, err := decode(limited)
	if err != nil {
		return nil, &DamagedError{Part: headerPart, Found: "cannot be read", Err: err}
	}
	rest, err := io.Copy(io.Discard, limited)
	switch {
	case err != nil:
		return nil, &DamagedError{Part: headerPart, Found: "cannot be read", Err: err}
	case rest > 0 || h.HeaderSize() != p.Header.Size || h.FileSize() != p.Size:
		return nil, damaged(headerPart, "has another size than the preamble says")
	case h.Digest != p.Target || bundle.FormatDigest([sha256.Size]byte(sum.Sum(nil))) != p.Header.Digest:
		return nil, damaged(headerPart, "has another digest than the preamble says")
	}
	return h, nil
}

// planSection is where the packed plan is.
func (d *Delta) planSection() *io.SectionReader {
	return d.section(preambleSize+d.pre.Header.Length+d.pre.Data.Length, d.pre.Plan)
}

// readPlan unpacks the plan and decodes it.
func (d *Delta) readPlan() error {
	in, err := newDecoder(d.planSection(), window)
	if err != nil {
		return &DamagedError{Part: planPart, Found: "cannot be read", Err: err}
	}
	defer in.Close()
	return d.readUnpackedPlan(in)
}

func (d *Delta) readUnpackedPlan(in io.Reader) error {
	sum := sha256.New()
	limited := io.TeeReader(io.LimitReader(in, d.pre.Plan.Size+1), sum)
	lines := bufio.NewReaderSize(limited, maxPlanLine)
	if err := d.decodePlan(lines); err != nil {
		return &DamagedError{Part: planPart, Found: "cannot be decoded", Err: err}
	}
	if rest, err := io.Copy(io.Discard, lines); err != nil || rest > 0 {
		return &DamagedError{Part: planPart, Found: "more lines than blobs", Err: err}
	}
	if bundle.FormatDigest([sha256.Size]byte(sum.Sum(nil))) != d.pre.Plan.Digest {
		return damaged(planPart, "has another digest than the preamble says")
	}
	return nil
}

// decodePlan reads a line for each blob of the target.
func (d *Delta) decodePlan(lines *bufio.Reader) error {
	if err := decodeLine(lines, &d.plan.planHead); err != nil {
		return err
	}
	at := preambleSize + d.pre.Header.Length
	end := at + d.pre.Data.Length
	for i, blob := range d.target.Metadata.Blobs {
		var p piece
		err := decodeLine(lines, &p)
		if err == nil {
			err = p.check(d.pre.format)
		}
		if err != nil {
			return fmt.Errorf("blob %d: %w", i, err)
		}
		if p.length() > end-at {
			return fmt.Errorf("blob %d: more data than the delta has", i)
		}
		if p.Patch != nil && p.Patch.Gzip == nil && p.Patch.Tokens == nil && p.Patch.Size != blob.Size {
			return fmt.Errorf("blob %d: has %d bytes, a patch makes %d", i, blob.Size, p.Patch.Size)
		}
		d.at = append(d.at, at)
		at += p.length()
		d.plan.pieces = append(d.plan.pieces, p)
	}
	if at != end {
		return errors.New("less data than the delta has")
	}
	return nil
}

func decodeLine(r *bufio.Reader, into any) error {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("line cut or above %d bytes: %w", maxPlanLine, err)
	}
	return json.Unmarshal(line, into)
}

// Verify reads the whole delta and compares it with its digests. The bytes of the target are
// verified when it is restored.
func (d *Delta) Verify(ctx context.Context, progress func(done, total int64)) error {
	r := d.section(preambleSize+d.pre.Header.Length, d.pre.Data)
	sum, buf := sha256.New(), make([]byte, 1<<20)
	for done := int64(0); done < d.pre.Data.Length; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := r.Read(buf)
		sum.Write(buf[:n])
		if done += int64(n); progress != nil {
			progress(done, d.pre.Data.Length)
		}
		if err != nil && (!errors.Is(err, io.EOF) || done < d.pre.Data.Length) {
			return &DamagedError{Part: "data", Found: fmt.Sprintf("cannot be read after %d bytes", done), Err: err}
		}
	}
	if bundle.FormatDigest([sha256.Size]byte(sum.Sum(nil))) != d.pre.Data.Digest {
		return damaged("data", "has another digest than the preamble says: copy the file again")
	}
	return nil
}
