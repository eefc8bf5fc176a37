package bundledelta

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	bufferSize = 64 << 10
	// patchBuffer is what a patcher reads of a stream at a time: many operations are short.
	patchBuffer = 16 << 10
)

// streams of a patch.
type patchStreams struct{ control, diff, extra io.Writer }

// writePatch writes a patch that makes b of the old bytes in ix.
func writePatch(ix *index, b []byte, to patchStreams) error {
	var (
		buf    = make([]byte, bufferSize)
		at     int // in b
		oldEnd int // of the operation before
	)
	return ix.match(b, func(o op) error {
		line := binary.AppendUvarint(buf[:0], uint64(o.extra))
		line = binary.AppendUvarint(line, uint64(o.diff))
		if o.diff > 0 {
			line = binary.AppendVarint(line, int64(o.old-oldEnd))
			oldEnd = o.old + o.diff
		}
		if _, err := to.control.Write(line); err != nil {
			return err
		}
		if _, err := to.extra.Write(b[at : at+o.extra]); err != nil {
			return err
		}
		at += o.extra
		for done := 0; done < o.diff; {
			n := min(len(buf), o.diff-done)
			for i := range n {
				buf[i] = b[at+i] - ix.old[o.old+done+i]
			}
			if _, err := to.diff.Write(buf[:n]); err != nil {
				return err
			}
			at, done = at+n, done+n
		}
		return nil
	})
}

// patcher reads the new bytes of a patch.
type patcher struct {
	control     *bufio.Reader
	diff, extra io.Reader
	old         io.ReaderAt
	oldSize     int64
	size        int64 // of the new bytes

	done int64 // bytes of the new ones that operations made, or will
	// extraLeft and diffLeft are what the operation still makes, at is where its old bytes are.
	extraLeft, diffLeft, at int64
	// have are old bytes that were read, from the place haveAt on.
	have    []byte
	haveAt  int64
	window  []byte
	streams []io.Closer
}

// errPatch says that a patch was not written by writePatch.
var errPatch = errors.New("patch is damaged")

// open reads the new bytes of streams that begin at a place of the delta, with zstd windows of most bytes. Close it.
func (d differences) open(delta io.ReaderAt, at int64, old *io.SectionReader, most uint64) (*patcher, error) {
	p := &patcher{old: old, oldSize: old.Size(), size: d.Size}
	var in [3]*bufio.Reader
	for i, length := range []int64{d.Control, d.Diff, d.Extra} {
		z, err := newDecoder(io.NewSectionReader(delta, at, length), most)
		if err != nil {
			p.Close()
			return nil, err
		}
		p.streams = append(p.streams, z)
		in[i], at = bufio.NewReaderSize(z, patchBuffer), at+length
	}
	p.control, p.diff, p.extra = in[0], in[1], in[2]
	return p, nil
}

// Close closes the streams.
func (p *patcher) Close() {
	for _, s := range p.streams {
		s.Close()
	}
}

// copyTo writes exactly size bytes, or returns an error.
func (p *patcher) copyTo(w io.Writer) error {
	_, err := io.CopyBuffer(w, p, make([]byte, bufferSize))
	return err
}

// Read fills b, except at the end.
func (p *patcher) Read(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		got := 0
		switch {
		case p.extraLeft > 0:
			got, err = p.readExtra(b[n:])
		case p.diffLeft > 0:
			got, err = p.readDiff(b[n:])
		case p.done < p.size:
			err = p.next()
		case n > 0:
			return n, nil
		default:
			return 0, p.end()
		}
		n += got
	}
	return n, err
}

// end checks that the streams end with the new bytes.
func (p *patcher) end() error {
	for _, r := range []io.Reader{p.control, p.diff, p.extra} {
		if n, err := io.ReadFull(r, make([]byte, 1)); n > 0 {
			return fmt.Errorf("%w: bytes after its end", errPatch)
		} else if !errors.Is(err, io.EOF) {
			return err
		}
	}
	return io.EOF
}

// next reads an operation.
func (p *patcher) next() (err error) {
	if p.extraLeft, err = p.length(); err != nil {
		return err
	}
	p.done += p.extraLeft
	if p.diffLeft, err = p.length(); err != nil {
		return err
	}
	p.done += p.diffLeft
	if p.extraLeft+p.diffLeft == 0 {
		return fmt.Errorf("%w: an operation without bytes", errPatch)
	}
	if p.diffLeft == 0 {
		return nil
	}
	seek, err := binary.ReadVarint(p.control)
	if err != nil {
		return cut(err)
	}
	// Both are at most maxSize, so that they do not overflow.
	if seek > maxSize || seek < -maxSize {
		return fmt.Errorf("%w: a place outside the old bytes", errPatch)
	}
	// at is where the old bytes of the operation before end.
	if p.at += seek; p.at < 0 || p.at > p.oldSize-p.diffLeft {
		return fmt.Errorf("%w: a place outside the old bytes", errPatch)
	}
	return nil
}

// length reads how many bytes follow; never more than are missing.
func (p *patcher) length() (int64, error) {
	n, err := binary.ReadUvarint(p.control)
	if err != nil {
		return 0, cut(err)
	}
	if n > uint64(p.size-p.done) {
		return 0, fmt.Errorf("%w: more than %d bytes", errPatch, p.size)
	}
	return int64(n), nil
}

// cut is the error for a stream that ends early.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: ends early", errPatch)
	}
	return err
}

func (p *patcher) readExtra(b []byte) (int, error) {
	n, err := io.ReadFull(p.extra, b[:min(p.extraLeft, int64(len(b)))])
	p.extraLeft -= int64(n)
	if err != nil {
		return n, cut(err)
	}
	return n, nil
}

func (p *patcher) readDiff(b []byte) (int, error) {
	old, err := p.oldBytes(p.at, min(p.diffLeft, int64(len(b))))
	if err != nil {
		return 0, err
	}
	b = b[:len(old)]
	if _, err := io.ReadFull(p.diff, b); err != nil {
		return 0, cut(err)
	}
	addBytes(b, old)
	n := int64(len(old))
	p.at, p.diffLeft = p.at+n, p.diffLeft-n
	return len(old), nil
}

// addBytes adds to each byte of b that of old, which is as long. No byte carries to the next one. It adds eight at a
// time, since most bytes of a delta pass here.
func addBytes(b, old []byte) {
	const high = 0x8080808080808080
	i := 0
	for ; i+8 <= len(b); i += 8 {
		x, y := binary.LittleEndian.Uint64(b[i:]), binary.LittleEndian.Uint64(old[i:])
		binary.LittleEndian.PutUint64(b[i:], (x&^high+y&^high)^(x^y)&high)
	}
	for ; i < len(b); i++ {
		b[i] += old[i]
	}
}

// oldBytes returns between one and n of the old bytes at a place. It reads ahead, since most
// operations follow one another.
func (p *patcher) oldBytes(at, n int64) ([]byte, error) {
	if p.window == nil {
		p.window = make([]byte, bufferSize)
	}
	if at < p.haveAt || at >= p.haveAt+int64(len(p.have)) {
		got, err := p.old.ReadAt(p.window[:min(bufferSize, p.oldSize-at)], at)
		if got == 0 {
			return nil, fmt.Errorf("read the unpacked base: %w", err)
		}
		p.have, p.haveAt = p.window[:got], at
	}
	b := p.have[at-p.haveAt:]
	return b[:min(n, int64(len(b)))], nil
}
