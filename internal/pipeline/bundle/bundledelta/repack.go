package bundledelta

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// repacker packs the content that is written to it along its tokens, to the bytes of which they were read. It searches for
// no matches, so it takes a fraction of the time of an encoder, and packs what any program packed.
type repacker struct {
	out    io.Writer
	frames *bufio.Reader
	tokens io.Reader

	frame frame
	codes *codes // of the block, nil if it is stored
	// left is how much content of the block is still to come. ends is true if the block ends with a code.
	left int64
	ends bool

	records []byte
	space   []byte // of records
	// literals, length and distance are what is left of a record. skip is how much content a match still covers.
	literals, length, distance int
	skip                       int

	acc   uint64
	count uint
	buf   []byte
	n     int
}

const (
	// recordRoom is more than what the longest record takes that is packed at once.
	recordRoom = 1 << 10
	codeMask   = 1<<24 - 1
)

var errTokens = errors.New("tokens of a packed layer are damaged")

// newRepacker packs with what inflate wrote. Write it the content, then Close it.
func newRepacker(out io.Writer, tokens, frames io.Reader) *repacker {
	return &repacker{out: out, frames: bufio.NewReader(frames), tokens: tokens, space: make([]byte, bufferSize), buf: make([]byte, bufferSize+recordRoom)}
}

func (r *repacker) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		if r.left == 0 {
			if err := r.nextFrame(); err != nil {
				return 0, noMoreFrames(err)
			}
			continue
		}
		n, err := r.some(p[:min(int64(len(p)), r.left)])
		if err != nil {
			return 0, err
		}
		p, r.left = p[n:], r.left-int64(n)
	}
	return total, nil
}

func noMoreFrames(err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: more content than blocks", errFrame)
	}
	return err
}

