package filesystem

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// The facts about FAT are those of "Microsoft Extensible Firmware Initiative FAT32 File System
// Specification", version 1.03 (fatgen103), and of the records for long names in it.

const (
	bootSectorSize = 512
	// fat32MaxClusters is how many clusters 28 bits can number next to the reserved values.
	fat32MaxClusters = 0x0FFFFFF5
)

// fatBoot is the boot sector of a FAT volume.
type fatBoot struct {
	sector, sectorsPerCluster, reserved, tables, rootEntries, tableSectors, sectors int64
	// wide is whether the volume is FAT32. Its boot sector has more fields.
	wide        bool
	active      int64
	version     uint16
	rootCluster uint32
	label       string
}

// openFAT32 opens FAT32, and also FAT16 and FAT12, which small media have.
func openFAT32(r io.ReaderAt, size int64) (*Volume, error) {
	if size < bootSectorSize {
		return nil, errOther
	}
	m, b := medium{r: r, size: size, kind: "FAT"}, make(leBytes, bootSectorSize)
	if err := m.read(b, 0, "boot sector"); err != nil {
		return nil, err
	}
	if !isFAT(b) {
		return nil, errOther
	}
	v, err := openFAT(m, parseFATBoot(b))
	if err != nil {
		return nil, m.errorf("%w", err)
	}
	return v, nil
}

// isFAT recognizes a boot sector by the names that formatters write, or by plausible numbers. A
// partition table has the same end mark, and code in the place of both.
func isFAT(b leBytes) bool {
	if b[510] != 0x55 || b[511] != 0xAA || (b[0] != 0xEB && b[0] != 0xE9) || string(b[3:11]) == exfatName {
		return false
	}
	if string(b[82:87]) == "FAT32" || string(b[54:57]) == "FAT" {
		return true
	}
	p := parseFATBoot(b)
	return p.checkSectors() == nil && p.tables <= 2 && b[21] >= 0xF0
}

func parseFATBoot(b leBytes) fatBoot {
	p := fatBoot{
		sector: int64(b.u16(11)), sectorsPerCluster: int64(b[13]), reserved: int64(b.u16(14)), tables: int64(b[16]),
		rootEntries: int64(b.u16(17)), sectors: int64(b.u16(19)), tableSectors: int64(b.u16(22)),
	}
	if p.sectors == 0 {
		p.sectors = int64(b.u32(32))
	}
	extended := b[36:]
	if p.tableSectors == 0 {
		p.wide, p.tableSectors, p.version, p.rootCluster = true, int64(b.u32(36)), b.u16(42), b.u32(44)
		if flags := b.u16(40); flags&0x80 != 0 {
			p.active = int64(flags & 0xF)
		}
		extended = b[64:]
	}
	if extended[2] == 0x29 {
		p.label = fatLabel(extended[7:18])
	}
	return p
}

func (p fatBoot) checkSectors() error {
	switch {
	case p.sector < 512 || p.sector > 4096 || p.sector&(p.sector-1) != 0:
		return fmt.Errorf("boot sector: %d bytes per sector, possible are 512, 1024, 2048 and 4096", p.sector)
	case p.sectorsPerCluster == 0 || p.sectorsPerCluster&(p.sectorsPerCluster-1) != 0:
		return fmt.Errorf("boot sector: %d sectors per cluster, which is no power of two", p.sectorsPerCluster)
	case p.reserved == 0:
		return errors.New("boot sector: no reserved sectors")
	case p.tables == 0 || p.tableSectors == 0:
		return errors.New("boot sector: no allocation table")
	}
	return nil
}

func (p fatBoot) check(size int64) error {
	if err := p.checkSectors(); err != nil {
		return err
	}
	switch {
	case p.active >= p.tables:
		return fmt.Errorf("boot sector: allocation table %d is active, there are %d", p.active, p.tables)
	case p.version != 0:
		return fmt.Errorf("boot sector: unknown version %d.%d of FAT32", p.version>>8, p.version&0xFF)
	case p.wide != (p.rootEntries == 0):
		return fmt.Errorf("boot sector: %d entries of the root directory do not fit to an allocation table of %d sectors", p.rootEntries, p.tableSectors)
	case p.sectors > size/p.sector:
		return fmt.Errorf("boot sector: the volume has %d bytes, the medium only %d", p.sectors*p.sector, size)
	case p.dataStart() >= p.sectors*p.sector:
		return fmt.Errorf("boot sector: no cluster in a volume of %d sectors", p.sectors)
	}
	return nil
}

// rootStart returns where the tables end, and the root directory of FAT12 and FAT16 starts.
func (p fatBoot) rootStart() int64 { return (p.reserved + p.tables*p.tableSectors) * p.sector }

func (p fatBoot) dataStart() int64 {
	rootSectors := (p.rootEntries*recordSize + p.sector - 1) / p.sector
	return p.rootStart() + rootSectors*p.sector
}

// heap returns the clusters of a checked volume. FAT12 and FAT16 differ by their number only.
func (p fatBoot) heap(m medium) (clusterHeap, error) {
	h := clusterHeap{
		medium:    m,
		table:     (p.reserved + p.active*p.tableSectors) * p.sector,
		tableSize: p.tableSectors * p.sector,
		start:     p.dataStart(),
		cluster:   p.sectorsPerCluster * p.sector,
	}
	count := (p.sectors*p.sector - h.start) / h.cluster
	switch {
	case p.wide && count <= fat32MaxClusters:
		h.bits, h.mask, h.end = 32, 0x0FFFFFFF, 0x0FFFFFF8
	case !p.wide && count < 4085:
		h.bits, h.mask, h.end = 12, 0xFFF, 0xFF8
	case !p.wide && count < 65525:
		h.bits, h.mask, h.end = 16, 0xFFFF, 0xFFF8
	default:
		return h, fmt.Errorf("boot sector: %d clusters are too many", count)
	}
	h.count, h.kind = uint32(count), fmt.Sprintf("FAT%d", h.bits)
	return h, h.checkTable()
}

func openFAT(m medium, p fatBoot) (*Volume, error) {
	if err := p.check(m.size); err != nil {
		return nil, err
	}
	h, err := p.heap(m)
	if err != nil {
		return nil, err
	}
	v := &clusterVolume{clusterHeap: h, nextEntry: fatEntries{wide: p.wide}.next}
	if !p.wide {
		v.rootArea = io.NewSectionReader(m.r, p.rootStart(), p.rootEntries*recordSize)
	}
	volume, err := v.open(p.rootCluster, func(b leBytes) (string, bool) {
		return fatLabel(b[:11]), b[0] != fatDeleted && b[11]&fatAttributes != fatLongAttributes && b[11]&fatVolumeLabel != 0
	})
	if err == nil && volume.Label == "" {
		volume.Label = p.label
	}
	return volume, err
}

// fatLabel returns a label of 11 bytes. Formatters write NO NAME where there is none.
func fatLabel(b []byte) string {
	label := strings.TrimRight(fatOEM(b), " ")
	if label == "NO NAME" {
		return ""
	}
	return label
}
