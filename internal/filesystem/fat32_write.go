package filesystem

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"strings"
	"unicode/utf16"
)

const (
	// fat32FirstSector is where the partition starts: at 1 MiB, as partition tools do.
	fat32FirstSector = 2048
	fat32Reserved    = 32
	fat32Tables      = 2
	fat32Media       = 0xF8
	fat32Partition   = 0x0C // FAT32 with addresses of sectors
	// fat32MaxSectors are those that 32 bits number.
	fat32MaxSectors = 1<<32 - 1
	// MaxFAT32File is the size of the largest file in bytes.
	MaxFAT32File = 1<<32 - 1
	// MinFAT32Disk is the size of the smallest disk in bytes.
	MinFAT32Disk = 36 << 20
	fatEndOfFile = 0x0FFFFFFF
)

// NewFile is a file of a new volume.
type NewFile struct {
	// Name in the root directory.
	Name string
	Size int64
}

// FAT32 is a new disk: a partition table with one FAT32 volume, whose files are contiguous. The
// same input gives the same bytes.
//
// Write the content of the files at their offsets, then Tables, then flush the disk, then Start:
// until then the disk has no file system.
type FAT32 struct {
	files   []NewFile
	first   []uint32 // cluster of each file
	label   [11]byte
	serial  uint32
	sectors uint32 // of the volume
	// reserved sectors, those of one table, those of one cluster.
	reserved, table, cluster uint32
	clusters                 uint32
	used                     uint32 // clusters, the root directory included
}

// NewFAT32 plans a disk of size bytes. A name must be unique and have printable characters.
func NewFAT32(size int64, label string, serial uint32, files []NewFile) (*FAT32, error) {
	total := min(size/mbrSector, fat32MaxSectors) - fat32FirstSector
	if size < MinFAT32Disk {
		return nil, fmt.Errorf("FAT32 needs a disk of %d bytes or more, this one has %d", MinFAT32Disk, size)
	}
	f := &FAT32{files: files, serial: serial, sectors: uint32(total), cluster: fat32Cluster(total)}
	copy(f.label[:], fmt.Sprintf("%-11.11s", strings.ToUpper(label)))
	f.layOut()
	next, records := uint32(3), 1 // cluster 2 is the root directory, whose first record is the label
	for _, n := range files {
		if n.Size < 0 || n.Size > MaxFAT32File {
			return nil, fmt.Errorf("file %s has %d bytes; files in FAT32 have at most %d", n.Name, n.Size, int64(MaxFAT32File))
		}
		records += 1 + len(longNameRecords(n.Name, [11]byte{}))/recordSize
		need := (n.Size + f.clusterBytes() - 1) / f.clusterBytes()
		if need > int64(f.clusters)+2-int64(next) {
			return nil, fmt.Errorf("file %s has %d bytes, %d bytes are left for it in FAT32", n.Name, n.Size, (int64(f.clusters)+2-int64(next))*f.clusterBytes())
		}
		f.first = append(f.first, next)
		next += uint32(need)
	}
	if int64(records)*recordSize > f.clusterBytes() {
		return nil, fmt.Errorf("%d files have longer names than the root directory holds", len(files))
	}
	f.used = next - 2
	return f, nil
}

// fat32Cluster is the sectors of a cluster, as formatters choose them.
func fat32Cluster(sectors int64) uint32 {
	for _, c := range []struct {
		below   int64 // MiB
		sectors uint32
	}{{260, 1}, {8 << 10, 8}, {16 << 10, 16}, {32 << 10, 32}} {
		if sectors <= c.below<<20/mbrSector {
			return c.sectors
		}
	}
	return 64
}

// layOut sizes the tables, and puts the first cluster at a multiple of 1 MiB where the volume is
// large enough: that of a flash drive's blocks.
func (f *FAT32) layOut() {
	f.reserved = fat32Reserved
	f.table = (f.sectors/f.cluster*4)/mbrSector + 1
	start := f.reserved + fat32Tables*f.table
	if pad := -start % fat32FirstSector; f.sectors > 64*fat32FirstSector {
		f.reserved += pad
		start += pad
	}
	f.clusters = (f.sectors - start) / f.cluster
}

