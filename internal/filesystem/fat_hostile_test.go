package filesystem

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
)

// fatCorruption is a damaged or hostile image and the error that names the damage.
type fatCorruption struct {
	name   string
	change func(image []byte) []byte
	want   string
}

func put(at int, values ...byte) func([]byte) []byte {
	return func(image []byte) []byte {
		copy(image[at:], values)
		return image
	}
}

func put32(at int, v uint32) func([]byte) []byte {
	return put(at, binary.LittleEndian.AppendUint32(nil, v)...)
}

func put64(at int, v uint64) func([]byte) []byte {
	return put(at, binary.LittleEndian.AppendUint64(nil, v)...)
}

func both(changes ...func([]byte) []byte) func([]byte) []byte {
	return func(image []byte) []byte {
		for _, c := range changes {
			image = c(image)
		}
		return image
	}
}

func grow(n int) func([]byte) []byte {
	return func(image []byte) []byte { return append(image, make([]byte, n)...) }
}

// hostileFiles are in the images that are damaged. On FAT32, file.bin has clusters 3 to 6, dir 7 and sub 8.
func hostileFiles() []testFile {
	return []testFile{
		{name: "file.bin", data: randomBytes(1, 2000), chained: true},
		{name: "dir", children: []testFile{{name: "sub", children: []testFile{{name: "x", data: []byte("x")}}}}},
	}
}

// checkFATCorruptions walks each damaged image: one error that names the damage, in bounded time and memory.
func checkFATCorruptions(t *testing.T, image []byte, open func(io.ReaderAt, int64) (*Volume, error), list []fatCorruption) {
	t.Helper()
	if err := walkAll(open, image); err != nil {
		t.Fatalf("without damage: %v", err)
	}
	for _, c := range list {
		t.Run(c.name, func(t *testing.T) {
			damaged := c.change(bytes.Clone(image))
			checkBounded(t, 4<<20, func() {
				err := walkAll(open, damaged)
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %q", err, c.want)
				}
			})
		})
	}
}

// checkBounded checks that a function allocates little in sum.
func checkBounded(t *testing.T, allocated uint64, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > allocated {
		t.Errorf("allocated %d bytes, at most %d", got, allocated)
	}
}

// countedReader counts the bytes that are read: the bound of a hostile medium that no machine is too slow for.
type countedReader struct {
	io.ReaderAt
	bytes int64
}

func (r *countedReader) ReadAt(p []byte, off int64) (int, error) {
	r.bytes += int64(len(p))
	return r.ReaderAt.ReadAt(p, off)
}

// check complains about more bytes than a limit.
func (r *countedReader) check(t *testing.T, limit int64) {
	t.Helper()
	if r.bytes > limit {
		t.Errorf("read %d bytes, at most %d", r.bytes, limit)
	}
}

