package filesystem

import (
	_ "embed" // the table of upper case
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"strings"
	"unicode/utf16"
)

const (
	// MinExFATDisk is the size of the smallest disk in bytes.
	MinExFATDisk = 8 << 20
	// exfatPartition is the type of a partition with exFAT.
	exfatPartition = 0x07
	// exfatTableSector is where the allocation table starts, after both boot regions.
	exfatTableSector = 128
	// exfatHaveClusters is the flag of a stream with clusters, next to exfatNoTable.
	exfatHaveClusters = 0x01
	exfatFirstDay     = fatFirstDay << 16
	exfatUTC          = 0x80
)

// exfatUpperCase has the upper case of each UTF-16 unit, as section 7.2.5.1 of the specification
// recommends it. Formatters write this table.
//
//go:embed exfat_upcase.bin
var exfatUpperCase string

// ExFAT is a new disk: a partition table with one exFAT volume, whose files are contiguous. The same
// input gives the same bytes. Write it in the order of FAT32.
type ExFAT struct {
	files   []NewFile
	first   []uint32 // cluster of each file
	label   string
	serial  uint32
	sectors uint32 // of the volume
	// shift is log2 of the sectors of a cluster, table the sectors of the allocation table.
	shift, table uint32
	heap         uint32 // sector of the first cluster
	clusters     uint32
	// upCase and root are the clusters of the table of upper case and of the root directory. The
	// bitmap starts in cluster 2.
	upCase, root uint32
	used         uint32 // clusters
}

// NewExFAT plans a disk of size bytes. A name must be unique and have printable characters.
func NewExFAT(size int64, label string, serial uint32, files []NewFile) (*ExFAT, error) {
	if size < MinExFATDisk {
		return nil, fmt.Errorf("exFAT needs a disk of %d bytes or more, this one has %d", MinExFATDisk, size)
	}
	total := min(size/mbrSector, fat32MaxSectors) - fat32FirstSector
	d := &ExFAT{files: files, label: label, serial: serial, sectors: uint32(total)}
	d.layOut()
	d.upCase = firstCluster + d.need(d.bitmapSize())
	d.root = d.upCase + d.need(int64(len(exfatUpperCase)))
	next, records := d.root+1, 3 // bitmap, upper case, label
	for _, f := range files {
		records += 2 + exfatNameEntries(f.Name)
		free := int64(d.clusters+firstCluster-next) * d.clusterBytes()
		if f.Size < 0 || f.Size > free {
			return nil, fmt.Errorf("file %s has %d bytes, %d bytes are left for it in exFAT", f.Name, f.Size, free)
		}
		if exfatNameEntries(f.Name) > exfatMaxSecondary-1 {
			return nil, fmt.Errorf("file %.40s... has a longer name than exFAT holds", f.Name)
		}
		d.first = append(d.first, next)
		next += d.need(f.Size)
	}
	if int64(records)*recordSize > d.clusterBytes() {
		return nil, fmt.Errorf("%d files have longer names than the root directory holds", len(files))
	}
	d.used = next - firstCluster
	return d, nil
}

// layOut chooses clusters as formatters do, and puts the first one at a multiple of 1 MiB: that of a
// flash drive's blocks.
func (d *ExFAT) layOut() {
	d.shift = 8 // 128 KiB
	switch {
	case d.sectors <= 256<<20/mbrSector:
		d.shift = 3
	case d.sectors <= 32<<30/mbrSector:
		d.shift = 6
	}
	d.table = ((d.sectors>>d.shift)+firstCluster)*4/mbrSector + 1
	start := exfatTableSector + d.table
	d.heap = start + -start%fat32FirstSector
	d.clusters = (d.sectors - d.heap) >> d.shift
}

func (d *ExFAT) clusterBytes() int64 { return mbrSector << d.shift }

// need is the number of clusters for so many bytes.
func (d *ExFAT) need(size int64) uint32 {
	return uint32((size + d.clusterBytes() - 1) / d.clusterBytes())
}

