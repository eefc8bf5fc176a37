package filesystem

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"strings"
	"testing"
)

// mbrImage is a medium of so many sectors with an MBR.
func mbrImage(sectors int, entries ...mbrEntry) []byte {
	image := make([]byte, sectors*mbrSector)
	putTable(image, 0, entries...)
	return image
}

// putTable writes an MBR, or the record of a logical partition. Starts and sizes are in sectors.
func putTable(image []byte, sector int, entries ...mbrEntry) {
	b := image[sector*mbrSector:][:mbrSize]
	for i, e := range entries {
		at := mbrEntries + i*mbrEntrySize
		b[at+4] = e.kind
		binary.LittleEndian.PutUint32(b[at+8:], uint32(e.start))
		binary.LittleEndian.PutUint32(b[at+12:], uint32(e.size))
	}
	b[510], b[511] = 0x55, 0xAA
}

// logicalImage has primary partition 1, and logical partitions 5 and 6 in the extended one.
func logicalImage() []byte {
	image := mbrImage(200, mbrEntry{0x0C, 10, 20}, mbrEntry{0x0F, 40, 100})
	putTable(image, 40, mbrEntry{0x83, 2, 20}, mbrEntry{0x05, 50, 30})
	putTable(image, 90, mbrEntry{0x07, 3, 25})
	return image
}

// gptImage is a medium with a GPT and its copy. Each partition has its first and last sector.
func gptImage(sector, sectors int, partitions ...[2]uint64) []byte {
	image := make([]byte, sector*sectors)
	putTable(image, 0, mbrEntry{mbrProtective, 1, int64(sectors - 1)})
	entries := make([]byte, 128*gptEntrySize)
	for i, p := range partitions {
		e := entries[i*gptEntrySize:]
		e[0], e[16] = 0xAF, byte(i+1)
		binary.LittleEndian.PutUint64(e[32:], p[0])
		binary.LittleEndian.PutUint64(e[40:], p[1])
	}
	length := (len(entries) + sector - 1) / sector
	putGPT(image, sector, 1, sectors-1, 2, entries)
	putGPT(image, sector, sectors-1, 1, sectors-1-length, entries)
	return image
}

func putGPT(image []byte, sector, at, other, table int, entries []byte) {
	copy(image[table*sector:], entries)
	h := image[at*sector:][:gptHeaderSize]
	copy(h, gptSignature)
	binary.LittleEndian.PutUint32(h[8:], 1<<16)
	binary.LittleEndian.PutUint32(h[12:], gptHeaderSize)
	binary.LittleEndian.PutUint64(h[24:], uint64(at))
	binary.LittleEndian.PutUint64(h[32:], uint64(other))
	binary.LittleEndian.PutUint64(h[72:], uint64(table))
	binary.LittleEndian.PutUint32(h[80:], 128)
	binary.LittleEndian.PutUint32(h[84:], gptEntrySize)
	binary.LittleEndian.PutUint32(h[88:], crc32.ChecksumIEEE(entries))
	repairGPT(image, at*sector)
}

// repairGPT writes the checksum of a header, so that its changes come through it.
func repairGPT(image []byte, at int) {
	if len(image) < at+512 {
		return
	}
	h := image[at:]
	length := binary.LittleEndian.Uint32(h[12:])
	if length > 512 {
		return
	}
	clear(h[16:20])
	binary.LittleEndian.PutUint32(h[16:], crc32.ChecksumIEEE(h[:length]))
}