func TestFATCorruptions(t *testing.T) {
	const table, heap = 8 * 512, 10 * 512
	image := buildFAT32(100, hostileFiles()...)
	file := bytes.Index(image, []byte("F0000000   "))
	dir := bytes.Index(image, []byte("F0000001   "))
	sub := heap + 5*512 + bytes.Index(image[heap+5*512:], []byte("F0000000   "))
	checkFATCorruptions(t, image, openFAT32, []fatCorruption{
		{"zero bytes per sector", put(11, 0, 0), "boot sector: 0 bytes per sector"},
		{"zero sectors per cluster", put(13, 0), "boot sector: 0 sectors per cluster"},
		{"three sectors per cluster", put(13, 3), "boot sector: 3 sectors per cluster"},
		{"no reserved sectors", put(14, 0), "no reserved sectors"},
		{"no table", put(16, 0), "no allocation table"},
		{"active table outside", put(40, 0x85), "allocation table 5 is active, there are 2"},
		{"newer version", put(42, 1, 2), "unknown version 2.1"},
		{"root entries on FAT32", put(17, 1), "1 entries of the root directory"},
		{"volume larger than medium", put32(32, 1<<30), "the medium only 56320"},
		{"medium cut off", func(b []byte) []byte { return b[:len(b)-512] }, "the volume has 56320 bytes, the medium only 55808"},
		{"no cluster", put32(32, 10), "no cluster in a volume of 10 sectors"},
		{"table too small", both(put32(32, 210), grow(100*512)), "allocation table has 512 bytes, 200 clusters need 808"},
		{"too many clusters", both(put(11, 0, 2, 1), put32(32, math.MaxUint32), put32(36, 1)), "the medium only"},
		{"root outside", put32(44, 0), "root directory: cluster 0 is outside of the volume, which has clusters 2 to 101"},
		{"root loop", put32(table+2*4, 2), "loop in the cluster chain: cluster 2"},
		{"file loop", put32(table+4*4, 3), "open file.bin: FAT32: loop in the cluster chain: cluster 3 is in it twice"},
		{"cluster outside", put32(table+4*4, 9999), "open file.bin: FAT32: after cluster 4: cluster 9999 is outside"},
		{"chain to a free cluster", put32(table+4*4, 0), "after cluster 4: cluster 0 is outside"},
		{"chain to a bad cluster", put32(table+4*4, 0x0FFFFFF7), "after cluster 4: cluster 268435447 is outside"},
		{"chain too short", put32(table+4*4, 0x0FFFFFFF), "ends after 2 clusters, 2000 bytes need 4"},
		{"size larger than volume", put32(file+28, math.MaxUint32), "size of 4294967295 bytes is larger than the volume, which has 51200"},
		{"file without cluster", put(file+26, 0, 0), "open file.bin: FAT32: cluster 0 is outside"},
		{"directory is the root", put(dir+26, 2), "directory 2 has more than one place, one of them is \"dir\""},
		{"directory in itself", put(sub+26, 7), "directory 7 has more than one place, one of them is \"sub\""},
		{"directory is a file's data", put(dir+26, 3), "directory dir: FAT32: \""},
		{"name with separator", put(file-32+1, '/'), "is not a name"},
		{"name with backslash", put(file-32+3, '\\'), "is not a name"},
		{"name of the parent", put(file-32+1, '.', 0, '.', 0, 0, 0), "\"..\" at byte"},
		{"short name with NUL", put(file, 'A', 0, 'B'), "is not a name"},
		{"name twice", func([]byte) []byte {
			return buildFAT32(100, testFile{name: "same"}, testFile{name: "same"})
		}, "directory . has the name \"same\" twice"},
		{"name twice in another case", func([]byte) []byte {
			return buildFAT32(100, testFile{name: "same"}, testFile{name: "SAME"})
		}, "has the name \"SAME\" twice"},
	})
}