func (d *ExFAT) bitmapSize() int64 { return (int64(d.clusters) + 7) / 8 }

func (d *ExFAT) clusterAt(n uint32) int64 {
	return diskOffset(d.heap) + int64(n-firstCluster)*d.clusterBytes()
}

// Offset is where the content of a file starts in the disk, in bytes. It is contiguous.
func (d *ExFAT) Offset(file int) int64 { return d.clusterAt(d.first[file]) }

// WriteTables writes the allocation table, the bitmap, the upper case and the root directory.
func (d *ExFAT) WriteTables(w io.WriterAt) error {
	err := writePieces(w, diskOffset(exfatTableSector), int64(d.table)*mbrSector, func(b []byte, off int64) {
		for i := 0; i < len(b); i += 4 {
			binary.LittleEndian.PutUint32(b[i:], d.entry(uint32(off/4)+uint32(i/4)))
		}
	})
	if err == nil {
		err = writePieces(w, d.clusterAt(firstCluster), int64(d.need(d.bitmapSize()))*d.clusterBytes(), func(b []byte, off int64) {
			for i := range b {
				b[i] = 1<<min(max(int64(d.used)-(off+int64(i))*8, 0), 8) - 1
			}
		})
	}
	if err == nil {
		_, err = w.WriteAt([]byte(exfatUpperCase), d.clusterAt(d.upCase))
	}
	if err == nil {
		_, err = w.WriteAt(d.rootDirectory(), d.clusterAt(d.root))
	}
	return err
}

// entry is the table's number of a cluster. Files are contiguous and marked so: the table has only the
// bitmap, the upper case and the root directory.
func (d *ExFAT) entry(n uint32) uint32 {
	switch {
	case n == 0:
		return 0xFFFFFF00 | fat32Media
	case n == 1, n+1 == d.upCase, n+1 == d.root, n == d.root:
		return exfatEndOfChain
	case n > d.root:
		return 0
	}
	return n + 1
}

func (d *ExFAT) rootDirectory() []byte {
	root, le := make([]byte, d.clusterBytes()), binary.LittleEndian
	root[0] = exfatBitmap
	le.PutUint32(root[20:], firstCluster)
	le.PutUint64(root[24:], uint64(d.bitmapSize()))
	upCase := root[recordSize:]
	upCase[0] = exfatUpCase
	le.PutUint32(upCase[4:], exfatTableSum([]byte(exfatUpperCase)))
	le.PutUint32(upCase[20:], d.upCase)
	le.PutUint64(upCase[24:], uint64(len(exfatUpperCase)))
	label, units := root[2*recordSize:], utf16.Encode([]rune(d.label))
	label[0], label[1] = exfatLabelEntry, byte(min(len(units), exfatLabelUnits))
	for i := range label[1] {
		le.PutUint16(label[2+2*int(i):], units[i])
	}
	at := 3 * recordSize
	for i, f := range d.files {
		at += copy(root[at:], newExFATSet(f, d.first[i]))
	}
	return root
}

func exfatNameEntries(name string) int {
	return (len(utf16.Encode([]rune(name))) + exfatUnitsPerEntry - 1) / exfatUnitsPerEntry
}

// newExFATSet are the entries of a contiguous file.
func newExFATSet(f NewFile, first uint32) []byte {
	units, le := utf16.Encode([]rune(f.Name)), binary.LittleEndian
	names := exfatNameEntries(f.Name)
	set := make([]byte, (2+names)*recordSize)
	set[0], set[1] = exfatFile, byte(1+names)
	le.PutUint16(set[4:], 0x20) // archive
	for _, at := range []int{8, 12, 16} {
		le.PutUint32(set[at:], exfatFirstDay)
	}
	copy(set[22:], []byte{exfatUTC, exfatUTC, exfatUTC})
	stream := set[recordSize:]
	stream[0], stream[1], stream[3] = exfatStream, exfatHaveClusters, byte(len(units))
	le.PutUint16(stream[4:], exfatNameHash(units))
	if f.Size > 0 {
		stream[1] |= exfatNoTable
		le.PutUint64(stream[8:], uint64(f.Size))
		le.PutUint32(stream[20:], first)
		le.PutUint64(stream[24:], uint64(f.Size))
	}
	for i, u := range units {
		entry := set[(2+i/exfatUnitsPerEntry)*recordSize:]
		entry[0] = exfatUnits
		le.PutUint16(entry[2+2*(i%exfatUnitsPerEntry):], u)
	}
	le.PutUint16(set[2:], exfatSetSum(set))
	return set
}