func TestPartitions(t *testing.T) {
	t.Parallel()
	gpt := gptImage(512, 200, [2]uint64{40, 59}, [2]uint64{100, 150})
	want := []Partition{{1, 40 * 512, 20 * 512}, {2, 100 * 512, 51 * 512}}
	for name, c := range map[string]struct {
		image []byte
		want  []Partition
	}{
		"MBR":                      {mbrImage(100, mbrEntry{}, mbrEntry{0x0C, 10, 20}, mbrEntry{}, mbrEntry{0x83, 30, 70}), []Partition{{2, 5120, 10240}, {4, 15360, 35840}}},
		"logical":                  {logicalImage(), []Partition{{1, 10 * 512, 20 * 512}, {5, 42 * 512, 20 * 512}, {6, 93 * 512, 25 * 512}}},
		"empty extended partition": {mbrImage(100, mbrEntry{0x05, 10, 20}), nil},
		"GPT":                      {gpt, want},
		"GPT with sectors of 4096": {gptImage(4096, 40, [2]uint64{8, 9}), []Partition{{1, 8 * 4096, 2 * 4096}}},
		"GPT with damaged start":   {put(512, 0)(bytes.Clone(gpt)), want},
		"GPT with damaged entries": {put(1024, 0)(bytes.Clone(gpt)), want},
		"GPT with damaged copy":    {put(199*512, 0)(bytes.Clone(gpt)), want},
		"GPT without partitions":   {gptImage(512, 200), nil},
	} {
		got, err := Partitions(bytes.NewReader(c.image), int64(len(c.image)))
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v: %v", name, got, c.want, err)
		}
	}
}

func TestNoPartitions(t *testing.T) {
	t.Parallel()
	for name, image := range map[string][]byte{
		"nothing": nil, "zeros": make([]byte, 1<<20), "FAT32": buildFAT32(20), "exFAT": buildExFAT(20, 0),
		"ext4": fuzzImage(t, "ext4-map"), "ISO 9660": fuzzImage(t, "iso9660-joliet"), "no entries": mbrImage(10),
		"boot code": put(446, bytes.Repeat([]byte{0x90}, 64)...)(mbrImage(10)),
	} {
		if list, err := Partitions(bytes.NewReader(image), int64(len(image))); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %v %v", name, list, err)
		}
	}
}

// It measures memory, so no other test runs meanwhile.
func TestHostilePartitions(t *testing.T) {
	gpt := gptImage(512, 200, [2]uint64{40, 59})
	// header changes both headers of the GPT and repairs their checksums.
	header := func(at int, values ...byte) []byte {
		image := bytes.Clone(gpt)
		for _, h := range []int{512, 199 * 512} {
			copy(image[h+at:], values)
			repairGPT(image, h)
		}
		return image
	}
	both := func(at int) []byte { return put(199*512+at, 0xEE)(put(512+at, 0xEE)(bytes.Clone(gpt))) }
	for _, c := range []struct {
		name  string
		image []byte
		want  string
	}{
		{"overlap", mbrImage(100, mbrEntry{0x83, 30, 20}, mbrEntry{0x0C, 10, 21}), "partitions 2 and 1 overlap at byte 15360"},
		{"beyond the end", mbrImage(100, mbrEntry{0x83, 90, 11}), "partition 1 (5632 bytes at byte 46080) is not inside of the medium, which has 51200 bytes"},
		{"start beyond the end", mbrImage(100, mbrEntry{0x83, 1<<32 - 1, 1<<32 - 1}), "is not inside of the medium"},
		{"two extended", mbrImage(100, mbrEntry{0x05, 10, 20}, mbrEntry{0x0F, 40, 20}), "2 extended partitions"},
		{"loop of one", put(90*512+462+4, 5, 0, 0, 0, 50, 0, 0, 0, 9)(logicalImage()), "loop of logical partitions: the record at byte 46080"},
		{"loop of two", put(90*512+462+4, 5, 0, 0, 0, 0, 0, 0, 0, 9)(logicalImage()), "loop of logical partitions: the record at byte 20480"},
		{"next record beyond the end", put(40*512+462+8, 0, 0, 0, 1)(logicalImage()), "record of a logical partition at byte 8589955072 is outside"},
		{"next record is none", put(90*512+510, 0)(logicalImage()), "no record of a logical partition at byte 46080"},
		{"logical in logical", put(40*512+446+4, 5)(logicalImage()), "no record of a logical partition at byte 20480"},
		{"logical after the extended", put(90*512+446+12, 60)(logicalImage()), "logical partition 6 ends at byte 78336, after the extended partition"},
		{"logical overlaps primary", put(446+12, 60)(logicalImage()), "partitions 1 and 5 overlap at byte 21504"},
		{"GPT header checksum", both(40), "GPT header at byte 512 has checksum"},
		{"GPT signature", both(0), "no GPT header at byte 512"},
		{"GPT entry checksum", put(167*512+200, 1)(put(2*512+200, 1)(bytes.Clone(gpt))), "GPT entries at byte 1024 have checksum"},
		{"GPT header length", header(12, 0xFF, 0xFF), "has a length of 65535 bytes"},
		{"GPT in another sector", header(24, 7), "says that it is in sector 7"},
		{"GPT entries too many", header(80, 0xFF, 0xFF, 0xFF, 0xFF), "4294967295 entries of 128 bytes"},
		{"GPT entries of no size", header(84, 0), "128 entries of 0 bytes"},
		{"GPT entries outside", header(72, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F), "outside of the medium"},
		{"GPT entries at the end", header(72, 198), "GPT entries at byte 101376 is outside of the volume"},
		{"GPT overlap", gptImage(512, 200, [2]uint64{40, 59}, [2]uint64{59, 70}), "partitions 1 and 2 overlap at byte 30208"},
		{"GPT beyond the end", gptImage(512, 200, [2]uint64{40, 200}), "partition 1 has sectors 40 to 200, the medium has 200"},
		{"GPT backwards", gptImage(512, 200, [2]uint64{40, 39}), "partition 1 has sectors 40 to 39"},
		{"GPT huge", gptImage(512, 200, [2]uint64{0, 1<<64 - 1}), "partition 1 has sectors 0 to 18446744073709551615"},
		{"cut off", gpt[:700], "GPT header at byte 512 is outside of the volume"},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkBounded(t, 4<<20, func() {
				list, err := Partitions(bytes.NewReader(c.image), int64(len(c.image)))
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v %v, want %q", list, err, c.want)
				}
			})
		})
	}
}

