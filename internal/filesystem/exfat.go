package filesystem

import (
	"errors"
	"fmt"
	"io"
)

// The facts about exFAT are those of Microsoft's "exFAT file system specification", revision 1.00.

// exfatName is what the boot sector of exFAT has where FAT has the formatter's name.
const exfatName = "EXFAT   "

const (
	// exfatBootSectors is the length of the boot region. Its last sector has the checksum of the others.
	exfatBootSectors = 12
	// exfatMaxClusters is how many clusters 32 bits can number next to the reserved values.
	exfatMaxClusters = 0xFFFFFFF5
	exfatEndOfChain  = 0xFFFFFFFF
	// exfatSecondTable is the flag of a volume whose second allocation table is the active one.
	exfatSecondTable = 1
)

// exfatBoot is the boot sector of an exFAT volume. Lengths and offsets are in sectors.
type exfatBoot struct {
	length                                uint64
	tableOffset, tableLength, heapOffset  int64
	clusters, rootCluster                 uint32
	revision, flags                       uint16
	sectorShift, clusterShift, tableCount uint8
}

func openExFAT(r io.ReaderAt, size int64) (*Volume, error) {
	if size < bootSectorSize {
		return nil, errOther
	}
	m, b := medium{r: r, size: size, kind: "exFAT"}, make(leBytes, bootSectorSize)
	if err := m.read(b, 0, "boot sector"); err != nil {
		return nil, err
	}
	if string(b[3:11]) != exfatName {
		return nil, errOther
	}
	v, err := openExFATBoot(m, b)
	if err != nil {
		return nil, m.errorf("%w", err)
	}
	return v, nil
}

func openExFATBoot(m medium, b leBytes) (*Volume, error) {
	p, err := parseExFATBoot(b)
	if err != nil {
		return nil, err
	}
	if err := p.checkSum(m); err != nil {
		return nil, err
	}
	if err := p.check(m.size); err != nil {
		return nil, err
	}
	h := p.heap(m)
	if err := h.checkTable(); err != nil {
		return nil, err
	}
	v := &clusterVolume{clusterHeap: h, nextEntry: nextExFATEntry}
	return v.open(p.rootCluster, exfatLabel)
}

// parseExFATBoot checks what the length of sectors and clusters depends on.
func parseExFATBoot(b leBytes) (exfatBoot, error) {
	p := exfatBoot{
		length: b.u64(72), tableOffset: int64(b.u32(80)), tableLength: int64(b.u32(84)), heapOffset: int64(b.u32(88)),
		clusters: b.u32(92), rootCluster: b.u32(96), revision: b.u16(104), flags: b.u16(106),
		sectorShift: b[108], clusterShift: b[109], tableCount: b[110],
	}
	switch {
	case string(b[:3]) != "\xEB\x76\x90" || b.u16(510) != 0xAA55:
		return p, fmt.Errorf("boot sector: jump code % x and signature %04x are not those of exFAT", []byte(b[:3]), b.u16(510))
	case p.revision>>8 != 1:
		return p, fmt.Errorf("boot sector: unknown revision %d.%02d", p.revision>>8, p.revision&0xFF)
	case p.sectorShift < 9 || p.sectorShift > 12:
		return p, fmt.Errorf("boot sector: 2^%d bytes per sector, possible are 2^9 to 2^12", p.sectorShift)
	case p.clusterShift > 25-p.sectorShift:
		return p, fmt.Errorf("boot sector: 2^%d sectors of 2^%d bytes per cluster, a cluster has at most 2^25 bytes", p.clusterShift, p.sectorShift)
	}
	for i, c := range b[11:64] {
		if c != 0 {
			return p, fmt.Errorf("boot sector: byte %d is %#02x and must be zero", 11+i, c)
		}
	}
	return p, nil
}

// exfatBootSum is the checksum of the boot region. Flags and the percentage in use are not in it: they
// change without a new one.
func exfatBootSum(region []byte) (sum uint32) {
	for i, c := range region {
		if i != 106 && i != 107 && i != 112 {
			sum = (sum>>1 | sum<<31) + uint32(c)
		}
	}
	return sum
}

// checkSum verifies the boot region.
func (p exfatBoot) checkSum(m medium) error {
	sector := 1 << p.sectorShift
	region := make(leBytes, exfatBootSectors*sector)
	if err := m.readFull(region, 0, "boot region"); err != nil {
		return err
	}
	sums := len(region) - sector
	sum := exfatBootSum(region[:sums])
	for at := sums; at < len(region); at += 4 {
		if stored := region.u32(at); stored != sum {
			return fmt.Errorf("boot region: checksum %#08x at byte %d, the region's is %#08x", stored, at, sum)
		}
	}
	return nil
}

func (p exfatBoot) check(size int64) error {
	length := int64(p.length)
	heapSectors := int64(p.clusters) << p.clusterShift
	switch {
	case p.length > uint64(size>>p.sectorShift):
		return fmt.Errorf("boot sector: the volume has %d sectors, the medium only %d", p.length, size>>p.sectorShift)
	case p.tableCount != 1 && p.tableCount != 2:
		return fmt.Errorf("boot sector: %d allocation tables, possible are 1 and 2", p.tableCount)
	case p.activeTable() >= int64(p.tableCount):
		return errors.New("boot sector: the second allocation table is active, there is only one")
	case p.tableOffset < 2*exfatBootSectors:
		return fmt.Errorf("boot sector: allocation table in sector %d, inside of the boot regions", p.tableOffset)
	case p.tableOffset+p.tableLength*int64(p.tableCount) > p.heapOffset:
		return fmt.Errorf("boot sector: %d allocation tables of %d sectors reach from sector %d beyond the start of the clusters, sector %d", p.tableCount, p.tableLength, p.tableOffset, p.heapOffset)
	case p.clusters == 0 || p.clusters > exfatMaxClusters:
		return fmt.Errorf("boot sector: %d clusters are not possible", p.clusters)
	case p.heapOffset+heapSectors > length:
		return fmt.Errorf("boot sector: %d clusters from sector %d on do not fit into %d sectors", p.clusters, p.heapOffset, length)
	}
	return nil
}

// activeTable returns 0 for the first allocation table and 1 for the second.
func (p exfatBoot) activeTable() int64 { return int64(p.flags & exfatSecondTable) }

func (p exfatBoot) heap(m medium) clusterHeap {
	return clusterHeap{
		medium:    m,
		table:     (p.tableOffset + p.activeTable()*p.tableLength) << p.sectorShift,
		tableSize: p.tableLength << p.sectorShift,
		bits:      32,
		mask:      0xFFFFFFFF,
		end:       exfatEndOfChain,
		start:     p.heapOffset << p.sectorShift,
		cluster:   1 << (p.sectorShift + p.clusterShift),
		count:     p.clusters,
	}
}
