package filesystem

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"testing"

	"pgregory.net/rapid"
)

// plannedDisk is a new disk of either file system.
type plannedDisk interface {
	Offset(file int) int64
	WriteTables(w io.WriterAt) error
	WriteStart(w io.WriterAt) error
}

func newDisk(t testing.TB, size int64, files []NewFile, contents [][]byte) string {
	t.Helper()
	d, err := NewFAT32(size, "refit", 0x52454649, files)
	if err != nil {
		t.Fatal(err)
	}
	return writeDisk(t, d, size, contents)
}

// writeDisk writes a planned disk with its contents.
func writeDisk(t testing.TB, d plannedDisk, size int64, contents [][]byte) string {
	t.Helper()
	path := imageFile(t, size)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i, c := range contents {
		if _, err := f.WriteAt(c, d.Offset(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.WriteTables(f); err != nil {
		t.Fatal(err)
	}
	if err := d.WriteStart(f); err != nil {
		t.Fatal(err)
	}
	return path
}

// checkDisk reads a disk back with the reader.
func checkDisk(t testing.TB, path string, files []NewFile, contents [][]byte) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	parts, err := Partitions(f, st.Size())
	if err != nil || len(parts) != 1 || parts[0].Start != 1<<20 {
		t.Fatalf("partitions: %+v, %v", parts, err)
	}
	v, err := Open(io.NewSectionReader(f, parts[0].Start, parts[0].Size), parts[0].Size)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := fs.ReadDir(v, ".")
	if err != nil || len(entries) != len(files) {
		t.Fatalf("%d files, %v", len(entries), err)
	}
	for i, n := range files {
		got, err := fs.ReadFile(v, n.Name)
		if err != nil || !bytes.Equal(got, contents[i]) {
			t.Fatalf("%s: %d bytes of %d, %v", n.Name, len(got), n.Size, err)
		}
	}
}

// partitionOf copies the only partition of a sparse disk to a file of its own.
func partitionOf(t testing.TB, disk string) string {
	t.Helper()
	volume := disk + ".volume"
	tool(t, "cp", "--sparse=always", disk, volume)
	tool(t, "fallocate", "--collapse-range", "--offset", "0", "--length", "1MiB", volume)
	return volume
}

// Disks of the sizes at which clusters change are read back, and fsck.fat finds nothing to repair.
func TestNewFAT32(t *testing.T) {
	t.Parallel()
	files := []NewFile{{Name: "kubernetes-1.36.3.refit", Size: 5<<20 + 1}, {Name: "README.TXT", Size: 700}, {Name: "Grüße an alle, mit Leerzeichen.txt", Size: 3}, {Name: "empty.bin"}}
	var contents [][]byte
	for i, n := range files {
		contents = append(contents, randomBytes(uint64(i), int(n.Size)))
	}
	for _, size := range []int64{MinFAT32Disk, 100 << 20, 300 << 20, 8<<30 + 512, 20 << 30, 100<<30 + 12345} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			path := newDisk(t, size, files, contents)
			checkDisk(t, path, files, contents)
			tool(t, "fsck.fat", "-n", "-v", partitionOf(t, path))
		})
	}
}

// Any files that fit are read back as they were written.
func TestAnyNewFAT32(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var files []NewFile
		var contents [][]byte
		for i := range rapid.IntRange(0, 4).Draw(rt, "files") {
			name := fmt.Sprintf("%s%d%s", rapid.StringMatching(`[A-Za-z][A-Za-z0-9 _-]{0,30}`).Draw(rt, "name"), i, rapid.SampledFrom([]string{"", ".TXT", ".refit", ".tar.gz"}).Draw(rt, "ext"))
			c := randomBytes(uint64(i), rapid.SampledFrom([]int{0, 1, 511, 512, 513, 4096, 100_000}).Draw(rt, "size"))
			files, contents = append(files, NewFile{name, int64(len(c))}), append(contents, c)
		}
		checkDisk(t, newDisk(t, MinFAT32Disk, files, contents), files, contents)
	})
}

func TestNewFAT32Refuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		size  int64
		files []NewFile
	}{
		"a small disk":    {MinFAT32Disk - 1, nil},
		"a file of 4 GiB": {1 << 40, []NewFile{{"a", 1 << 32}}},
		"no room":         {MinFAT32Disk, []NewFile{{"a", 20 << 20}, {"b", 20 << 20}}},
		"long names":      {MinFAT32Disk, []NewFile{{string(bytes.Repeat([]byte("x"), 250)), 1}}},
	} {
		if _, err := NewFAT32(c.size, "x", 1, c.files); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if _, err := NewFAT32(1<<40, "x", 1, []NewFile{{"a", MaxFAT32File}}); err != nil {
		t.Error(err)
	}
}

// order records writes.
type order struct{ at []int64 }

func (o *order) WriteAt(p []byte, at int64) (int, error) {
	o.at = append(o.at, at)
	return len(p), nil
}

// The partition table is the last write, and the boot sector comes after the tables.
func TestNewFAT32OrderOfWrites(t *testing.T) {
	t.Parallel()
	d, err := NewFAT32(100<<20, "x", 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkOrder(t, d, 1<<20+fat32Reserved*mbrSector)
}

// checkOrder fails if tables are written before a place, or the start in another order.
func checkOrder(t *testing.T, d interface {
	WriteTables(w io.WriterAt) error
	WriteStart(w io.WriterAt) error
}, tables int64) {
	t.Helper()
	var o order
	if err := d.WriteTables(&o); err != nil {
		t.Fatal(err)
	}
	for _, at := range o.at {
		if at < tables {
			t.Errorf("the tables write at %d", at)
		}
	}
	o.at = nil
	if err := d.WriteStart(&o); err != nil || o.at[len(o.at)-1] != 0 || o.at[len(o.at)-2] != 1<<20 {
		t.Errorf("%v, %v", o.at, err)
	}
}
