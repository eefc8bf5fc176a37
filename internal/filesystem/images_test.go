package filesystem

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
)

// testFile is a file or directory that the builders of this file put into an image.
type testFile struct {
	name string
	data []byte
	// children makes it a directory.
	children []testFile
	// fragmented leaves a free cluster after each one.
	fragmented bool
	// chained gives a contiguous file of exFAT a chain in the allocation table all the same.
	chained bool
	// unwritten is how many bytes at the end were never written (exFAT).
	unwritten int
}

// imageBuilder has what FAT and exFAT have in common: clusters, and an allocation table of 32 bits.
type imageBuilder struct {
	image          []byte
	table, heap    int
	cluster, count int
	// next is the next free cluster, used are those with contents.
	next       uint32
	used       []uint32
	endOfChain uint32
}

// store writes contents and returns the first cluster.
func (b *imageBuilder) store(data []byte, fragmented, chained bool) uint32 {
	if len(data) == 0 {
		return 0
	}
	first, previous := b.next, uint32(0)
	for ; len(data) > 0; data = data[min(len(data), b.cluster):] {
		c := b.next
		if int(c) >= b.count+2 {
			panic("the image is too small for its files")
		}
		copy(b.image[b.heap+int(c-2)*b.cluster:], data[:min(len(data), b.cluster)])
		if chained {
			binary.LittleEndian.PutUint32(b.image[b.table+int(c)*4:], b.endOfChain)
			if previous != 0 {
				binary.LittleEndian.PutUint32(b.image[b.table+int(previous)*4:], c)
			}
		}
		previous = c
		b.used = append(b.used, c)
		b.next++
		if fragmented {
			b.next++
		}
	}
	return first
}

var (
	le16 = binary.LittleEndian.AppendUint16
	le32 = binary.LittleEndian.AppendUint32
	le64 = binary.LittleEndian.AppendUint64
)

// buildFAT32 returns a small FAT32 image with sectors and clusters of 512 bytes.
func buildFAT32(clusters int, root ...testFile) []byte {
	const sector, reserved = 512, 8
	tableSectors := ((clusters+2)*4 + sector - 1) / sector
	total := reserved + 2*tableSectors + clusters
	b := &imageBuilder{
		image: make([]byte, total*sector), table: reserved * sector, heap: (reserved + 2*tableSectors) * sector,
		cluster: sector, count: clusters, next: 3, endOfChain: 0x0FFFFFFF,
	}
	boot := append([]byte("\xEB\x58\x90TESTTEST"), 0, 2, 1, reserved, 0, 2, 0, 0, 0, 0, 0xF8, 0, 0, 63, 0, 255, 0, 0, 0, 0, 0)
	boot = le32(boot, uint32(total))
	boot = le32(boot, uint32(tableSectors))
	boot = append(boot, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 6, 0)
	boot = append(boot, make([]byte, 12)...)
	boot = append(boot, 0x80, 0, 0x29, 1, 2, 3, 4)
	boot = append(boot, "TEST LABEL FAT32   "...)
	copy(b.image, boot)
	copy(b.image[510:], "\x55\xAA")
	copy(b.image[6*sector:], b.image[:sector])
	info := b.image[sector:]
	copy(info, "RRaA")
	copy(info[484:], "rrAa\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF")
	copy(info[510:], "\x55\xAA")
	copy(b.image[7*sector:], info[:sector])
	copy(b.image[b.table:], "\xF8\xFF\xFF\x0F\xFF\xFF\xFF\x0F")

	content := append([]byte("TEST LABEL \x08"), make([]byte, 20)...)
	content = append(content, b.fatDirectory(root, 2)...)
	rootFirst := b.store(content[min(len(content), sector):], false, true)
	copy(b.image[b.heap:], content[:min(len(content), sector)])
	if rootFirst == 0 {
		rootFirst = b.endOfChain
	}
	binary.LittleEndian.PutUint32(b.image[b.table+8:], rootFirst)
	copy(b.image[b.table+tableSectors*sector:], b.image[b.table:b.table+tableSectors*sector])
	return b.image
}

func (b *imageBuilder) fatDirectory(files []testFile, self uint32) []byte {
	var out []byte
	for i, f := range files {
		var first uint32
		size, attributes := len(f.data), byte(0x20)
		if f.children != nil {
			first, size, attributes = b.fatChild(f, self), 0, 0x10
		} else {
			first = b.store(f.data, f.fragmented, true)
		}
		short := fmt.Appendf(nil, "F%07d   ", i)
		out = append(out, fatLongEntries(f.name, short)...)
		out = append(out, fatShortEntry(short, attributes, first, size)...)
	}
	return out
}