// Close ends the last block and writes what follows it.
func (r *repacker) Close() error {
	for {
		if r.left > 0 {
			return fmt.Errorf("%w: more blocks than content", errFrame)
		}
		if err := r.nextFrame(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
	}
	r.align()
	if err := r.flush(); err != nil {
		return err
	}
	if r.literals > 0 || r.length > 0 || r.skip > 0 || r.nextRecord() == nil {
		return fmt.Errorf("%w: more of them than content", errTokens)
	}
	return nil
}

// nextFrame ends the block and begins the next one, or writes bytes that are no block.
func (r *repacker) nextFrame() error {
	if r.ends {
		if err := r.put(r.codes.end); err != nil {
			return err
		}
		r.ends = false
	}
	if err := r.frame.read(r.frames); err != nil {
		return err
	}
	if r.frame.kind == frameRaw {
		r.align()
		return r.bytes(r.frame.raw)
	}
	return r.begin(&r.frame.header)
}

// begin writes the header of a block, and reads the codes in it.
func (r *repacker) begin(header *bitString) error {
	for i := uint(0); i < header.n; i += 8 {
		n := min(8, header.n-i)
		if err := r.add(uint64(header.b[i/8])&(1<<n-1), n); err != nil {
			return err
		}
	}
	kind, err := header.next(3)
	if err != nil {
		return err
	}
	r.left = r.frame.content
	switch kind >> 1 {
	case storedBlock:
		err = r.beginStored()
	case fixedBlock:
		err = r.beginCoded(&fixedLengths)
	case dynamicBlock:
		var lengths codeLengths
		if err = lengths.read(header.next); err == nil {
			err = r.beginCoded(&lengths)
		}
	default:
		err = fmt.Errorf("%w: a block of an unknown kind", errFrame)
	}
	if err == nil && header.at != header.n {
		err = fmt.Errorf("%w: the header of a block is too long", errFrame)
	}
	return err
}

func (r *repacker) beginStored() error {
	r.codes = nil
	if r.left > maxStored {
		return fmt.Errorf("%w: a stored block of %d bytes", errFrame, r.left)
	}
	r.align()
	n := uint32(r.left)
	return r.bytes(binary.LittleEndian.AppendUint32(nil, n|(n^maxStored)<<16))
}

func (r *repacker) beginCoded(l *codeLengths) error {
	if r.codes == nil {
		r.codes = &codes{}
	}
	r.ends = true
	return r.codes.build(l)
}

// some packs a part of the content, which is not longer than the block. It returns how much it packed: at least a byte.
func (r *repacker) some(p []byte) (int, error) {
	switch {
	case r.skip > 0:
		n := min(r.skip, len(p))
		r.skip -= n
		return n, nil
	case r.literals > 0:
		n := min(r.literals, len(p))
		r.literals -= n
		return n, r.putLiterals(p[:n])
	case r.length > 0:
		return 0, r.putMatch()
	}
	if n, err := r.whole(p); n > 0 || err != nil {
		return n, err
	}
	return 0, r.nextRecord()
}

// nextRecord reads a record.
func (r *repacker) nextRecord() error {
	if len(r.records) < recordSize {
		n := copy(r.space, r.records)
		got, err := io.ReadAtLeast(r.tokens, r.space[n:], recordSize-n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%w: they end early", errTokens)
		}
		if err != nil {
			return err
		}
		r.records = r.space[:n+got]
	}
	record := binary.LittleEndian.Uint32(r.records)
	r.records = r.records[recordSize:]
	if record == 0 {
		return fmt.Errorf("%w: an empty record", errTokens)
	}
	if r.distance = int(record >> 16); r.distance > maxDistance {
		return fmt.Errorf("%w: a distance of %d", errTokens, r.distance)
	}
	if r.distance == 0 {
		r.literals, r.length = int(record&maxLiteralRun), 0
		return nil
	}
	r.literals, r.length = int(record&shortRun), int(record>>8&255)+minMatch
	return nil
}

// putLiterals packs literals, up to maxLiteralRun.
func (r *repacker) putLiterals(p []byte) error {
	if r.codes == nil {
		return r.bytes(p)
	}
	for _, b := range p {
		if err := r.put(r.codes.literal[b]); err != nil {
			return err
		}
	}
	return nil
}

// putMatch packs a match whose literals are packed.
func (r *repacker) putMatch() error {
	if r.codes == nil || int64(r.length) > r.left {
		return fmt.Errorf("%w: a match of %d bytes in a block that has no room for it", errTokens, r.length)
	}
	bits, n, ok := r.codes.match(r.length, r.distance)
	if !ok {
		return errNoCode
	}
	r.skip, r.length = r.length, 0
	return r.add(bits, n)
}

// match returns the bits of a match, up to 48. ok is false if it has no codes.
func (c *codes) match(length, distance int) (bits uint64, n uint, ok bool) {
	symbol := distanceSymbol[distanceIndex(distance)&511]
	l, d := c.length[length-minMatch], c.distance[symbol&31]
	n = uint(l >> 24)
	bits = uint64(l&codeMask) | uint64(d&codeMask)<<n
	n += uint(d >> 24)
	bits |= uint64(distance-int(distanceBase[symbol])) << n
	return bits, n + uint(distanceExtra[symbol]), l != 0 && d != 0
}

var errNoCode = fmt.Errorf("%w: a literal or a match has no code in its block", errTokens)

// whole packs records whose content is in p, which begins with that of the next record. This is where most of the time goes:
// its state is in local variables.
func (r *repacker) whole(p []byte) (at int, err error) {
	if r.codes == nil {
		return 0, nil
	}
	acc, count, n, c := r.acc, r.count, r.n, r.codes
	for err == nil && n <= bufferSize && len(r.records) >= recordSize {
		record := binary.LittleEndian.Uint32(r.records)
		end, length, distance := at+int(record&shortRun), int(record>>8&255)+minMatch, int(record>>16)
		if uint(distance-1) >= maxDistance || end+length > len(p) {
			break
		}
		r.records = r.records[recordSize:]
		for _, b := range p[at:end] {
			code := c.literal[b]
			if code == 0 {
				err = errNoCode
			}
			acc |= uint64(code&codeMask) << count
			if count += uint(code >> 24); count >= 48 {
				binary.LittleEndian.PutUint64(r.buf[n:], acc)
				n, acc, count = n+int(count/8), acc>>(count&^7), count&7
			}
		}
		binary.LittleEndian.PutUint64(r.buf[n:], acc)
		n, acc, count = n+int(count/8), acc>>(count&^7), count&7
		bits, used, ok := c.match(length, distance)
		if !ok {
			err = errNoCode
		}
		acc |= bits << count
		count += used
		binary.LittleEndian.PutUint64(r.buf[n:], acc)
		n, acc, count = n+int(count/8), acc>>(count&^7), count&7
		at = end + length
	}
	r.acc, r.count, r.n = acc, count, n
	return at, err
}

// put adds a code.
func (r *repacker) put(code uint32) error {
	if code == 0 {
		return errNoCode
	}
	return r.add(uint64(code&codeMask), uint(code>>24))
}

// add adds up to 56 bits.
func (r *repacker) add(bits uint64, n uint) error {
	if r.n > bufferSize {
		if err := r.flush(); err != nil {
			return err
		}
	}
	r.acc |= bits << r.count
	r.count += n
	binary.LittleEndian.PutUint64(r.buf[r.n:], r.acc)
	r.n += int(r.count / 8)
	r.acc, r.count = r.acc>>(r.count&^7), r.count&7
	return nil
}

// align fills the last byte with zero bits.
func (r *repacker) align() {
	if r.count > 0 {
		r.buf[r.n] = byte(r.acc)
		r.n++
	}
	r.acc, r.count = 0, 0
}

// bytes adds bytes as they are.
func (r *repacker) bytes(b []byte) error {
	if err := r.flush(); err != nil {
		return err
	}
	_, err := r.out.Write(b)
	return err
}

// flush writes the whole bytes.
func (r *repacker) flush() error {
	_, err := r.out.Write(r.buf[:r.n])
	r.n = 0
	return err
}
