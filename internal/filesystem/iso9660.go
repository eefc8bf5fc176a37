package filesystem

import (
	"cmp"
	"encoding/binary"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"
	"unicode/utf16"
)

const (
	// isoSector is the size of sectors and, in every volume that is read here, of logical blocks.
	isoSector = 2048
	// isoSystemArea is how many bytes precede the volume descriptors.
	isoSystemArea = 16 * isoSector
	// maxDescriptors is how many volume descriptors are read before the reader gives up.
	maxDescriptors = 64
)

// Flags of a directory record.
const (
	isoDirectory  = 0x02
	isoAssociated = 0x04
	isoContinues  = 0x80
)

// isoVolume reads ISO 9660 (ECMA-119) with the names of Rock Ridge (SUSP and RRIP, IEEE P1281
// and P1282), of Joliet (Joliet Recording Specification, Microsoft, 1995) or its own.
//
// Numbers are stored in both byte orders. Only the little-endian ones are read, as Linux does:
// mastering programs are known to write wrong big-endian ones.
type isoVolume struct {
	medium
	joliet bool
	// rockRidge is true if directory records have Rock Ridge entries. These are skip bytes into
	// the system use area.
	rockRidge bool
	skip      int
	// sequence is the volume's number in a set of volumes.
	sequence uint16
}

// openISO9660 opens an ISO 9660 volume. It prefers Rock Ridge names, then Joliet.
func openISO9660(r io.ReaderAt, size int64) (*Volume, error) {
	m := medium{r: r, size: size, kind: "ISO 9660"}
	descriptor, joliet, err := readDescriptors(m)
	if err != nil {
		return nil, err
	}
	v, root, err := newISOVolume(m, descriptor)
	if err != nil {
		return nil, err
	}
	if err := v.detectRockRidge(root); err != nil {
		return nil, err
	}
	if !v.rockRidge && joliet != nil {
		descriptor = joliet
		if v, root, err = newISOVolume(m, joliet); err != nil {
			return nil, err
		}
	}
	n, err := v.newNode(root)
	if err != nil {
		return nil, err
	}
	names := caseFolding
	if v.rockRidge {
		names = caseSensitive
	}
	label := strings.TrimRight(v.decode(descriptor.data[40:72]), " \x00")
	return &Volume{Kind: m.kind, Label: strings.ToValidUTF8(label, "\uFFFD"), FS: newTree(v.medium, n, names)}, nil
}

// isoDescriptor is a volume descriptor and its place on the medium.
type isoDescriptor struct {
	data []byte
	at   int64
}

// isJoliet reports whether a supplementary descriptor names one of the levels of UCS-2.
func (d *isoDescriptor) isJoliet() bool {
	return d.data[0] == 2 && slices.Contains([]string{"%/@", "%/C", "%/E"}, string(d.data[88:91]))
}

// readDescriptors returns the primary volume descriptor, and Joliet's or nil.
func readDescriptors(m medium) (primary, joliet *isoDescriptor, err error) {
	for i := range int64(maxDescriptors) {
		d, err := readDescriptor(m, isoSystemArea+i*isoSector)
		switch {
		case err != nil:
			return nil, nil, err
		case d.data[0] == 1:
			primary = cmp.Or(primary, d)
		case d.isJoliet():
			joliet = cmp.Or(joliet, d)
		case d.data[0] == 255 && primary == nil:
			return nil, nil, m.errorf("no primary volume descriptor before byte %d", d.at)
		case d.data[0] == 255:
			return primary, joliet, nil
		}
	}
	return nil, nil, m.errorf("more than %d volume descriptors", maxDescriptors)
}

func readDescriptor(m medium, at int64) (*isoDescriptor, error) {
	d := &isoDescriptor{data: make([]byte, isoSector), at: at}
	first := at == isoSystemArea
	if first && !m.contains(at, isoSector) {
		return nil, errOther
	}
	if err := m.read(d.data, at, "volume descriptor"); err != nil {
		return nil, err
	}
	if string(d.data[1:6]) == "CD001" {
		return d, nil
	}
	if first {
		return nil, errOther
	}
	return nil, m.errorf("volume descriptor at byte %d has no signature", at)
}

// newISOVolume returns the volume of a descriptor and the first record of its root directory.
func newISOVolume(m medium, d *isoDescriptor) (*isoVolume, isoRecord, error) {
	v := &isoVolume{medium: m, joliet: d.isJoliet(), sequence: binary.LittleEndian.Uint16(d.data[124:])}
	if block := binary.LittleEndian.Uint16(d.data[128:]); block != isoSector {
		return nil, isoRecord{}, m.errorf("logical blocks of %d bytes at byte %d are not supported, only %d", block, d.at+128, isoSector)
	}
	v.size = int64(binary.LittleEndian.Uint32(d.data[80:])) * isoSector
	if v.size > m.size {
		return nil, isoRecord{}, m.errorf("volume of %d bytes (descriptor at byte %d) is larger than its medium of %d bytes", v.size, d.at, m.size)
	}
	root, err := v.parseRecord(d.data[156:190], d.at+156)
	if err != nil {
		return nil, isoRecord{}, err
	}
	self, err := v.selfRecord(root.block)
	return v, self, err
}