func FuzzPartitions(f *testing.F) {
	f.Add(mbrImage(100, mbrEntry{0x83, 30, 20}), false)
	f.Add(logicalImage(), false)
	f.Add(gptImage(512, 80, [2]uint64{40, 45}), true)
	f.Add(gptImage(4096, 12, [2]uint64{6, 6}), true)
	f.Fuzz(func(t *testing.T, image []byte, repair bool) {
		if repair {
			image = bytes.Clone(image)
			repairGPT(image, 512)
		}
		checkBounded(t, 8<<20, func() {
			list, err := Partitions(bytes.NewReader(image), int64(len(image)))
			if err != nil {
				return
			}
			end := int64(0)
			slices.SortFunc(list, func(a, b Partition) int { return int(a.Start - b.Start) })
			for _, p := range list {
				if p.Number < 1 || p.Start < end || p.Size <= 0 || p.Start+p.Size > int64(len(image)) {
					t.Errorf("%v on a medium of %d bytes", list, len(image))
				}
				end = p.Start + p.Size
			}
		})
	})
}

// A medium in a format that is known, but not read, is named.
func TestUnsupportedFormats(t *testing.T) {
	for _, s := range signatures {
		image := make([]byte, 128<<10)
		copy(image[s.at:], s.bytes)
		_, err := Open(bytes.NewReader(image), int64(len(image)))
		var unsupported *UnsupportedError
		if !errors.As(err, &unsupported) || unsupported.Kind != s.kind || !strings.Contains(err.Error(), "use FAT, exFAT, ISO 9660 or ext4") {
			t.Errorf("%s: %v", s.kind, err)
		}
		if short := image[:min(s.at, 600)]; len(short) > 0 {
			if _, err := Open(bytes.NewReader(short), int64(len(short))); errors.As(err, &unsupported) {
				t.Errorf("%s in %d bytes: %v", s.kind, len(short), err)
			}
		}
	}
	if _, err := Open(bytes.NewReader(make([]byte, 128<<10)), 128<<10); !errors.Is(err, ErrUnknown) {
		t.Errorf("zeros: %v", err)
	}
}