func TestExFATCorruptions(t *testing.T) {
	const table = 24 * 512
	image := buildExFAT(100, 0, hostileFiles()...)
	root := binary.LittleEndian.Uint32(image[96:])
	rootAt := (25 + int(root) - 2) * 512
	file := rootAt + 3*32
	dir := file + 3*32
	stream, dirStream := file+32, dir+32
	first := binary.LittleEndian.Uint32(image[stream+20:])
	repair := func(image []byte) []byte {
		repairExFATBoot(image)
		repairExFATSets(image)
		return image
	}
	list := []fatCorruption{
		{"bytes that must be zero", put(20, 1), "byte 20 is 0x01 and must be zero"},
		{"no jump code", put(0, 0), "jump code"},
		{"no signature", put(510, 0), "signature"},
		{"newer revision", put(105, 2), "unknown revision 2.00"},
		{"sectors too large", put(108, 13), "2^13 bytes per sector"},
		{"clusters too large", put(109, 30), "2^30 sectors of 2^9 bytes per cluster"},
		{"no table", put(110, 0), "0 allocation tables"},
		{"three tables", put(110, 3), "3 allocation tables"},
		{"second of one table", put(106, 1), "the second allocation table is active"},
		{"table in the boot region", put32(80, 5), "allocation table in sector 5"},
		{"table reaches into the clusters", put32(84, 500), "reach from sector 24 beyond"},
		{"table too small", both(put32(92, 200), put64(72, 225), grow(100*512)), "200 clusters need 808"},
		{"clusters beyond the volume", put32(92, 101), "101 clusters from sector 25 on do not fit into 125 sectors"},
		{"no clusters", put32(92, 0), "0 clusters are not possible"},
		{"volume larger than medium", put64(72, math.MaxUint64), "the medium only 125"},
		{"medium cut off", func(b []byte) []byte { return b[:len(b)-512] }, "the volume has 125 sectors, the medium only 124"},
		{"medium ends in the boot region", func(b []byte) []byte { return b[:4096] }, "boot region at byte 0 is outside of the volume (4096 bytes)"},
		{"root outside", put32(96, 1), "root directory: cluster 1 is outside"},
		{"root loop", put32(table+int(root)*4, root), "loop in the cluster chain"},
		{"unknown critical entry", put(file, 0x86), "directory .: exFAT: record at byte 96: unknown critical entry of type 0x86"},
		{"no secondary entries", put(file+1, 0), "0 secondary entries"},
		{"too many secondary entries", put(file+1, 19), "19 secondary entries"},
		{"set is cut off", put(dir+1, 10), "directory ends before the 10 secondary entries"},
		{"no stream extension", put(stream, 0xC1), "first secondary entry has type 0xc1"},
		{"unknown critical secondary entry", put(stream+32, 0xC2), "unexpected secondary entry of type 0xc2"},
		{"name too long", put(stream+3, 200), "name has 200 characters, its entries have 15"},
		{"name with separator", put(stream+32+2, '/'), "is not a name"},
		{"name with NUL", put(stream+32+2, 0), "is not a name"},
		{"more valid bytes than bytes", put64(stream+8, 2001), "size of 2000 bytes and 2001 valid ones"},
		{"size beyond 63 bits", both(put64(stream+8, 0), put64(stream+24, 1<<63)), "has a size of"},
		{"size larger than volume", put64(stream+24, 1<<40), "size of 1099511627776 bytes is larger than the volume"},
		{"contiguous beyond the volume", both(put64(stream+24, 99*512), put(stream+1, 3)), "99 contiguous clusters from"},
		{"file without cluster", put32(stream+20, 0), "cluster 0 is outside"},
		{"file loop", put32(table+int(first)*4+4, first), fmt.Sprintf("open file.bin: exFAT: loop in the cluster chain: cluster %d", first)},
		{"cluster outside", put32(table+int(first)*4, 102), "cluster 102 is outside of the volume, which has clusters 2 to 101"},
		{"chain too short", put32(table+int(first)*4, 0xFFFFFFFF), "ends after 1 clusters, 2000 bytes need 4"},
		{"directory too large", both(put64(dirStream+24, 1<<30), put64(dirStream+8, 1<<30)), "directory of 1073741824 bytes is larger than"},
		{"directory is the root", both(put32(dirStream+20, root), put(dirStream+1, 1)), "more than one place"},
		{"name twice", func([]byte) []byte {
			return buildExFAT(100, 0, testFile{name: "same"}, testFile{name: "Same"})
		}, "has the name \"Same\" twice"},
	}
	for i := range list {
		list[i].change = both(list[i].change, repair)
	}
	list = append(list,
		fatCorruption{"boot checksum", put(300, 1), "boot region: checksum"},
		fatCorruption{"entry set checksum", put(stream+24, 1), "file entry at byte 96 has checksum"},
	)
	checkFATCorruptions(t, image, openExFAT, list)
}

// hugeTable is a FAT32 volume of 2 TiB with one file of 4 GiB. Its table is computed by next.
type hugeTable struct {
	head, root []byte
	next       func(cluster uint32) uint32
	heap       int64
}

func newHugeTable(next func(uint32) uint32) *hugeTable {
	const total, tableSectors = math.MaxUint32, 1 << 25
	head := buildFAT32(100)[:512]
	binary.LittleEndian.PutUint32(head[32:], total)
	binary.LittleEndian.PutUint32(head[36:], tableSectors)
	head[13] = 16
	root := make([]byte, 32)
	copy(root, fatShortEntry([]byte("HUGE       "), 0x20, 3, math.MaxUint32))
	return &hugeTable{head: head, root: root, next: next, heap: (8 + 2*tableSectors) * 512}
}

func (h *hugeTable) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	switch {
	case off < 512:
		copy(p, h.head[off:])
	case off >= h.heap && off < h.heap+32:
		copy(p, h.root[off-h.heap:])
	case off >= 8*512 && off < h.heap:
		first := (off - 8*512) / 4
		for i := 0; i+4 <= len(p); i += 4 {
			c := uint32(first) + uint32(i)/4
			next := h.next(c)
			if c == 2 {
				next = 0x0FFFFFFF
			}
			binary.LittleEndian.PutUint32(p[i:], next)
		}
	}
	return len(p), nil
}

func TestHugeHostileChains(t *testing.T) {
	for _, c := range []struct {
		name string
		next func(uint32) uint32
		want string
	}{
		{"every cluster apart", func(c uint32) uint32 { return c + 2 }, "split into more than 131072 pieces"},
		{"far jumps", func(c uint32) uint32 { return (c*2654435761)%200000000 + 2 }, "open HUGE: FAT32: "},
		{"loop of two", func(c uint32) uint32 { return 3 + c%2 }, "loop in the cluster chain: cluster 3"},
		{"late loop", func(c uint32) uint32 { return 3 + (c-2)%100000 }, "loop in the cluster chain: cluster 3"},
		{"whole file", func(c uint32) uint32 { return c + 1 }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkBounded(t, 16<<20, func() {
				r := &countedReader{ReaderAt: newHugeTable(c.next)}
				v, err := openFAT32(r, 2<<40)
				if err != nil {
					t.Fatal(err)
				}
				_, err = v.Open("HUGE")
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %q", err, c.want)
				}
				r.check(t, 1<<30)
			})
		})
	}
}