// fatChild stores a directory after its own first cluster is known.
func (b *imageBuilder) fatChild(f testFile, parent uint32) uint32 {
	if parent == 2 {
		parent = 0
	}
	self := b.store(make([]byte, b.cluster), false, true)
	content := fatShortEntry([]byte(".          "), 0x10, self, 0)
	content = append(content, fatShortEntry([]byte("..         "), 0x10, parent, 0)...)
	content = append(content, b.fatDirectory(f.children, self)...)
	copy(b.image[b.heap+int(self-2)*b.cluster:], content[:min(len(content), b.cluster)])
	if rest := b.store(content[min(len(content), b.cluster):], f.fragmented, true); rest != 0 {
		binary.LittleEndian.PutUint32(b.image[b.table+int(self)*4:], rest)
	}
	return self
}

func fatShortEntry(short []byte, attributes byte, first uint32, size int) []byte {
	e := append(slices.Clone(short), attributes, 0, 0, 0, 0, 0, 0, 0, 0)
	e = le16(e, uint16(first>>16))
	e = append(e, 0x40, 0x6A, 0x77, 0x5D) // 2026-11-23 13:18:00
	e = le16(e, uint16(first))
	return le32(e, uint32(size))
}

func fatLongEntries(name string, short []byte) []byte {
	units := append(utf16.Encode([]rune(name)), 0)
	for len(units)%13 != 0 {
		units = append(units, 0xFFFF)
	}
	if len(utf16.Encode([]rune(name)))%13 == 0 {
		units = units[:len(units)-13]
	}
	sum := byte(0)
	for _, c := range short {
		sum = (sum&1)<<7 + sum>>1 + c
	}
	var out []byte
	for part := len(units) / 13; part > 0; part-- {
		e := make([]byte, 32)
		e[0], e[11], e[13] = byte(part), 0x0F, sum
		if part == len(units)/13 {
			e[0] |= 0x40
		}
		for i, u := range units[(part-1)*13 : part*13] {
			at := []int{1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30}[i]
			binary.LittleEndian.PutUint16(e[at:], u)
		}
		out = append(out, e...)
	}
	return out
}

// buildFAT12 returns a tiny FAT12 image with file.bin of 1200 bytes in clusters 2, 5 and 3.
func buildFAT12() []byte {
	const sector, root, heap = 512, 2 * 512, 3 * 512
	image := make([]byte, 13*sector)
	boot := append([]byte("\xEB\x3C\x90TESTTEST"), 0, 2, 1, 1, 0, 1, 16, 0, 13, 0, 0xF8, 1, 0, 1, 0, 1, 0)
	boot = append(append(boot, make([]byte, 10)...), 0x29, 1, 2, 3, 4)
	copy(image, append(boot, "TINY       FAT12   "...))
	copy(image[510:], "\x55\xAA")
	copy(image[sector:], "\xF8\xFF\xFF\x05\xF0\xFF\x00\x30\x00")
	copy(image[root:], append(fatLongEntries("file.bin", []byte("FILE    BIN")), fatShortEntry([]byte("FILE    BIN"), 0x20, 2, 1200)...))
	for i, cluster := range []int{2, 5, 3} {
		copy(image[heap+(cluster-2)*sector:][:sector], bytes.Repeat([]byte{byte('a' + i)}, sector))
	}
	return image
}

// buildExFAT returns a small exFAT image with sectors of 512 bytes.
func buildExFAT(clusters, clusterShift int, root ...testFile) []byte {
	const sector, tableOffset = 512, 24
	tableSectors := ((clusters+2)*4 + sector - 1) / sector
	heap := tableOffset + tableSectors
	cluster := sector << clusterShift
	total := heap + clusters<<clusterShift
	b := &imageBuilder{
		image: make([]byte, total*sector), table: tableOffset * sector, heap: heap * sector,
		cluster: cluster, count: clusters, next: 2, endOfChain: 0xFFFFFFFF,
	}
	copy(b.image[b.table:], "\xF8\xFF\xFF\xFF\xFF\xFF\xFF\xFF")
	bitmap := make([]byte, (clusters+7)/8)
	bitmapFirst := b.store(bitmap, false, true)
	upCase := exfatUpCaseTable()
	var upCaseSum uint32
	for _, c := range upCase {
		upCaseSum = upCaseSum<<31 + upCaseSum>>1 + uint32(c)
	}
	upCaseFirst := b.store(upCase, false, true)

	content := append([]byte{0x83, 4}, 'T', 0, 'e', 0, 's', 0, 't', 0)
	content = append(content, make([]byte, 32-len(content))...)
	content = append(content, 0x81)
	content = le32(append(content, make([]byte, 19)...), bitmapFirst)
	content = le64(content, uint64(len(bitmap)))
	content = append(content, 0x82, 0, 0, 0)
	content = append(le32(content, upCaseSum), make([]byte, 12)...)
	content = le32(content, upCaseFirst)
	content = le64(content, uint64(len(upCase)))
	content = append(content, b.exfatDirectory(root)...)
	rootFirst := b.store(content, false, true)

	boot := append([]byte("\xEB\x76\x90EXFAT   "), make([]byte, 61)...)
	boot = le64(boot, uint64(total))
	for _, v := range []int{tableOffset, tableSectors, heap, clusters, int(rootFirst), 0x12345678} {
		boot = le32(boot, uint32(v))
	}
	boot = append(boot, 0, 1, 0, 0, 9, byte(clusterShift), 1, 0x80, 0xFF)
	copy(b.image, boot)
	for s := range 9 {
		copy(b.image[s*sector+510:], "\x55\xAA")
	}
	for _, c := range b.used {
		b.image[b.heap+int(bitmapFirst-2)*cluster+int(c-2)/8] |= 1 << ((c - 2) % 8)
	}
	repairExFATBoot(b.image)
	copy(b.image[12*sector:], b.image[:12*sector])
	return b.image
}