// exfatNameHash is the hash of a name in upper case, by which drivers find files.
func exfatNameHash(units []uint16) (sum uint16) {
	for _, u := range units {
		u = exfatUpper(u)
		for _, b := range [2]byte{byte(u), byte(u >> 8)} {
			sum = bits.RotateLeft16(sum, -1) + uint16(b)
		}
	}
	return sum
}

// exfatUpper looks a unit up in the table, in which 0xFFFF and a number stand for so many units
// without another upper case.
func exfatUpper(unit uint16) uint16 {
	for at, n := 0, 0; at+1 < len(exfatUpperCase); at += 2 {
		u := uint16(exfatUpperCase[at]) | uint16(exfatUpperCase[at+1])<<8
		if u == 0xFFFF && at+3 < len(exfatUpperCase) {
			at += 2
			n += int(exfatUpperCase[at]) | int(exfatUpperCase[at+1])<<8
			continue
		}
		if n == int(unit) {
			return u
		}
		if n++; n > int(unit) {
			break
		}
	}
	return unit
}

// exfatTableSum is the checksum of a table or of the boot region.
func exfatTableSum(b []byte) (sum uint32) {
	for _, c := range b {
		sum = bits.RotateLeft32(sum, -1) + uint32(c)
	}
	return sum
}

// WriteStart writes what makes the disk readable: the boot regions, the boot sector of the volume, and
// last the partition table. Flush the disk before and after.
func (d *ExFAT) WriteStart(w io.WriterAt) error {
	region := d.bootRegion()
	for _, part := range []struct {
		sector uint32
		data   []byte
	}{{exfatBootSectors, region}, {1, region[mbrSector:]}, {0, region[:mbrSector]}} {
		if _, err := w.WriteAt(part.data, diskOffset(part.sector)); err != nil {
			return err
		}
	}
	_, err := w.WriteAt(newPartitionTable(exfatPartition, d.serial, d.sectors), 0)
	return err
}

func (d *ExFAT) bootRegion() []byte {
	region, le := make([]byte, exfatBootSectors*mbrSector), binary.LittleEndian
	copy(region, "\xEB\x76\x90"+exfatName)
	le.PutUint64(region[64:], fat32FirstSector)
	le.PutUint64(region[72:], uint64(d.sectors))
	le.PutUint32(region[80:], exfatTableSector)
	le.PutUint32(region[84:], d.table)
	le.PutUint32(region[88:], d.heap)
	le.PutUint32(region[92:], d.clusters)
	le.PutUint32(region[96:], d.root)
	le.PutUint32(region[100:], d.serial)
	le.PutUint16(region[104:], 0x0100) // revision 1.00
	region[108], region[109], region[110] = 9, byte(d.shift), 1
	region[111] = 0x80
	region[112] = byte(uint64(d.used) * 100 / uint64(d.clusters))
	copy(region[120:], "\xCD\x18\xF4\xEB\xFD"+strings.Repeat("\xF4", 385)) // as on FAT32, go on to the next disk
	le.PutUint16(region[510:], 0xAA55)
	for n := 1; n <= 8; n++ { // extended boot sectors
		le.PutUint32(region[(n+1)*mbrSector-4:], 0xAA550000)
	}
	sums := region[(exfatBootSectors-1)*mbrSector:]
	sum := exfatBootSum(region[:len(region)-len(sums)])
	for at := 0; at < len(sums); at += 4 {
		le.PutUint32(sums[at:], sum)
	}
	return region
}
