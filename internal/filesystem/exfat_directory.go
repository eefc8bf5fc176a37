package filesystem

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"
	"unicode/utf16"
)

// Types of directory entries. A file has one entry of type file, one stream extension and its name.
const (
	exfatInUse     = 0x80
	exfatSecondary = 0x40
	exfatBenign    = 0x20

	exfatFile   = 0x85
	exfatStream = 0xC0
	exfatUnits  = 0xC1

	exfatBitmap     = 0x81
	exfatUpCase     = 0x82
	exfatLabelEntry = 0x83
)

const (
	exfatMaxSecondary = 18
	// exfatUnitsPerEntry is how many UTF-16 units of a name or label an entry has.
	exfatUnitsPerEntry = 15
	exfatLabelUnits    = 11
	exfatNoTable       = 0x02
	exfatDirectory     = 0x10
)

// nextExFATEntry returns the next file or directory. What is optional and unknown is skipped, what
// is critical and unknown is an error: the specification demands both.
func nextExFATEntry(d *recordReader) (*clusterNode, error) {
	for {
		b, err := d.next()
		if err != nil {
			return nil, err
		}
		kind := b[0]
		switch {
		case kind == exfatFile:
			return readExFATSet(d, b)
		case kind&exfatInUse == 0 || kind&(exfatSecondary|exfatBenign) != 0:
		case d.root && (kind == exfatBitmap || kind == exfatUpCase || kind == exfatLabelEntry):
		default:
			return nil, fmt.Errorf("unknown critical entry of type %#02x", kind)
		}
	}
}

// readExFATSet reads the secondary entries of a file and verifies the checksum of the whole set.
func readExFATSet(d *recordReader, file leBytes) (*clusterNode, error) {
	var buffer [(1 + exfatMaxSecondary) * recordSize]byte
	count, at := int(file[1]), d.at
	if count < 2 || count > exfatMaxSecondary {
		return nil, fmt.Errorf("file entry has %d secondary entries, possible are 2 to %d", count, exfatMaxSecondary)
	}
	set := leBytes(buffer[:copy(buffer[:], file)])
	for range count {
		b, err := d.next()
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("directory ends before the %d secondary entries of the file entry at byte %d", count, at)
		}
		if err != nil {
			return nil, err
		}
		set = append(set, b...)
	}
	if sum := exfatSetSum(set); sum != set.u16(2) {
		return nil, fmt.Errorf("file entry at byte %d has checksum %#04x, its set has %#04x", at, set.u16(2), sum)
	}
	n, err := parseExFATSet(set)
	if err != nil {
		return nil, fmt.Errorf("file entry at byte %d: %w", at, err)
	}
	n.at = at
	return n, nil
}

// exfatSetSum returns the checksum of a set without the two bytes that have it.
func exfatSetSum(set leBytes) uint16 {
	var sum uint16
	for i, c := range set {
		if i != 2 && i != 3 {
			sum = (sum>>1 | sum<<15) + uint16(c)
		}
	}
	return sum
}

func parseExFATSet(set leBytes) (*clusterNode, error) {
	stream := set[recordSize:]
	if stream[0] != exfatStream {
		return nil, fmt.Errorf("first secondary entry has type %#02x, not that of a stream extension", stream[0])
	}
	name, err := exfatFileName(set[2*recordSize:], int(stream[3]))
	if err != nil {
		return nil, err
	}
	valid, size := stream.u64(8), stream.u64(24)
	if size > math.MaxInt64 || valid > size {
		return nil, fmt.Errorf("%q has a size of %d bytes and %d valid ones", name, size, valid)
	}
	n := &clusterNode{
		name:       name,
		dir:        set.u16(4)&exfatDirectory != 0,
		size:       int64(size),
		valid:      int64(valid),
		first:      stream.u32(20),
		contiguous: stream[1]&exfatNoTable != 0,
		modified:   exfatTime(set.u32(12), set[21], set[23]),
	}
	if n.dir {
		n.valid = n.size
	}
	return n, nil
}

// exfatFileName returns a name of so many UTF-16 units from the entries after the stream extension.
func exfatFileName(entries leBytes, length int) (string, error) {
	units := make([]uint16, 0, exfatMaxSecondary*exfatUnitsPerEntry)
	for ; len(entries) > 0; entries = entries[recordSize:] {
		kind := entries[0]
		switch {
		case kind == exfatUnits && len(units) < length:
			units = appendUnits(units, entries[2:recordSize])
		case kind&(exfatInUse|exfatSecondary|exfatBenign) == exfatInUse|exfatSecondary|exfatBenign:
		default:
			return "", fmt.Errorf("unexpected secondary entry of type %#02x", kind)
		}
	}
	if length > len(units) {
		return "", fmt.Errorf("name has %d characters, its entries have %d", length, len(units))
	}
	return string(utf16.Decode(units[:length])), nil
}

func appendUnits(units []uint16, b leBytes) []uint16 {
	for at := 0; at < len(b); at += 2 {
		units = append(units, b.u16(at))
	}
	return units
}

func exfatLabel(b leBytes) (string, bool) {
	if b[0] != exfatLabelEntry || b[1] > exfatLabelUnits {
		return "", false
	}
	return string(utf16.Decode(appendUnits(nil, b[2:2+2*int(b[1])]))), true
}

// exfatTime returns a time stamp with its hundredths of a second and its offset from UTC in quarters of an hour.
func exfatTime(stamp uint32, hundredths, zone byte) time.Time {
	t := fatTime(uint16(stamp>>16), uint16(stamp))
	if t.IsZero() {
		return t
	}
	t = t.Add(time.Duration(min(hundredths, 199)) * 10 * time.Millisecond)
	if zone&0x80 != 0 {
		// The offset is a signed number of seven bits.
		t = t.Add(-time.Duration(int8(zone<<1)>>1) * 15 * time.Minute)
	}
	return t
}
