package bundledelta

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The tokens of a deflate stream are records of four bytes, without the literals themselves and without the borders of blocks:
// so a small change of the content changes few records.
//
//	literals   length-3   distance (2 bytes, least significant first)    then a match follows
//	literals (2 bytes)    0 0                                            no match follows
const (
	recordSize = 4
	// maxLiteralRun is how many literals a record without a match has at most; those with a match have up to shortRun.
	maxLiteralRun = 1<<16 - 1
	shortRun      = 1<<8 - 1
)

// tokenWriter writes records.
type tokenWriter struct {
	w   io.Writer
	buf []byte
	// from is where the next literals begin; it may be negative.
	from int
}

// match adds the literals up to a place, and a match there.
func (t *tokenWriter) match(at, length, distance int) error {
	literals := at - t.from
	t.from = at + length
	if literals > shortRun || len(t.buf)+recordSize > cap(t.buf) {
		if err := t.literals(literals); err != nil {
			return err
		}
		if literals > shortRun {
			literals = 0
		}
	}
	t.buf = binary.LittleEndian.AppendUint32(t.buf, uint32(literals)|uint32(length-minMatch)<<8|uint32(distance)<<16)
	return nil
}

// literals makes room for a record, and adds those for a number of literals that are too many for it.
func (t *tokenWriter) literals(n int) error {
	if n <= shortRun {
		return t.flush()
	}
	for n > 0 {
		if len(t.buf)+2*recordSize > cap(t.buf) {
			if err := t.flush(); err != nil {
				return err
			}
		}
		run := min(n, maxLiteralRun)
		t.buf = binary.LittleEndian.AppendUint32(t.buf, uint32(run))
		n -= run
	}
	return nil
}

func (t *tokenWriter) flush() error {
	_, err := t.w.Write(t.buf)
	t.buf = t.buf[:0]
	return err
}

// close adds the literals up to the end.
func (t *tokenWriter) close(at int) error {
	n := at - t.from
	for n > 0 {
		if err := t.flush(); err != nil {
			return err
		}
		run := min(n, maxLiteralRun)
		t.buf = binary.LittleEndian.AppendUint32(t.buf, uint32(run))
		n -= run
	}
	return t.flush()
}

// bitString is a row of bits, the first one lowest in the first byte.
type bitString struct {
	b []byte
	n uint // bits
	// at is the next bit to read.
	at uint
}

func (s *bitString) add(v, n uint) {
	for i := range n {
		if s.n%8 == 0 {
			s.b = append(s.b, 0)
		}
		s.b[s.n/8] |= byte(v>>i&1) << (s.n % 8)
		s.n++
	}
}

var errFrame = errors.New("frame of a packed layer is damaged")

// next reads bits.
func (s *bitString) next(n uint) (v uint, err error) {
	if n > s.n-s.at {
		return 0, fmt.Errorf("%w: the header of a block ends early", errFrame)
	}
	for i := range n {
		v |= uint(s.b[s.at/8]>>(s.at%8)&1) << i
		s.at++
	}
	return v, nil
}

// Kinds of frames.
const (
	frameRaw   = 0
	frameBlock = 1
	// maxRaw bounds a raw frame in bytes.
	maxRaw = maxGzipHeader
)

// frameWriter writes what a packed layer has in addition to its tokens: the headers of blocks, and bytes that are not deflate.
type frameWriter struct {
	w      io.Writer
	header bitString // of the block
	err    error
}

func (f *frameWriter) write(b []byte) {
	if f.err == nil {
		_, f.err = f.w.Write(b)
	}
}

// raw adds bytes as they are.
func (f *frameWriter) raw(b []byte) {
	f.write(append(binary.AppendUvarint([]byte{frameRaw}, uint64(len(b))), b...))
}

// block adds a block of some bytes of content.
func (f *frameWriter) block(content int64) {
	b := binary.AppendUvarint([]byte{frameBlock}, uint64(content))
	b = binary.AppendUvarint(b, uint64(f.header.n))
	f.write(append(b, f.header.b...))
}

// frame is what frameWriter wrote once.
type frame struct {
	kind byte
	raw  []byte // of a raw frame
	// content and header are those of a block.
	content int64
	header  bitString
}

// read reads the next frame into f. At the end of the frames the error is io.EOF.
func (f *frame) read(r *bufio.Reader) (err error) {
	if f.kind, err = r.ReadByte(); err != nil {
		return err
	}
	var n uint64
	switch f.kind {
	case frameRaw:
		if n, err = frameNumber(r, 1, maxRaw); err != nil {
			return err
		}
		f.raw, err = readShort(r, f.raw, int(n))
		return err
	case frameBlock:
		if n, err = frameNumber(r, 0, maxSize); err != nil {
			return err
		}
		f.content = int64(n)
		if n, err = frameNumber(r, 3, maxHeaderBits); err != nil {
			return err
		}
		f.header.n, f.header.at = uint(n), 0
		f.header.b, err = readShort(r, f.header.b, int(n+7)/8)
		return err
	}
	return fmt.Errorf("%w: kind %d", errFrame, f.kind)
}

// frameNumber reads a number between two others.
func frameNumber(r *bufio.Reader, least, most uint64) (uint64, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return 0, noFrameEnd(err)
	}
	if n < least || n > most {
		return 0, fmt.Errorf("%w: %d is not from %d to %d", errFrame, n, least, most)
	}
	return n, nil
}

// readShort reads n bytes, which are few, into b.
func readShort(r io.Reader, b []byte, n int) ([]byte, error) {
	b = append(b[:0], make([]byte, n)...)
	_, err := io.ReadFull(r, b)
	return b, noFrameEnd(err)
}

func noFrameEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: ends early", errFrame)
	}
	return err
}
