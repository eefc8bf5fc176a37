package bundledelta

import (
	"errors"
	"fmt"
	"math/bits"
)

// Numbers of the deflate format (RFC 1951).
const (
	maxLiterals  = 286
	maxDistances = 30
	maxCodeBits  = 15
	endOfBlock   = 256
	minMatch     = 3
	maxMatch     = 258
	maxDistance  = 32 << 10
	maxStored    = 1<<16 - 1

	storedBlock  = 0
	fixedBlock   = 1
	dynamicBlock = 2

	// maxHeaderBits is what a block begins with at most: its kind, three counts, the lengths of the codes of lengths, and
	// those of all codes with seven extra bits each.
	maxHeaderBits = 3 + 14 + 19*3 + (maxLiterals+maxDistances)*14
)

var errDeflate = errors.New("deflate stream is damaged")

// Lengths and distances are a base and some extra bits.
var (
	lengthBase   [29]uint16
	lengthExtra  [29]uint8
	lengthSymbol [maxMatch - minMatch + 1]uint8 // of a length: its number in lengthBase

	distanceBase   [maxDistances]uint16
	distanceExtra  [maxDistances]uint8
	distanceSymbol [512]uint8 // of a distance below 257, then of its upper bits

	fixedLengths codeLengths
)

func init() {
	for i := range lengthBase {
		lengthBase[i], lengthExtra[i] = uint16(i+minMatch), 0
		if i >= 8 {
			e := i/4 - 1
			lengthBase[i], lengthExtra[i] = uint16((4+i%4)<<e+minMatch), uint8(e)
		}
	}
	lengthBase[28], lengthExtra[28] = maxMatch, 0
	for i, base := range lengthBase {
		for n := range 1 << lengthExtra[i] {
			lengthSymbol[min(int(base)+n, maxMatch)-minMatch] = uint8(i)
		}
	}
}

func init() {
	for i := range distanceBase {
		distanceBase[i] = uint16(i + 1)
		if i >= 4 {
			e := i/2 - 1
			distanceBase[i], distanceExtra[i] = uint16((2+i%2)<<e+1), uint8(e)
		}
		for n := range 1 << distanceExtra[i] {
			distanceSymbol[distanceIndex(int(distanceBase[i])+n)] = uint8(i)
		}
	}
}

func init() {
	fixedLengths.literals, fixedLengths.distances = 288, 32
	for i := range 288 {
		n := uint8(8)
		switch {
		case i >= 144 && i < 256:
			n = 9
		case i >= 256 && i < 280:
			n = 7
		}
		fixedLengths.of[i] = n
	}
	for i := range 32 {
		fixedLengths.of[288+i] = 5
	}
}

// distanceIndex is the place of a distance in distanceSymbol.
func distanceIndex(d int) int {
	if d <= 256 {
		return d - 1
	}
	return 255 + (d-1)>>7
}

// codeLengths are the bits of all codes of a block: those of literals and lengths, then those of distances.
type codeLengths struct {
	literals, distances int
	of                  [288 + 32]uint8
}

func (c *codeLengths) literal() []uint8  { return c.of[:c.literals] }
func (c *codeLengths) distance() []uint8 { return c.of[c.literals : c.literals+c.distances] }

// codeOrder is the order in which a block has the lengths of the codes of lengths.
var codeOrder = [19]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

// bitReader returns the next bits of a stream, at most 16.
type bitReader func(n uint) (uint, error)

// read reads the lengths that a dynamic block begins with.
func (c *codeLengths) read(next bitReader) error {
	counts, err := next(14)
	if err != nil {
		return err
	}
	c.literals, c.distances = int(counts&31)+257, int(counts>>5&31)+1
	if c.literals > maxLiterals || c.distances > maxDistances {
		return fmt.Errorf("%w: %d literals and %d distances", errDeflate, c.literals, c.distances)
	}
	var lengths [19]uint8
	for i := range int(counts>>10) + 4 {
		n, err := next(3)
		if err != nil {
			return err
		}
		lengths[codeOrder[i]] = uint8(n)
	}
	var codes slowCodes
	if err := codes.build(lengths[:]); err != nil {
		return err
	}
	for i, total := 0, c.literals+c.distances; i < total; {
		n, err := c.readLength(i, &codes, next)
		if err != nil {
			return err
		}
		i += n
	}
	return nil
}

// readLength reads the length at place i and those that repeat it. It returns how many they are.
func (c *codeLengths) readLength(i int, codes *slowCodes, next bitReader) (int, error) {
	symbol, err := codes.read(next)
	if err != nil || symbol < 16 {
		c.of[i] = symbol
		return 1, err
	}
	repeat := [3]struct {
		bits  uint
		least int
	}{{2, 3}, {3, 3}, {7, 11}}[symbol-16]
	more, err := next(repeat.bits)
	if err != nil {
		return 0, err
	}
	n := repeat.least + int(more)
	if symbol == 16 && i == 0 || i+n > c.literals+c.distances {
		return 0, fmt.Errorf("%w: lengths of codes repeat beyond their end", errDeflate)
	}
	length := uint8(0)
	if symbol == 16 {
		length = c.of[i-1]
	}
	for k := range n {
		c.of[i+k] = length
	}
	return n, nil
}

// slowCodes decodes bit by bit: for the few codes of lengths.
type slowCodes struct {
	count   [maxCodeBits + 1]int
	symbols []uint8
}