// decode converts a name to UTF-8. Lone surrogates of Joliet become U+FFFD.
func (v *isoVolume) decode(b []byte) string {
	if !v.joliet {
		return string(b)
	}
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = binary.BigEndian.Uint16(b[2*i:])
	}
	return string(utf16.Decode(units))
}

// isoRecord is a directory record.
type isoRecord struct {
	// at is its place on the medium.
	at        int64
	id        []byte
	block     uint32
	size      int64
	flags     byte
	modTime   time.Time
	systemUse []byte
	// refusal says why the contents cannot be read, "" if they can.
	refusal string
}

// parseRecord parses the record at the start of b, which ends with the record's sector.
func (v *isoVolume) parseRecord(b []byte, at int64) (isoRecord, error) {
	length := int(b[0])
	if length < 34 || length > len(b) {
		return isoRecord{}, v.errorf("directory record at byte %d has the length %d, its sector has %d bytes left", at, length, len(b))
	}
	idEnd := 33 + int(b[32])
	if idEnd == 33 || idEnd > length {
		return isoRecord{}, v.errorf("name of %d bytes does not fit into the directory record at byte %d", b[32], at)
	}
	rec := isoRecord{at: at, id: b[33:idEnd], flags: b[25], modTime: isoTime(b[18:25]), size: int64(binary.LittleEndian.Uint32(b[10:]))}
	rec.block = binary.LittleEndian.Uint32(b[2:]) + uint32(b[1]) // the extended attributes come first
	// A byte of padding follows a name of even length.
	rec.systemUse = b[min(idEnd+idEnd%2, length):length]
	if b[26] != 0 || b[27] != 0 {
		rec.refusal = "interleaved files are not supported"
	} else if s := binary.LittleEndian.Uint16(b[28:]); s > 1 && s != v.sequence {
		rec.refusal = "the file is on another volume of the set"
	}
	return rec, nil
}

// isSpecial reports whether the record is the directory itself or its parent.
func (r isoRecord) isSpecial() bool { return len(r.id) == 1 && r.id[0] <= 1 }

func (r isoRecord) isSelf() bool { return len(r.id) == 1 && r.id[0] == 0 }

// selfRecord returns the first record of the directory at a block. It describes the directory.
func (v *isoVolume) selfRecord(block uint32) (isoRecord, error) {
	sector := make([]byte, isoSector)
	at := int64(block) * isoSector
	if err := v.read(sector, at, "directory"); err != nil {
		return isoRecord{}, err
	}
	rec, err := v.parseRecord(sector, at)
	if err == nil && (!rec.isSelf() || rec.flags&isoDirectory == 0 || rec.block != block) {
		err = v.errorf("directory at byte %d does not begin with its own record", at)
	}
	return rec, err
}

// extent returns where the contents of a record are.
func (v *isoVolume) extent(rec isoRecord) (extent, error) {
	e := extent{at: int64(rec.block) * isoSector, length: rec.size}
	if rec.size > 0 && !v.contains(e.at, e.length) {
		return e, v.errorf("extent of the directory record at byte %d (block %d, %d bytes) is outside of the volume (%d bytes)", rec.at, rec.block, rec.size, v.size)
	}
	return e, nil
}

// plainName is the name of a record without Rock Ridge: no version and no dots at the end.
func (v *isoVolume) plainName(rec isoRecord) string {
	name := v.decode(rec.id)
	if base, version, ok := strings.Cut(name, ";"); ok && strings.Trim(version, "0123456789") == "" {
		name = base
	}
	return strings.TrimRight(name, ".")
}

// newNode makes the node of a record.
func (v *isoVolume) newNode(rec isoRecord) (*isoNode, error) {
	n := &isoNode{v: v, name: v.plainName(rec), refusal: rec.refusal}
	n.info = fileInfo{mode: 0o444, modTime: rec.modTime, id: uint64(rec.block)}
	isDirectory := rec.flags&isoDirectory != 0
	if isDirectory {
		n.info.mode = fs.ModeDir | 0o555
	}
	if err := n.add(rec); err != nil {
		return nil, err
	}
	if v.rockRidge {
		if err := n.applyRockRidge(rec); err != nil {
			return nil, err
		}
	}
	if isDirectory {
		return n, n.checkDirectory(rec)
	}
	return n, nil
}

func (n *isoNode) checkDirectory(rec isoRecord) error {
	if rec.size == 0 || rec.size > maxDirectory {
		return n.v.errorf("directory of the record at byte %d has %d bytes, 1 to %d are supported", rec.at, rec.size, maxDirectory)
	}
	if n.refusal != "" {
		return n.v.errorf("directory of the record at byte %d cannot be read: %s", rec.at, n.refusal)
	}
	return nil
}

// isoTime converts the time of a directory record. A time that does not exist becomes the zero time.
func isoTime(b []byte) time.Time {
	if b[1] < 1 || b[1] > 12 || b[2] < 1 || b[2] > 31 || b[3] > 23 || b[4] > 59 || b[5] > 59 {
		return time.Time{}
	}
	t := time.Date(1900+int(b[0]), time.Month(b[1]), int(b[2]), int(b[3]), int(b[4]), int(b[5]), 0, time.UTC)
	return t.Add(-isoZone(b[6]))
}

// isoZone converts an offset from Greenwich, which is stored in quarters of an hour.
func isoZone(b byte) time.Duration { return time.Duration(int8(b)) * 15 * time.Minute }
