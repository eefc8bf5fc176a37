package filesystem

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sort"
)

// The facts about partition tables are those of the UEFI specification, version 2.10, chapter 5.
const (
	mbrSize = 512
	// mbrSector is the unit of an MBR's numbers. Media with larger sectors have a GPT.
	mbrSector      = 512
	mbrEntries     = 446
	mbrEntrySize   = 16
	mbrFirstInside = 5
	mbrProtective  = 0xEE

	gptSignature = "EFI PART"
	// gptHeaderSize is what every GPT header has; a newer one may have more.
	gptHeaderSize = 92
	gptEntrySize  = 128
	// maxTableSize is how many bytes of GPT entries are read: 64 times as many as usual.
	maxTableSize = 1 << 20
	// maxPartitions is how many partitions a medium may have.
	maxPartitions = 256
)

// Partition is a part of a medium, in bytes.
type Partition struct {
	// Number is the one that Linux gives the partition.
	Number      int
	Start, Size int64
}

// Partitions reads the partition table of a medium: GPT, or MBR with logical partitions. The
// error is ErrUnknown if there is none. Partitions are in the medium and do not overlap.
func Partitions(r io.ReaderAt, size int64) ([]Partition, error) {
	m := medium{r: r, size: size, kind: "partition table"}
	if size < mbrSize {
		return nil, ErrUnknown
	}
	b := make([]byte, mbrSize)
	if err := m.read(b, 0, "MBR"); err != nil {
		return nil, err
	}
	entries, ok := mbrTable(b)
	if !ok {
		return nil, ErrUnknown
	}
	read := m.readMBR
	if slices.ContainsFunc(entries, func(e mbrEntry) bool { return e.kind == mbrProtective }) {
		read = func([]mbrEntry) ([]Partition, error) { return m.readGPT() }
	}
	list, err := read(entries)
	if err == nil {
		err = checkPartitions(list, size)
	}
	if err != nil {
		return nil, m.errorf("%w", err)
	}
	return list, nil
}

// checkPartitions reports partitions that are outside of the medium or overlap.
func checkPartitions(list []Partition, size int64) error {
	if len(list) > maxPartitions {
		return fmt.Errorf("more than %d partitions", maxPartitions)
	}
	sorted := slices.Clone(list)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].Start < sorted[j].Start })
	for i, p := range sorted {
		if p.Start > size || p.Size > size-p.Start {
			return fmt.Errorf("partition %d (%d bytes at byte %d) is not inside of the medium, which has %d bytes", p.Number, p.Size, p.Start, size)
		}
		if i > 0 && p.Start < sorted[i-1].Start+sorted[i-1].Size {
			return fmt.Errorf("partitions %d and %d overlap at byte %d", sorted[i-1].Number, p.Number, p.Start)
		}
	}
	return nil
}

// mbrEntry is an entry of an MBR, or of the record before a logical partition.
type mbrEntry struct {
	kind        byte
	start, size int64
}

func (e mbrEntry) extended() bool { return e.kind == 0x05 || e.kind == 0x0F || e.kind == 0x85 }
func (e mbrEntry) empty() bool    { return e.kind == 0 || e.size == 0 }

// mbrTable returns the four entries of an MBR. It reports false for other sectors with the same
// end mark, which boot sectors of file systems have.
func mbrTable(b []byte) ([]mbrEntry, bool) {
	if b[510] != 0x55 || b[511] != 0xAA {
		return nil, false
	}
	var entries []mbrEntry
	used := false
	for at := mbrEntries; at < mbrEntries+4*mbrEntrySize; at += mbrEntrySize {
		if b[at]&0x7F != 0 {
			return nil, false
		}
		e := mbrEntry{
			kind:  b[at+4],
			start: int64(binary.LittleEndian.Uint32(b[at+8:])) * mbrSector,
			size:  int64(binary.LittleEndian.Uint32(b[at+12:])) * mbrSector,
		}
		used = used || !e.empty()
		entries = append(entries, e)
	}
	return entries, used
}

func (m medium) readMBR(entries []mbrEntry) ([]Partition, error) {
	var list []Partition
	var extended []mbrEntry
	for i, e := range entries {
		switch {
		case e.empty():
		case e.extended():
			extended = append(extended, e)
		default:
			list = append(list, Partition{Number: i + 1, Start: e.start, Size: e.size})
		}
	}
	if len(extended) > 1 {
		return nil, fmt.Errorf("%d extended partitions, possible is one", len(extended))
	}
	if len(extended) == 0 {
		return list, nil
	}
	logical, err := m.readLogical(extended[0])
	return append(list, logical...), err
}

