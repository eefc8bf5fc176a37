package bundledelta

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// inflater unpacks gzip and writes the tokens of its deflate streams. It does not compare checksums: what it reads or what
// it makes is compared with digests elsewhere.
type inflater struct {
	in  io.Reader
	buf []byte
	// pos is the next byte of buf; bytes from end on are zeros behind the end of the input.
	pos, end int
	eof      bool
	// acc has the next count bits, the first one lowest.
	acc   uint64
	count uint

	out io.Writer
	// win has the last bytes that came out, up to w; those from done on are not written yet.
	win     []byte
	w, done int
	passed  int64 // bytes that left win
	tokens  *tokenWriter
	frames  *frameWriter // may be nil

	lengths             codeLengths
	literals, distances decodeTable
}

const (
	// inputSlack is how many zeros follow the input, so that eight bytes can always be read.
	inputSlack = 16
	windowSize = maxDistance + 96<<10
)

// inflate unpacks a gzip stream to content, its tokens to tokens, and what else is needed to pack it again to frames, which
// may be nil.
func inflate(r io.Reader, content, tokens io.Writer, frames *frameWriter) error {
	f := &inflater{in: r, buf: make([]byte, bufferSize+inputSlack), out: content, win: make([]byte, windowSize),
		tokens: &tokenWriter{w: tokens, buf: make([]byte, 0, bufferSize)}, frames: frames}
	for first := true; ; first = false {
		if end, err := f.atEnd(); err != nil || end && !first {
			return errors.Join(err, f.close())
		}
		if err := f.member(); err != nil {
			return err
		}
	}
}

// close writes what is left.
func (f *inflater) close() error {
	err := f.slide()
	return errors.Join(err, f.tokens.close(f.w))
}

var errDeflateCut = fmt.Errorf("%w: it ends early", errDeflate)

// member unpacks one member of a gzip stream.
func (f *inflater) member() error {
	if err := f.header(); err != nil {
		return err
	}
	for final := false; !final; {
		var err error
		if final, err = f.block(); err != nil {
			return err
		}
	}
	f.align()
	return f.raw(8)
}

// header passes the header of a member.
func (f *inflater) header() error {
	for {
		head, err := gzipHeader(f.buf[f.pos:f.end])
		switch {
		case err == nil:
			if packing(head) != packedGzip {
				return fmt.Errorf("%w: not a header of gzip", errDeflate)
			}
			return f.raw(len(head))
		case f.eof || f.end-f.pos >= maxGzipHeader:
			return err
		}
		if err := f.fill(); err != nil {
			return err
		}
	}
}

// raw passes bytes that are not deflate.
func (f *inflater) raw(n int) error {
	for f.end-f.pos < n {
		if f.eof {
			return errDeflateCut
		}
		if err := f.fill(); err != nil {
			return err
		}
	}
	if f.frames != nil {
		f.frames.raw(f.buf[f.pos : f.pos+n])
	}
	f.pos += n
	return nil
}

// atEnd reports whether the input has no more bytes.
func (f *inflater) atEnd() (bool, error) {
	for f.pos >= f.end && !f.eof {
		if err := f.fill(); err != nil {
			return false, err
		}
	}
	return f.pos >= f.end, nil
}

// fill reads more input. The eight bytes before pos stay, since align may return them.
func (f *inflater) fill() error {
	if f.eof {
		// Bits behind the end may be in acc, but none of them was used.
		if f.pos-int(f.count/8) > f.end {
			return errDeflateCut
		}
		return nil
	}
	from := max(0, f.pos-8)
	n := copy(f.buf, f.buf[from:f.end])
	f.pos, f.end = f.pos-from, n
	got, err := f.in.Read(f.buf[n : len(f.buf)-inputSlack])
	f.end += got
	f.eof = errors.Is(err, io.EOF)
	clear(f.buf[f.end : f.end+inputSlack])
	if f.eof {
		err = nil
	}
	return err
}

// align drops the bits up to the next byte, and returns whole bytes to the buffer.
func (f *inflater) align() {
	f.pos -= int(f.count / 8)
	f.acc, f.count = 0, 0
}

// refill gets at least 56 bits, if the input has them; zeros follow its end.
func (f *inflater) refill() error {
	for f.pos+8 > f.end && !f.eof {
		if err := f.fill(); err != nil {
			return err
		}
	}
	if f.eof && f.pos > f.end {
		if err := f.fill(); err != nil {
			return err
		}
	}
	if f.pos+8 > len(f.buf) {
		return errDeflateCut
	}
	f.acc |= binary.LittleEndian.Uint64(f.buf[f.pos:]) << f.count
	n := (63 - f.count) / 8
	f.pos, f.count = f.pos+int(n), f.count+8*n
	return nil
}

// bits reads up to 16 bits.
func (f *inflater) bits(n uint) (uint, error) {
	if f.count < n {
		if err := f.refill(); err != nil {
			return 0, err
		}
	}
	v := uint(f.acc & (1<<n - 1))
	f.acc, f.count = f.acc>>n, f.count-n
	if f.frames != nil {
		f.frames.header.add(v, n)
	}
	return v, nil
}

