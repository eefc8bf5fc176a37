package filesystem

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func newExFATDisk(t testing.TB, size int64, files []NewFile, contents [][]byte) string {
	t.Helper()
	d, err := NewExFAT(size, "REFIT", 0x52454649, files)
	if err != nil {
		t.Fatal(err)
	}
	return writeDisk(t, d, size, contents)
}

// exfatFiles have a long name, a name outside of ASCII, and no content.
func exfatFiles() (files []NewFile, contents [][]byte) {
	files = []NewFile{{Name: "kubernetes-1.36.3.refit", Size: 2<<20 + 1}, {Name: "README.TXT", Size: 700}, {Name: "empty.bin"},
		{Name: "Grüße an alle, mit Leerzeichen.txt", Size: 3}, {Name: strings.Repeat("x", 120) + ".refit", Size: 4096}}
	for i, n := range files {
		contents = append(contents, randomBytes(uint64(i), int(n.Size)))
	}
	return files, contents
}

// Disks of the sizes at which clusters change are read back, and fsck.exfat finds nothing to repair.
func TestNewExFAT(t *testing.T) {
	t.Parallel()
	files, contents := exfatFiles()
	for _, size := range []int64{MinExFATDisk, 100 << 20, 257 << 20, 258<<20 + 512, 20 << 30, 33<<30 + 12345} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			path := newExFATDisk(t, size, files, contents)
			checkDisk(t, path, files, contents)
			if out := tool(t, "fsck.exfat", "-n", partitionOf(t, path)); !strings.Contains(out, "files 5") {
				t.Error(out)
			}
		})
	}
}

// A driver that is not ours finds and reads the files, and can add one.
func TestNewExFATMounted(t *testing.T) {
	t.Parallel()
	files, contents := exfatFiles()
	volume := partitionOf(t, newExFATDisk(t, 64<<20, files, contents))
	dir, unmount := mountExFAT(t, volume)
	for i, f := range files {
		if got, err := os.ReadFile(filepath.Join(dir, strings.ToUpper(f.Name))); err != nil || !bytes.Equal(got, contents[i]) {
			t.Errorf("%s: %d bytes of %d, %v", f.Name, len(got), f.Size, err)
		}
	}
	more := map[string][]byte{"more": randomBytes(9, 1_000_000)}
	writeFiles(t, dir, more)
	unmount()
	tool(t, "fsck.exfat", "-n", volume)
	v := openImageFile(t, volume)
	if v.Label != "REFIT" {
		t.Errorf("label %q", v.Label)
	}
	for i, f := range files {
		more[f.Name] = contents[i]
	}
	checkTree(t, v, more)
}

// One file has more bytes than FAT32 can number. It is sparse, with marks around 4 GiB.
func TestNewExFATHugeFile(t *testing.T) {
	t.Parallel()
	const disk, size = 6 << 30, int64(5<<30) + 77
	d, err := NewExFAT(disk, "REFIT", 1, []NewFile{{Name: "release.refit", Size: size}, {Name: "README.TXT", Size: 4}})
	if err != nil {
		t.Fatal(err)
	}
	path := writeDisk(t, d, disk, nil)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	marks := map[int64]string{0: "start", 4<<30 - 3: "four GiB", size - 3: "end"}
	for at, mark := range marks {
		if _, err := f.WriteAt([]byte(mark), d.Offset(0)+at); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.WriteAt([]byte("read"), d.Offset(1)); err != nil {
		t.Fatal(err)
	}
	volume := partitionOf(t, path)
	v := openImageFile(t, volume)
	huge, err := v.Open("release.refit")
	if err != nil {
		t.Fatal(err)
	}
	defer huge.Close()
	if info, err := huge.Stat(); err != nil || info.Size() != size {
		t.Fatalf("%v, %v", info, err)
	}
	for at, mark := range marks {
		p := make([]byte, len(mark))
		if _, err := huge.(File).ReadAt(p, at); err != nil && !errors.Is(err, io.EOF) || string(p) != mark {
			t.Errorf("at %d: %q, %v", at, p, err)
		}
	}
	checkContents(t, v, "README.TXT", []byte("read"))
	tool(t, "fsck.exfat", "-n", volume)
}

// The table and the hashes of names are those of the formatter and of section 7.7.3 of the specification.
func TestExFATUpperCase(t *testing.T) {
	t.Parallel()
	if sum := exfatTableSum([]byte(exfatUpperCase)); sum != 0xE619D30D {
		t.Errorf("checksum %#x of the recommended table", sum)
	}
	for from, to := range map[rune]rune{'a': 'A', 'z': 'Z', 'A': 'A', '0': '0', 'ü': 'Ü', 'ÿ': 'Ÿ', 'я': 'Я', '日': '日', 0xFFFF: 0xFFFF} {
		if got := exfatUpper(uint16(from)); got != uint16(to) {
			t.Errorf("%c: %c, want %c", from, got, to)
		}
	}
	image := imageFile(t, 16<<20)
	tool(t, "mkfs.exfat", image)
	if !bytes.Contains(readFile(t, image), []byte(exfatUpperCase)) {
		t.Error("mkfs.exfat writes another table")
	}
}

func TestNewExFATRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		size  int64
		files []NewFile
	}{
		"a small disk": {MinExFATDisk - 1, nil},
		"no room":      {64 << 20, []NewFile{{"a", 40 << 20}, {"b", 40 << 20}}},
		"a large file": {64 << 20, []NewFile{{"a", 1<<63 - 1}}},
		"a long name":  {64 << 20, []NewFile{{strings.Repeat("x", 256), 1}}},
		"long names": {64 << 20, func() (out []NewFile) {
			for i := range 20 {
				out = append(out, NewFile{fmt.Sprintf("%d%s", i, strings.Repeat("x", 200)), 1})
			}
			return out
		}()},
	} {
		if _, err := NewExFAT(c.size, "x", 1, c.files); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if _, err := NewExFAT(1<<41, "x", 1, []NewFile{{"a", 1 << 40}}); err != nil {
		t.Error(err)
	}
}

// The partition table is the last write, the boot sector the one before, and tables are after both boot regions.
func TestNewExFATOrderOfWrites(t *testing.T) {
	t.Parallel()
	d, err := NewExFAT(100<<20, "x", 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkOrder(t, d, 1<<20+2*exfatBootSectors*mbrSector)
}

// A bit of the bitmap for each cluster that is in use, and for no other.
func TestNewExFATBitmap(t *testing.T) {
	t.Parallel()
	files := []NewFile{{Name: "a", Size: 100_000}, {Name: "b", Size: 4096}, {Name: "c", Size: 1}}
	d, err := NewExFAT(100<<20, "x", 1, files)
	if err != nil {
		t.Fatal(err)
	}
	disk := readFile(t, writeDisk(t, d, 100<<20, nil))
	bitmap := disk[d.clusterAt(firstCluster):][:d.bitmapSize()]
	for n := range d.clusters {
		if used := bitmap[n/8]>>(n%8)&1 == 1; used != (n < d.used) {
			t.Fatalf("cluster %d: in use %v", n+firstCluster, used)
		}
	}
	if want := d.root + 1 + 25 + 1 + 1 - firstCluster; d.used != want {
		t.Errorf("%d clusters are in use, want %d", d.used, want)
	}
	if got := binary.LittleEndian.Uint32(disk[1<<20+92:]); got != d.clusters {
		t.Errorf("%d clusters in the boot sector", got)
	}
}