func (s *slowCodes) build(lengths []uint8) error {
	if _, err := firstCodes(lengths); err != nil {
		return err
	}
	for n := uint8(1); n <= maxCodeBits; n++ {
		for symbol, l := range lengths {
			if l == n {
				s.count[n]++
				s.symbols = append(s.symbols, uint8(symbol))
			}
		}
	}
	return nil
}

func (s *slowCodes) read(next bitReader) (uint8, error) {
	code, first, index := 0, 0, 0
	for n := 1; n <= maxCodeBits; n++ {
		bit, err := next(1)
		if err != nil {
			return 0, err
		}
		code |= int(bit)
		if code-first < s.count[n] {
			return s.symbols[index+code-first], nil
		}
		index += s.count[n]
		first = (first + s.count[n]) << 1
		code <<= 1
	}
	return 0, fmt.Errorf("%w: no such code", errDeflate)
}

// firstCodes returns the first code of each length. The codes must be complete: only a single code of one bit, or none, may
// leave others unused.
func firstCodes(lengths []uint8) (first [maxCodeBits + 1]uint16, err error) {
	var count [maxCodeBits + 1]int
	for _, l := range lengths {
		count[l]++
	}
	left, code, used := 1, 0, len(lengths)-count[0]
	count[0] = 0
	for n := 1; n <= maxCodeBits; n++ {
		code = (code + count[n-1]) << 1
		left = left<<1 - count[n]
		if left < 0 {
			return first, fmt.Errorf("%w: more codes than bits allow", errDeflate)
		}
		first[n] = uint16(code)
	}
	if left > 0 && used > 0 && (used > 1 || count[1] != 1) {
		return first, fmt.Errorf("%w: codes are not complete", errDeflate)
	}
	return first, nil
}

// eachCode calls f for every code, with its bits in the order of the stream.
func eachCode(lengths []uint8, f func(symbol int, code uint32, n uint)) error {
	next, err := firstCodes(lengths)
	if err != nil {
		return err
	}
	for symbol, n := range lengths {
		if n == 0 {
			continue
		}
		f(symbol, uint32(bits.Reverse16(next[n])>>(16-n)), uint(n))
		next[n]++
	}
	return nil
}

// Tables that decode have entries of 32 bits. The lower 8 have how many bits to drop, the next 4 the number of extra bits. Flags
// follow. The upper 16 have a literal, a base, or the place of more entries.
const (
	entryLiteral = 1 << 12
	entryMore    = 1 << 13
	entryEnd     = 1 << 14
	// decodeBits have the first part of a table; longer codes have a second part.
	decodeBits = 11
	moreBits   = maxCodeBits - decodeBits
)

// decodeTable finds the symbol at the beginning of some bits. The entry 0 is that of no code.
type decodeTable struct{ entries []uint32 }

// build makes a table for codes, given the entries of their symbols.
func (t *decodeTable) build(lengths []uint8, symbols []uint32) error {
	if t.entries == nil {
		t.entries = make([]uint32, 1<<decodeBits, 4<<decodeBits)
	}
	t.entries = t.entries[:1<<decodeBits]
	clear(t.entries)
	return eachCode(lengths, func(symbol int, code uint32, n uint) {
		entry := symbols[symbol] | uint32(n)
		if n <= decodeBits {
			for i := code; i < 1<<decodeBits; i += 1 << n {
				t.entries[i] = entry
			}
			return
		}
		low := code & (1<<decodeBits - 1)
		if t.entries[low] == 0 {
			t.entries[low] = entryMore | uint32(len(t.entries))<<16
			t.entries = append(t.entries, make([]uint32, 1<<moreBits)...)
		}
		more := t.entries[t.entries[low]>>16:]
		for i := code >> decodeBits; i < 1<<moreBits; i += 1 << (n - decodeBits) {
			more[i] = entry
		}
	})
}

// Entries of the symbols.
var (
	literalEntries  [288]uint32
	distanceEntries [32]uint32
)

func init() {
	for i := range endOfBlock {
		literalEntries[i] = entryLiteral | uint32(i)<<16
	}
	literalEntries[endOfBlock] = entryEnd
	for i, base := range lengthBase {
		literalEntries[endOfBlock+1+i] = uint32(lengthExtra[i])<<8 | uint32(base)<<16
	}
	for i, base := range distanceBase {
		distanceEntries[i] = uint32(distanceExtra[i])<<8 | uint32(base)<<16
	}
}

// codes pack tokens: bits in the lower 24, how many there are in the upper 8. 0 is no code.
type codes struct {
	literal  [256]uint32
	length   [maxMatch - minMatch + 1]uint32
	distance [32]uint32
	end      uint32
}

// build makes the codes of a block.
func (c *codes) build(l *codeLengths) error {
	*c = codes{}
	var length [29]uint32
	err := eachCode(l.literal(), func(symbol int, code uint32, n uint) {
		entry := code | uint32(n)<<24
		switch {
		case symbol < endOfBlock:
			c.literal[symbol] = entry
		case symbol == endOfBlock:
			c.end = entry
		case symbol < maxLiterals:
			length[symbol-endOfBlock-1] = entry
		}
	})
	if err != nil {
		return err
	}
	for i, symbol := range lengthSymbol {
		if entry := length[symbol]; entry != 0 {
			extra := uint32(i+minMatch) - uint32(lengthBase[symbol])
			c.length[i] = entry + extra<<(entry>>24) + uint32(lengthExtra[symbol])<<24
		}
	}
	return eachCode(l.distance(), func(symbol int, code uint32, n uint) { c.distance[symbol] = code | uint32(n)<<24 })
}