func (b *imageBuilder) exfatDirectory(files []testFile) []byte {
	var out []byte
	for _, f := range files {
		data, attributes := f.data, uint16(0x20)
		if f.children != nil {
			data, attributes = b.exfatDirectory(f.children), 0x10
			data = append(data, make([]byte, b.cluster-len(data)%b.cluster)...)
		}
		chained := f.fragmented || f.chained
		first := b.store(data, f.fragmented, chained)
		out = append(out, exfatEntrySet(f.name, attributes, first, !chained && first != 0, uint64(len(data)-f.unwritten), uint64(len(data)))...)
	}
	return out
}

func exfatEntrySet(name string, attributes uint16, first uint32, contiguous bool, valid, size uint64) []byte {
	units := utf16.Encode([]rune(name))
	parts := (len(units) + 14) / 15
	var hash uint16
	for _, u := range units {
		if u >= 'a' && u <= 'z' {
			u -= 32
		}
		hash = hash<<15 + hash>>1 + u&0xFF
		hash = hash<<15 + hash>>1 + u>>8
	}
	set := le16([]byte{0x85, byte(parts + 1), 0, 0}, attributes)
	set = append(set, 0, 0)
	for range 3 {
		set = le32(set, 0x5D776A40) // 2026-11-23 13:18:00
	}
	set = append(set, 5, 150, 0x84, 0x84, 0x84, 0, 0, 0, 0, 0, 0, 0) // one hour east of UTC
	flags := byte(1)
	if contiguous {
		flags = 3
	}
	set = le16(append(set, 0xC0, flags, 0, byte(len(units))), hash)
	set = le64(append(set, 0, 0), valid)
	set = le32(append(set, 0, 0, 0, 0), first)
	set = le64(set, size)
	for part := range parts {
		set = append(set, 0xC1, 0)
		for _, u := range units[part*15 : min(len(units), part*15+15)] {
			set = le16(set, u)
		}
		set = append(set, make([]byte, (32-len(set)%32)%32)...)
	}
	repairExFATSets(set)
	return set
}

// exfatUpCaseTable maps a to z and nothing else.
func exfatUpCaseTable() []byte {
	var out []byte
	for u := range uint16(128) {
		if u >= 'a' && u <= 'z' {
			u -= 32
		}
		out = le16(out, u)
	}
	return le16(le16(out, 0xFFFF), 0xFF80)
}

// repairExFATBoot writes the checksum of the boot region, so that a changed image comes through this check.
func repairExFATBoot(image []byte) {
	if len(image) < 512 || image[108] < 9 || image[108] > 12 || len(image) < 12<<image[108] {
		return
	}
	sector := 1 << image[108]
	var sum uint32
	for i, c := range image[:11*sector] {
		if i != 106 && i != 107 && i != 112 {
			sum = sum<<31 + sum>>1 + uint32(c)
		}
	}
	for at := 11 * sector; at < 12*sector; at += 4 {
		binary.LittleEndian.PutUint32(image[at:], sum)
	}
}

// repairExFATSets writes the checksums of all entry sets that an image has.
func repairExFATSets(image []byte) {
	for at := 0; at+32 <= len(image); at += 32 {
		end := at + 32*(1+int(image[at+1]))
		if image[at] != 0x85 || image[at+1] < 2 || image[at+1] > 18 || end > len(image) {
			continue
		}
		var sum uint16
		for i, c := range image[at:end] {
			if i != 2 && i != 3 {
				sum = sum<<15 + sum>>1 + uint16(c)
			}
		}
		binary.LittleEndian.PutUint16(image[at+2:], sum)
	}
}

// tool runs a program of the packages that `make deps` installs; without it the test is skipped.
func tool(t testing.TB, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		path = "/usr/sbin/" + name
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not installed: make deps", name)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// imageFile returns the path of a new sparse file.
func imageFile(t testing.TB, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return path
}

// openImageFile opens the volume of an image file.
func openImageFile(t testing.TB, path string) *Volume {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	v, err := Open(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return v
}