func (f *FAT32) clusterBytes() int64 { return int64(f.cluster) * mbrSector }

// diskOffset is where a sector of the volume is in the disk, in bytes.
func diskOffset(sector uint32) int64 { return (fat32FirstSector + int64(sector)) * mbrSector }

func (f *FAT32) clusterAt(n uint32) int64 {
	return diskOffset(f.reserved+fat32Tables*f.table) + int64(n-2)*f.clusterBytes()
}

// Offset is where the content of a file starts in the disk, in bytes. It is contiguous.
func (f *FAT32) Offset(file int) int64 { return f.clusterAt(f.first[file]) }

// WriteTables writes the root directory and the allocation tables, in order and in pieces.
func (f *FAT32) WriteTables(w io.WriterAt) error {
	for t := range uint32(fat32Tables) {
		if err := f.writeTable(w, diskOffset(f.reserved+t*f.table)); err != nil {
			return err
		}
	}
	root := make([]byte, f.clusterBytes())
	copy(root, f.label[:])
	root[11] = 0x08 // volume label
	at := recordSize
	for i, n := range f.files {
		short := shortNameOf(n.Name, i)
		at += copy(root[at:], longNameRecords(n.Name, short))
		first, size := f.first[i], uint32(n.Size)
		if size == 0 {
			first = 0
		}
		e := root[at : at+recordSize]
		copy(e, short[:])
		e[11] = 0x20 // archive
		binary.LittleEndian.PutUint16(e[16:], fatFirstDay)
		binary.LittleEndian.PutUint16(e[18:], fatFirstDay)
		binary.LittleEndian.PutUint16(e[20:], uint16(first>>16))
		binary.LittleEndian.PutUint16(e[24:], fatFirstDay)
		binary.LittleEndian.PutUint16(e[26:], uint16(first))
		binary.LittleEndian.PutUint32(e[28:], size)
		at += recordSize
	}
	_, err := w.WriteAt(root, f.clusterAt(2))
	return err
}

// fatFirstDay is 1 January 1980: the disk does not depend on a clock.
const fatFirstDay = 1<<5 | 1

// tablePiece is how much of a table is made at a time, in bytes.
const tablePiece = 1 << 20

func (f *FAT32) writeTable(w io.WriterAt, at int64) error {
	return writePieces(w, at, int64(f.table)*mbrSector, func(b []byte, off int64) {
		for i := 0; i < len(b); i += 4 {
			binary.LittleEndian.PutUint32(b[i:], f.entry(uint32(off/4)+uint32(i/4)))
		}
	})
}

// writePieces writes size bytes at a place of the disk, in order. fill makes what starts off bytes after it.
func writePieces(w io.WriterAt, at, size int64, fill func(b []byte, off int64)) error {
	buf := make([]byte, min(tablePiece, size))
	for off := int64(0); off < size; off += int64(len(buf)) {
		buf = buf[:min(tablePiece, size-off)]
		fill(buf, off)
		if _, err := w.WriteAt(buf, at+off); err != nil {
			return err
		}
	}
	return nil
}

// entry is the table's number of a cluster: the next one of its file.
func (f *FAT32) entry(n uint32) uint32 {
	switch {
	case n == 0:
		return 0x0FFFFF00 | fat32Media
	case n <= 2: // the second reserved entry, and the root directory
		return fatEndOfFile
	case n >= f.used+2:
		return 0
	}
	for _, first := range f.first {
		if n+1 == first {
			return fatEndOfFile
		}
	}
	if n+1 == f.used+2 {
		return fatEndOfFile
	}
	return n + 1
}

// WriteStart writes what makes the disk readable: the boot sectors of the volume, and last the
// partition table. Flush the disk before and after.
func (f *FAT32) WriteStart(w io.WriterAt) error {
	boot, info := f.bootSector(), f.infoSector()
	for _, s := range []struct {
		sector uint32
		data   []byte
	}{{7, info}, {6, boot}, {1, info}, {0, boot}} {
		if _, err := w.WriteAt(s.data, diskOffset(s.sector)); err != nil {
			return err
		}
	}
	_, err := w.WriteAt(newPartitionTable(fat32Partition, f.serial, f.sectors), 0)
	return err
}