// block unpacks a block.
func (f *inflater) block() (final bool, err error) {
	if f.frames != nil {
		f.frames.header = bitString{}
	}
	from := f.passed + int64(f.w)
	kind, err := f.bits(3)
	if err != nil {
		return false, err
	}
	switch kind >> 1 {
	case storedBlock:
		err = f.stored()
	case fixedBlock:
		err = f.coded(&fixedLengths)
	case dynamicBlock:
		if err = f.lengths.read(f.bits); err == nil {
			err = f.coded(&f.lengths)
		}
	default:
		err = fmt.Errorf("%w: a block of an unknown kind", errDeflate)
	}
	if err == nil && f.frames != nil {
		f.frames.block(f.passed + int64(f.w) - from)
	}
	return kind&1 == 1, err
}

// stored unpacks a block that is not packed.
func (f *inflater) stored() error {
	f.align()
	for f.end-f.pos < 4 {
		if f.eof {
			return errDeflateCut
		}
		if err := f.fill(); err != nil {
			return err
		}
	}
	left := int(binary.LittleEndian.Uint16(f.buf[f.pos:]))
	if left^int(binary.LittleEndian.Uint16(f.buf[f.pos+2:])) != maxStored {
		return fmt.Errorf("%w: a stored block has two lengths", errDeflate)
	}
	f.pos += 4
	for left > 0 {
		if end, err := f.atEnd(); err != nil {
			return err
		} else if end {
			return errDeflateCut
		}
		if f.w == len(f.win) {
			if err := f.slide(); err != nil {
				return err
			}
		}
		n := copy(f.win[f.w:], f.buf[f.pos:min(f.end, f.pos+left)])
		f.w, f.pos, left = f.w+n, f.pos+n, left-n
	}
	return nil
}

// slide writes what came out, and makes room in win.
func (f *inflater) slide() error {
	if _, err := f.out.Write(f.win[f.done:f.w]); err != nil {
		return err
	}
	if drop := f.w - maxDistance; drop > 0 {
		copy(f.win, f.win[drop:f.w])
		f.tokens.from -= drop
		f.w, f.passed = maxDistance, f.passed+int64(drop)
	}
	f.done = f.w
	return nil
}

// coded unpacks a block of codes.
func (f *inflater) coded(l *codeLengths) error {
	if err := f.literals.build(l.literal(), literalEntries[:]); err != nil {
		return err
	}
	if err := f.distances.build(l.distance(), distanceEntries[:]); err != nil {
		return err
	}
	for {
		if f.w > len(f.win)-maxMatch {
			if err := f.slide(); err != nil {
				return err
			}
		}
		if err := f.refill(); err != nil {
			return err
		}
		entry, err := f.literalsAndMatches()
		if err != nil {
			return err
		}
		if entry&entryEnd != 0 {
			return f.checkInput()
		}
	}
}

// checkInput checks that no bits behind the end of the input were used.
func (f *inflater) checkInput() error {
	if f.pos-int(f.count/8) > f.end {
		return errDeflateCut
	}
	return nil
}

// literalsAndMatches decodes until the block ends, win is full, or the input needs care. It returns the entry of the last
// symbol. This is where most of the time goes: its state is in local variables.
func (f *inflater) literalsAndMatches() (entry uint32, err error) {
	acc, count, pos, w := f.acc, f.count, f.pos, f.w
	win, buf := f.win, f.buf[:f.end]
	literals := (*[1 << decodeBits]uint32)(f.literals.entries)
	for w <= len(win)-maxMatch {
		if count < 48 {
			if pos+8 > len(buf) {
				break
			}
			acc |= binary.LittleEndian.Uint64(buf[pos:]) << count
			n := (63 - count) / 8
			pos, count = pos+int(n), count+8*n
		}
		entry = literals[acc&(1<<decodeBits-1)]
		if entry&entryMore != 0 {
			entry = f.literals.entries[uint64(entry>>16)+acc>>decodeBits&(1<<moreBits-1)]
		}
		acc, count = acc>>(entry&63), count-uint(entry&63)
		if entry&entryLiteral != 0 {
			win[w] = byte(entry >> 16)
			w++
			continue
		}
		if entry&entryEnd != 0 {
			break
		}
		var used uint
		if w, used, err = f.match(acc, entry, w); err != nil {
			break
		}
		acc, count = acc>>used, count-used
	}
	f.acc, f.count, f.pos, f.w = acc, count, pos, w
	return entry, err
}

// match copies what the length in an entry and the distance in acc say to place w. It returns the place behind it, and how many bits of
// acc were used.
func (f *inflater) match(acc uint64, entry uint32, w int) (int, uint, error) {
	extra := uint(entry >> 8 & 15)
	length := int(entry>>16) + int(acc&(1<<extra-1))
	acc >>= extra
	d := f.distances.entries[acc&(1<<decodeBits-1)]
	if d&entryMore != 0 {
		d = f.distances.entries[uint64(d>>16)+acc>>decodeBits&(1<<moreBits-1)]
	}
	acc >>= d & 63
	more := uint(d >> 8 & 15)
	distance := int(d>>16) + int(acc&(1<<more-1))
	// An entry that is no symbol has neither a length nor a distance.
	if length < minMatch || length > maxMatch || distance < 1 || distance > w {
		return w, 0, fmt.Errorf("%w: a match of %d bytes, %d before it, after %d", errDeflate, length, distance, f.passed+int64(w))
	}
	if err := f.tokens.match(w, length, distance); err != nil {
		return w, 0, err
	}
	to, from := f.win[w:w+length], f.win[w-distance:]
	if distance >= length {
		copy(to, from)
	} else {
		for i := range to {
			to[i] = from[i]
		}
	}
	return w + length, extra + uint(d&63) + more, nil
}