// readLogical follows the records of logical partitions. Each names its partition and the next
// record. No record counts twice, so that a loop ends.
func (m medium) readLogical(extended mbrEntry) ([]Partition, error) {
	var list []Partition
	seen := map[int64]bool{}
	for at, more := extended.start, true; more; {
		if seen[at] {
			return nil, fmt.Errorf("loop of logical partitions: the record at byte %d is in it twice", at)
		}
		if len(seen) == maxPartitions {
			return nil, fmt.Errorf("more than %d logical partitions", maxPartitions)
		}
		seen[at] = true
		entries, err := m.logicalRecord(at, len(seen) == 1)
		if err != nil {
			return nil, err
		}
		if e := entries[0]; !e.empty() {
			list = append(list, Partition{Number: mbrFirstInside + len(list), Start: at + e.start, Size: e.size})
		}
		next := entries[1]
		at, more = extended.start+next.start, !next.empty()
	}
	end := extended.start + extended.size
	for _, p := range list {
		if p.Start+p.Size > end {
			return nil, fmt.Errorf("logical partition %d ends at byte %d, after the extended partition, which ends at byte %d", p.Number, p.Start+p.Size, end)
		}
	}
	return list, nil
}

// logicalRecord returns the entries of a logical partition and of the next record. The first
// record may be missing: the extended partition has no partitions then.
func (m medium) logicalRecord(at int64, first bool) ([]mbrEntry, error) {
	b := make([]byte, mbrSize)
	if err := m.readFull(b, at, "record of a logical partition"); err != nil {
		return nil, err
	}
	entries, ok := mbrTable(b)
	switch {
	case !ok && first:
		return make([]mbrEntry, 2), nil
	case !ok || entries[0].extended() || !entries[1].empty() && !entries[1].extended():
		return nil, fmt.Errorf("no record of a logical partition at byte %d", at)
	}
	return entries[:2], nil
}

// readGPT reads the GPT at the start of the medium, or its copy at the end.
func (m medium) readGPT() ([]Partition, error) {
	var first error
	for _, sector := range []int64{512, 4096} {
		for _, at := range []int64{sector, m.size/sector*sector - sector} {
			list, err := m.readGPTAt(at, sector)
			if err == nil {
				return list, nil
			}
			if first == nil {
				first = err
			}
		}
	}
	return nil, first
}

func (m medium) readGPTAt(at, sector int64) ([]Partition, error) {
	h := make(leBytes, sector)
	if err := m.readFull(h, at, "GPT header"); err != nil {
		return nil, err
	}
	if string(h[:8]) != gptSignature {
		return nil, fmt.Errorf("no GPT header at byte %d, though the MBR says that there is one", at)
	}
	length := int64(h.u32(12))
	if length < gptHeaderSize || length > sector {
		return nil, fmt.Errorf("GPT header at byte %d has a length of %d bytes", at, length)
	}
	want := h.u32(16)
	clear(h[16:20])
	if sum := crc32.ChecksumIEEE(h[:length]); sum != want {
		return nil, fmt.Errorf("GPT header at byte %d has checksum %#08x, its contents have %#08x", at, want, sum)
	}
	if self := h.u64(24); self != uint64(at/sector) {
		return nil, fmt.Errorf("GPT header at byte %d says that it is in sector %d", at, self)
	}
	return m.readGPTEntries(h, at, sector)
}

// readGPTEntries reads the entries of a verified header.
func (m medium) readGPTEntries(h leBytes, at, sector int64) ([]Partition, error) {
	start, count, width := h.u64(72), int64(h.u32(80)), int64(h.u32(84))
	if width < gptEntrySize || width%gptEntrySize != 0 || count == 0 || count > maxTableSize/width {
		return nil, fmt.Errorf("GPT header at byte %d has %d entries of %d bytes", at, count, width)
	}
	if start > uint64(m.size/sector) {
		return nil, fmt.Errorf("GPT header at byte %d has its entries in sector %d, outside of the medium", at, start)
	}
	table := make(leBytes, count*width)
	if err := m.readFull(table, int64(start)*sector, "GPT entries"); err != nil {
		return nil, err
	}
	if sum := crc32.ChecksumIEEE(table); sum != h.u32(88) {
		return nil, fmt.Errorf("GPT entries at byte %d have checksum %#08x, the header has %#08x", int64(start)*sector, sum, h.u32(88))
	}
	return parseGPTEntries(table, width, m.size/sector, sector)
}

func parseGPTEntries(table leBytes, width, sectors, sector int64) ([]Partition, error) {
	var list []Partition
	for i := range int64(len(table)) / width {
		e := table[i*width:][:gptEntrySize]
		if e.u64(0) == 0 && e.u64(8) == 0 {
			continue
		}
		first, last := e.u64(32), e.u64(40)
		if first > last || last >= uint64(sectors) {
			return nil, fmt.Errorf("partition %d has sectors %d to %d, the medium has %d", i+1, first, last, sectors)
		}
		list = append(list, Partition{Number: int(i) + 1, Start: int64(first) * sector, Size: int64(last-first+1) * sector})
	}
	return list, nil
}