func (f *FAT32) bootSector() []byte {
	b := make([]byte, mbrSector)
	copy(b, "\xEB\x58\x90MSWIN4.1")
	le := binary.LittleEndian
	le.PutUint16(b[11:], mbrSector)
	b[13] = byte(f.cluster)
	le.PutUint16(b[14:], uint16(f.reserved))
	b[16] = fat32Tables
	b[21] = fat32Media
	le.PutUint16(b[24:], 63)
	le.PutUint16(b[26:], 255)
	le.PutUint32(b[28:], fat32FirstSector)
	le.PutUint32(b[32:], f.sectors)
	le.PutUint32(b[36:], f.table)
	le.PutUint32(b[44:], 2) // root directory
	le.PutUint16(b[48:], 1) // information
	le.PutUint16(b[50:], 6) // copy of the boot sector
	b[64], b[66] = 0x80, 0x29
	le.PutUint32(b[67:], f.serial)
	copy(b[71:], f.label[:])
	copy(b[82:], "FAT32   ")
	// A computer that boots from it goes on to the next disk.
	copy(b[90:], "\xCD\x18\xF4\xEB\xFD")
	b[510], b[511] = 0x55, 0xAA
	return b
}

func (f *FAT32) infoSector() []byte {
	b := make([]byte, mbrSector)
	le := binary.LittleEndian
	le.PutUint32(b, 0x41615252)
	le.PutUint32(b[484:], 0x61417272)
	le.PutUint32(b[488:], f.clusters-f.used)
	le.PutUint32(b[492:], f.used+2)
	le.PutUint32(b[508:], 0xAA550000)
	return b
}

// newPartitionTable has one partition, with all sectors from the first multiple of 1 MiB on.
func newPartitionTable(kind byte, serial, sectors uint32) []byte {
	b := make([]byte, mbrSector)
	le := binary.LittleEndian
	le.PutUint32(b[440:], serial)
	e := b[mbrEntries : mbrEntries+mbrEntrySize]
	copy(e[1:], "\xFE\xFF\xFF") // cylinders and heads are not used
	e[4] = kind
	copy(e[5:], "\xFE\xFF\xFF")
	le.PutUint32(e[8:], fat32FirstSector)
	le.PutUint32(e[12:], sectors)
	b[510], b[511] = 0x55, 0xAA
	return b
}

// shortNameOf makes a unique short name: FILE0001.BIN, or the name itself if it is one.
func shortNameOf(name string, n int) (out [11]byte) {
	base, ext, _ := strings.Cut(name, ".")
	if len(base) > 8 || len(ext) > 3 || base == "" || strings.Trim(base+ext, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
		base, ext = fmt.Sprintf("FILE~%d", n+1), "BIN"
	}
	copy(out[:], fmt.Sprintf("%-8.8s%-3.3s", base, ext))
	return out
}

// longNameRecords are the records of a long name, none if the short one says it.
func longNameRecords(name string, short [11]byte) []byte {
	if len(name) <= 12 && shortNameOf(name, 0) != shortNameOf("", 0) {
		return nil
	}
	units := utf16.Encode([]rune(name))
	count := (len(units) + 12) / 13
	padded := append(units, 0)
	for len(padded) < count*13 {
		padded = append(padded, 0xFFFF)
	}
	out := make([]byte, 0, count*recordSize)
	for n := count; n > 0; n-- {
		e := make([]byte, recordSize)
		e[0], e[11], e[13] = byte(n), 0x0F, shortNameSum(short)
		if n == count {
			e[0] |= 0x40
		}
		for i, at := range [13]int{1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30} {
			binary.LittleEndian.PutUint16(e[at:], padded[(n-1)*13+i])
		}
		out = append(out, e...)
	}
	return out
}

func shortNameSum(short [11]byte) (sum byte) {
	for _, c := range short {
		sum = bits.RotateLeft8(sum, -1) + c
	}
	return sum
}
