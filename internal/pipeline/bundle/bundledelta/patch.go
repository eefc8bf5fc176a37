package bundledelta

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const bufferSize = 64 << 10

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

// patcher makes the new bytes of a patch.
type patcher struct {
	control     *bufio.Reader
	diff, extra io.Reader
	old         io.ReaderAt
	oldSize     int64
	size        int64 // of the new bytes
	out         io.Writer

	done   int64 // bytes of the new ones that are written
	oldEnd int64
	buf    []byte
	// have are old bytes that were read, from the place haveAt on.
	have   []byte
	haveAt int64
	window []byte
}

// errPatch says that a patch was not written by writePatch.
var errPatch = errors.New("patch is damaged")

// apply writes exactly size bytes, or returns an error.
func (p *patcher) apply() error {
	p.buf, p.window = make([]byte, bufferSize), make([]byte, bufferSize)
	for p.done < p.size {
		if err := p.step(); err != nil {
			return err
		}
	}
	for _, r := range []io.Reader{p.control, p.diff, p.extra} {
		if n, err := io.ReadFull(r, p.buf[:1]); n > 0 {
			return fmt.Errorf("%w: bytes after its end", errPatch)
		} else if !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}

func (p *patcher) step() error {
	extra, err := p.length()
	if err != nil {
		return err
	}
	if err := p.copyExtra(extra); err != nil {
		return err
	}
	diff, err := p.length()
	if err != nil {
		return err
	}
	if extra+diff == 0 {
		return fmt.Errorf("%w: an operation without bytes", errPatch)
	}
	if diff == 0 {
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
	at := p.oldEnd + seek
	if at < 0 || at > p.oldSize-diff {
		return fmt.Errorf("%w: a place outside the old bytes", errPatch)
	}
	p.oldEnd = at + diff
	return p.addDiff(at, diff)
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

func (p *patcher) copyExtra(n int64) error {
	for n > 0 {
		b := p.buf[:min(n, bufferSize)]
		if _, err := io.ReadFull(p.extra, b); err != nil {
			return cut(err)
		}
		if err := p.write(b); err != nil {
			return err
		}
		n -= int64(len(b))
	}
	return nil
}

func (p *patcher) addDiff(at, n int64) error {
	for n > 0 {
		old, err := p.oldBytes(at, n)
		if err != nil {
			return err
		}
		b := p.buf[:len(old)]
		if _, err := io.ReadFull(p.diff, b); err != nil {
			return cut(err)
		}
		addBytes(b, old)
		if err := p.write(b); err != nil {
			return err
		}
		at, n = at+int64(len(b)), n-int64(len(b))
	}
	return nil
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

func (p *patcher) write(b []byte) error {
	_, err := p.out.Write(b)
	p.done += int64(len(b))
	return err
}

// oldBytes returns between one and n of the old bytes at a place. It reads ahead, since most
// operations follow one another.
func (p *patcher) oldBytes(at, n int64) ([]byte, error) {
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