// TestSharedDirectories checks that directories that share their contents do not make a walk endless:
// with two entries in each of thirty levels, it would have a thousand million steps.
func TestSharedDirectories(t *testing.T) {
	level := []testFile{{name: "a", children: []testFile{}}, {name: "b", children: []testFile{}}}
	for range 12 {
		level = []testFile{{name: "a", children: level}, {name: "b", children: []testFile{}}}
	}
	image := buildFAT32(100, level...)
	for at := 0; at < len(image); at += 32 {
		if bytes.HasPrefix(image[at:], []byte("F0000001   ")) && bytes.HasPrefix(image[at-64:], []byte("F0000000   ")) {
			copy(image[at+26:at+28], image[at-64+26:])
		}
	}
	checkBounded(t, 8<<20, func() {
		err := walkAll(openFAT32, image)
		if err == nil || !strings.Contains(err.Error(), "more than one place") {
			t.Errorf("%v", err)
		}
	})
}

func TestDeepDirectories(t *testing.T) {
	files := []testFile{{name: "x", data: []byte("x")}}
	for range maxDepth {
		files = []testFile{{name: "d", children: files}}
	}
	for _, image := range [][]byte{buildFAT32(200, files...), buildExFAT(200, 0, files...)} {
		v, err := Open(bytes.NewReader(image), int64(len(image)))
		if err != nil {
			t.Fatal(err)
		}
		deep := strings.Repeat("d/", maxDepth-1) + "d"
		if _, err := v.ReadDir(deep); err != nil {
			t.Errorf("%s: %v", v.Kind, err)
		}
		if _, err := v.Open(deep + "/x"); err == nil || !strings.Contains(err.Error(), "nested more than 32 deep") {
			t.Errorf("%s: %v", v.Kind, err)
		}
	}
}

// failingReader has bytes that cannot be read.
type failingReader struct {
	io.ReaderAt
	from, to int64
}

func (f failingReader) ReadAt(p []byte, off int64) (int, error) {
	if off < f.to && off+int64(len(p)) > f.from {
		return 0, os.ErrDeadlineExceeded
	}
	return f.ReaderAt.ReadAt(p, off)
}

func TestUnreadableMedium(t *testing.T) {
	image := buildFAT32(100, hostileFiles()...)
	for name, c := range map[string]struct {
		from int64
		want string
	}{
		"boot sector": {0, "FAT: read boot sector at byte 0"},
		"table":       {8 * 512, "entry of cluster 2: read allocation table at byte 4104"},
		"root":        {10 * 512, "root directory: FAT32: read contents"},
		"file":        {11 * 512, "read file.bin: FAT32: read contents at byte 5632"},
	} {
		r := failingReader{bytes.NewReader(image), c.from, c.from + 512}
		v, err := openFAT32(r, int64(len(image)))
		if err == nil {
			err = readSome(v, "file.bin")
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func fuzzClusters(t *testing.T, open func(io.ReaderAt, int64) (*Volume, error), image []byte) {
	checkBounded(t, 64<<20, func() { walkAll(open, image) })
}

func FuzzFAT32(f *testing.F) {
	files, _ := builtFiles()
	f.Add(buildFAT32(60, files...))
	f.Add(buildFAT32(60, hostileFiles()...))
	f.Add(buildFAT12())
	f.Fuzz(func(t *testing.T, image []byte) { fuzzClusters(t, openFAT32, image) })
}

// FuzzExFAT can repair the checksums of an image, so that its changes come through them.
func FuzzExFAT(f *testing.F) {
	files, _ := builtFiles()
	f.Add(buildExFAT(60, 0, files...), true)
	f.Add(buildExFAT(60, 0, hostileFiles()...), true)
	f.Add(buildExFAT(60, 0, hostileFiles()...), false)
	f.Fuzz(func(t *testing.T, image []byte, repair bool) {
		if repair {
			image = bytes.Clone(image)
			repairExFATBoot(image)
			repairExFATSets(image)
		}
		fuzzClusters(t, openExFAT, image)
	})
}
