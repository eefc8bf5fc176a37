package filesystem

import (
	"slices"
	"strings"
	"time"
	"unicode/utf16"
)

const (
	fatDeleted = 0xE5
	// fatReplaced is in the place of a first byte that would mean deleted.
	fatReplaced = 0x05

	fatVolumeLabel = 0x08
	fatDirectory   = 0x10
	fatAttributes  = 0x3F
	// fatLongAttributes marks a record with a part of a long name.
	fatLongAttributes = 0x0F

	// fatLowerBase and fatLowerExtension are how Windows NT keeps short names in lower case.
	fatLowerBase      = 0x08
	fatLowerExtension = 0x10

	// fatLastPart is the flag of a long name's last part, which comes first.
	fatLastPart = 0x40
	fatMaxParts = 20
)

// fatUnits are the offsets of the 13 UTF-16 units in a record with a part of a long name.
var fatUnits = [...]int{1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30}

// cp437 are the upper 128 characters of code page 437, the usual one of short names.
var cp437 = []rune("ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u00a0")

// fatEntries reads the directories of a FAT volume.
type fatEntries struct{ wide bool }

// next returns the next file or directory. A long name precedes its short record.
func (e fatEntries) next(d *recordReader) (*clusterNode, error) {
	var long fatLongName
	for {
		b, err := d.next()
		if err != nil {
			return nil, err
		}
		switch {
		case b[0] == fatDeleted:
			long = fatLongName{}
		case b[11]&fatAttributes == fatLongAttributes:
			long.add(b)
		case b[11]&fatVolumeLabel != 0 || isFATDot(d, b):
			long = fatLongName{}
		default:
			return e.node(d, b, long.name(b)), nil
		}
	}
}

// isFATDot recognizes the entries of a directory itself and its parent, which start each directory but the root.
func isFATDot(d *recordReader, b leBytes) bool {
	name := strings.TrimRight(string(b[:11]), " ")
	return !d.root && (d.at == 0 && name == "." || d.at == recordSize && name == "..")
}

func (e fatEntries) node(d *recordReader, b leBytes, name string) *clusterNode {
	n := &clusterNode{name: name, first: uint32(b.u16(26)), at: d.at, modified: fatTime(b.u16(24), b.u16(22))}
	if name == "" {
		n.name = fatShortName(b)
	}
	if e.wide {
		n.first |= uint32(b.u16(20)) << 16
	}
	n.size = int64(b.u32(28))
	if b[11]&fatDirectory != 0 {
		n.dir, n.size = true, sizeUnknown
	}
	n.valid = n.size
	return n
}

// fatLongName collects the parts of a long name. Parts out of order or with another checksum are
// from a program that does not know long names: the short name counts then, as the format says.
type fatLongName struct {
	units [fatMaxParts * len(fatUnits)]uint16
	// length is the number of units, expected the number of the next part; 0 after the last.
	length, expected int
	sum              byte
}

func (l *fatLongName) add(b leBytes) {
	part := int(b[0] &^ fatLastPart)
	if b[0]&fatLastPart != 0 {
		*l = fatLongName{length: part * len(fatUnits), expected: part, sum: b[13]}
	}
	if part == 0 || part > fatMaxParts || part != l.expected || b[13] != l.sum {
		*l = fatLongName{}
		return
	}
	for i, at := range fatUnits {
		l.units[(part-1)*len(fatUnits)+i] = b.u16(at)
	}
	l.expected--
}

// name returns the long name if it is complete and belongs to the short record b, else "".
func (l *fatLongName) name(b leBytes) string {
	if l.length == 0 || l.expected != 0 || l.sum != fatNameSum(b) {
		return ""
	}
	units := l.units[:l.length]
	if end := slices.Index(units, 0); end >= 0 {
		units = units[:end]
	}
	return string(utf16.Decode(units))
}

// fatNameSum returns the checksum of a short name, which the parts of its long name have as well.
func fatNameSum(b leBytes) byte {
	var sum byte
	for _, c := range b[:11] {
		sum = sum>>1 | sum<<7
		sum += c
	}
	return sum
}

// fatShortName returns a name of eight and three characters.
func fatShortName(b leBytes) string {
	raw := slices.Clone(b[:11])
	if raw[0] == fatReplaced {
		raw[0] = fatDeleted
	}
	base := strings.TrimRight(fatOEM(raw[:8]), " ")
	extension := strings.TrimRight(fatOEM(raw[8:]), " ")
	if b[12]&fatLowerBase != 0 {
		base = strings.ToLower(base)
	}
	if b[12]&fatLowerExtension != 0 {
		extension = strings.ToLower(extension)
	}
	if extension == "" {
		return base
	}
	return base + "." + extension
}

func fatOEM(b []byte) string {
	runes := make([]rune, len(b))
	for i, c := range b {
		runes[i] = rune(c)
		if c >= 0x80 {
			runes[i] = cp437[c-0x80]
		}
	}
	return string(runes)
}

// fatTime returns a date and time in steps of two seconds. They are the local time of the machine
// that wrote them; its zone is not on the medium, so UTC stands for it.
func fatTime(date, clock uint16) time.Time {
	year, month, day := 1980+int(date>>9), time.Month(date>>5&0xF), int(date&0x1F)
	if month < time.January || month > time.December || day == 0 {
		return time.Time{}
	}
	return time.Date(year, month, day, int(clock>>11), int(clock>>5&0x3F), int(clock&0x1F)*2, 0, time.UTC)
}
