package bundlereader_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// tool runs a program of the packages that `make deps` installs; without it the test is skipped.
func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/" + name); err != nil {
			t.Skipf("%s is not installed: make deps", name)
		}
	}
	out, err := exec.Command(path, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// attach makes a loop device of a file. It is detached at the end of the test.
func attach(t *testing.T, image string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a loop device")
	}
	out, err := exec.Command("losetup", "--find", "--show", image).CombinedOutput()
	if err != nil {
		t.Skipf("no loop device here: %v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("detach %s: %v: %s", device, err, out)
		}
	})
	return device
}

// formats make an image of a directory with the label STICK.
var formats = map[string]func(t *testing.T, dir, image string){
	"FAT32": func(t *testing.T, dir, image string) {
		truncate(t, image, 34<<20)
		tool(t, "mkfs.vfat", "-F", "32", "-s", "1", "-n", "STICK", image)
		list, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		if len(list) > 0 {
			tool(t, "mcopy", append(append([]string{"-s", "-Q", "-i", image}, list...), "::/")...)
		}
	},
	"exFAT": func(t *testing.T, dir, image string) {
		if _, err := os.Stat("/dev/fuse"); err != nil {
			t.Skip("mounting exFAT needs /dev/fuse")
		}
		truncate(t, image, 8<<20)
		tool(t, "mkfs.exfat", "-L", "STICK", image)
		mount := t.TempDir()
		tool(t, "mount.exfat-fuse", attach(t, image), mount)
		err := os.CopyFS(mount, os.DirFS(dir))
		tool(t, "umount", mount)
		if err != nil {
			t.Fatal(err)
		}
	},
	"ISO 9660": func(t *testing.T, dir, image string) {
		tool(t, "genisoimage", "-quiet", "-r", "-J", "-V", "STICK", "-o", image, dir)
	},
	"ext4": func(t *testing.T, dir, image string) {
		truncate(t, image, 8<<20)
		tool(t, "mke2fs", "-t", "ext4", "-q", "-F", "-L", "STICK", "-d", dir, image)
	},
}

func truncate(t *testing.T, path string, size int64) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
}

// image makes an image of one file system with these files.
func image(t *testing.T, kind string, files map[string][]byte) string {
	t.Helper()
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "image")
	for name, data := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	formats[kind](t, dir, path)
	return path
}

const sector = 512

// partitionStart is where the partition of tables is, in sectors.
const partitionStart = 2048

// tables write a partition table for one partition of so many sectors. Its number is the result.
var tables = map[string]func(disk []byte, sectors uint32) int{
	"MBR": func(disk []byte, sectors uint32) int {
		putEntry(disk, 0, 1, 0x0C, partitionStart, sectors)
		return 2
	},
	"logical": func(disk []byte, sectors uint32) int {
		putEntry(disk, 0, 2, 0x0F, partitionStart-64, sectors+64)
		putEntry(disk, partitionStart-64, 0, 0x07, 64, sectors)
		return 5
	},
	"GPT": func(disk []byte, sectors uint32) int {
		putEntry(disk, 0, 0, 0xEE, 1, 1<<32-1)
		entries := disk[2*sector:][:128*128]
		copy(entries[256:], "type of the data, one of the partition")
		binary.LittleEndian.PutUint64(entries[256+32:], partitionStart)
		binary.LittleEndian.PutUint64(entries[256+40:], partitionStart+uint64(sectors)-1)
		h := disk[sector:][:92]
		copy(h, "EFI PART\x00\x00\x01\x00\x5C")
		h[24], h[72], h[80], h[84] = 1, 2, 128, 128
		binary.LittleEndian.PutUint32(h[88:], crc32.ChecksumIEEE(entries))
		binary.LittleEndian.PutUint32(h[16:], crc32.ChecksumIEEE(h))
		return 3
	},
}

func putEntry(disk []byte, at, entry int, kind byte, start, sectors uint32) {
	b := disk[at*sector:]
	e := b[446+16*entry:]
	e[4] = kind
	binary.LittleEndian.PutUint32(e[8:], start)
	binary.LittleEndian.PutUint32(e[12:], sectors)
	b[510], b[511] = 0x55, 0xAA
}

// partitioned puts an image into the only partition of a disk.
func partitioned(t *testing.T, table, image string) (string, int) {
	t.Helper()
	content, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	head := make([]byte, partitionStart*sector)
	number := tables[table](head, uint32(len(content)/sector))
	path := filepath.Join(t.TempDir(), "disk")
	truncate(t, path, int64(len(head)+len(content)+1<<20))
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for at, b := range map[int64][]byte{0: head, int64(len(head)): content} {
		if _, err := f.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
	}
	return path, number
}

func tinyBundle(t *testing.T, version string) []byte {
	t.Helper()
	s := bundletest.Tiny()
	s.Version = version
	return bundletest.Bytes(t, s, bundletest.Key(1))
}

func digestOf(t *testing.T, file []byte) string {
	t.Helper()
	h, err := bundlereader.Summary(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	return h.Digest
}

// checkOpens checks that a path has a bundle with exactly these bytes, in all ways to open it.
func checkOpens(t *testing.T, path string, file []byte) {
	t.Helper()
	f, err := bundlereader.OpenPath(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := bundlereader.Verify(t.Context(), f, nil); err != nil {
		t.Errorf("%s: %v", path, err)
	}
	got, err := io.ReadAll(io.NewSectionReader(f.Unverified(), 0, int64(len(file))))
	if err != nil || !bytes.Equal(got, file) || f.Header().Digest != digestOf(t, file) {
		t.Errorf("%s: bundle %s of %d bytes, want %d: %v", path, f.Header().Digest, len(got), len(file), err)
	}
	h, wrongSize, err := bundlereader.SummaryPath(path)
	if err != nil || wrongSize != nil || h.Digest != f.Header().Digest {
		t.Errorf("%s: summary %v %v", path, wrongSize, err)
	}
	found, err := bundlereader.ListPath(path)
	if err != nil || len(found) != 1 || found[0].Err != nil || found[0].Header.Digest != h.Digest {
		t.Errorf("%s: list %v %v", path, found, err)
	}
}

func TestBundleInAFileSystem(t *testing.T) {
	t.Parallel()
	file := tinyBundle(t, "1.2.3")
	for kind := range formats {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			plain := image(t, kind, map[string][]byte{"README.txt": []byte("Plug it in."), "updates/release": file, "updates/notes": make([]byte, 70000)})
			checkOpens(t, plain, file)
			checkOpens(t, plain+"#updates/release", file)
			for table := range tables {
				disk, number := partitioned(t, table, plain)
				checkOpens(t, disk, file)
				checkOpens(t, fmt.Sprintf("%s#%d:updates/release", disk, number), file)
			}
			if _, err := bundlereader.OpenRaw(plain); !errors.Is(err, bundle.ErrNotBundle) {
				t.Errorf("raw: %v", err)
			}
		})
	}
}

// TestHybridImage checks that the partition that covers a whole ISO image does not count twice.
func TestHybridImage(t *testing.T) {
	t.Parallel()
	file := tinyBundle(t, "1.2.3")
	path := image(t, "ISO 9660", map[string][]byte{"release.refit": file})
	table := make([]byte, sector)
	putEntry(table, 0, 0, 0x17, 0, 400)
	putEntry(table, 0, 1, 0xEF, 100, 50)
	patch(t, path, 0, table...)
	checkOpens(t, path, file)
}

// TestBundleOnALoopDevice reads a partitioned stick as the kernel shows it.
func TestBundleOnALoopDevice(t *testing.T) {
	t.Parallel()
	file := tinyBundle(t, "1.2.3")
	disk, number := partitioned(t, "MBR", image(t, "FAT32", map[string][]byte{"release.refit": file}))
	device := attach(t, disk)
	checkOpens(t, device, file)
	checkOpens(t, fmt.Sprintf("%s#%d:release.refit", device, number), file)
	if _, err := bundlereader.OpenPath(device + "#release.refit"); err == nil || !strings.Contains(err.Error(), `the file systems are FAT32 "STICK" in partition 2`) {
		t.Errorf("a name without the partition: %v", err)
	}
}

func TestSeveralBundlesOnAMedium(t *testing.T) {
	t.Parallel()
	one, two := tinyBundle(t, "1.2.3"), tinyBundle(t, "1.2.4")
	path := image(t, "ext4", map[string][]byte{"one#1": one, "dir/two": two, "dir/deep/three": one, "other": []byte("other"), "cut": one[:2000]})
	_, err := bundlereader.OpenPath(path)
	var several *bundlereader.SeveralError
	if !errors.As(err, &several) || len(several.Found) != 3 {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{" has 3 bundles; name one of them: ", path + "#one#1 (tiny 1.2.3, " + digestOf(t, one) + ")",
		path + "#dir/two (tiny 1.2.4, " + digestOf(t, two) + ")", path + "#cut (bundle is damaged"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %q is missing", err, want)
		}
	}
	checkOpens(t, path+"#one#1", one)
	checkOpens(t, path+"#dir/two", two)
	checkOpens(t, path+"#/dir//deep/three", one)
	for name, want := range map[string]string{"none": "open none: file does not exist", "dir": "is not a regular file", "1:one": "the file systems are ext4", "other": "not a refit bundle"} {
		if _, err := bundlereader.OpenPath(path + "#" + name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	// A path that exists is never split.
	for _, name := range []string{"#one#1", "#dir"} {
		if err := os.WriteFile(path+name, two, 0o600); err != nil {
			t.Fatal(err)
		}
		checkOpens(t, path+name, two)
	}
}

func TestSplitPath(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a#b")
	disk := filepath.Join(dir, "disk#1")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(disk, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][2]string{
		disk: {disk, ""}, disk + "#x#y": {disk, "x#y"}, disk + "#": {disk + "#", ""}, dir + "#x": {dir + "#x", ""}, "": {"", ""}, "#x": {"#x", ""}, "none#x": {"none#x", ""},
	} {
		if d, name := bundlereader.SplitPath(path); d != want[0] || name != want[1] {
			t.Errorf("%s: %q %q, want %q", path, d, name, want)
		}
	}
}

func TestMediumWithoutBundle(t *testing.T) {
	t.Parallel()
	plain := image(t, "FAT32", map[string][]byte{"README.txt": make([]byte, 2000), "a/b/release": tinyBundle(t, "1.2.3")})
	disk, _ := partitioned(t, "GPT", plain)
	damaged, _ := partitioned(t, "MBR", plain)
	patch(t, damaged, partitionStart*sector+13, 0)
	loop, _ := partitioned(t, "logical", plain)
	patch(t, loop, (partitionStart-64)*sector+446+16+4, 5, 0, 0, 0, 0, 0, 0, 0, 1)
	beyond, _ := partitioned(t, "MBR", plain)
	patch(t, beyond, 446+16+8, 0xFF, 0xFF, 0xFF, 0xFF)
	overlap, _ := partitioned(t, "MBR", plain)
	patch(t, overlap, 446+4, 6, 0, 0, 0, 0, 8, 0, 0, 1)
	zeros := filepath.Join(t.TempDir(), "zeros")
	truncate(t, zeros, 1<<20)
	for path, want := range map[string]string{
		plain:   `: not a refit bundle: no bundle in the file system FAT32 "STICK"; searched were 1 file in the root directory and in directories below it; name a file elsewhere as ` + plain + "#DIRECTORY/FILE",
		disk:    `: not a refit bundle: no bundle in the file system FAT32 "STICK" in partition 3; searched were 1 file`,
		damaged: ": not a refit bundle: partition 2: file system: FAT: boot sector: 0 sectors per cluster",
		loop:    ": not a refit bundle: partition table: loop of logical partitions",
		beyond:  ": not a refit bundle: partition table: partition 2 ",
		overlap: ": not a refit bundle: partition table: partitions 1 and 2 overlap",
	} {
		for name, open := range map[string]func(string) error{"open": openPath, "summary": summaryPath, "list": listPath} {
			if err := open(path); !errors.Is(err, bundle.ErrNotBundle) || !strings.Contains(err.Error(), path+want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
	for name, open := range map[string]func(string) error{"open": openPath, "summary": summaryPath} {
		if err := open(zeros); err == nil || err.Error() != zeros+": not a refit bundle" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := openPath(zeros + "#x"); err == nil || !strings.Contains(err.Error(), "no known file system") {
		t.Errorf("a file in no file system: %v", err)
	}
	checkOpens(t, plain+"#a/b/release", tinyBundle(t, "1.2.3"))
}

func openPath(path string) error {
	f, err := bundlereader.OpenPath(path)
	if err == nil {
		f.Close()
	}
	return err
}

func summaryPath(path string) error {
	_, _, err := bundlereader.SummaryPath(path)
	return err
}

func listPath(path string) error {
	_, err := bundlereader.ListPath(path)
	return err
}

func patch(t *testing.T, path string, at int64, b ...byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

func TestTruncatedBundleOnAMedium(t *testing.T) {
	t.Parallel()
	file := tinyBundle(t, "1.2.3")
	var corrupt *bundle.CorruptError
	path := image(t, "ISO 9660", map[string][]byte{"release": file[:2000]})
	if err := openPath(path); !errors.As(err, &corrupt) || !strings.Contains(err.Error(), path+"#release: ") {
		t.Errorf("cut in the header: %v", err)
	}
	if found, err := bundlereader.ListPath(path); err != nil || len(found) != 1 || !errors.As(found[0].Err, &corrupt) {
		t.Errorf("list: %v %v", found, err)
	}
	path = image(t, "FAT32", map[string][]byte{"release": file[:len(file)-1000]})
	f, err := bundlereader.OpenPath(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := bundlereader.Verify(t.Context(), f, nil); !errors.As(err, &corrupt) || !strings.Contains(err.Error(), "not copied completely") {
		t.Errorf("cut in the blobs: %v", err)
	}
	if _, wrongSize, err := bundlereader.SummaryPath(path); err != nil || wrongSize == nil {
		t.Errorf("summary: %v %v", wrongSize, err)
	}
	if found, err := bundlereader.ListPath(path); err != nil || len(found) != 1 || !errors.As(found[0].Err, &corrupt) {
		t.Errorf("list: %v %v", found, err)
	}
}

// A medium with very many files is not searched without an end, and names do not reach the
// terminal as they are.
func TestSearchLimits(t *testing.T) {
	t.Parallel()
	files := map[string][]byte{"z-release": tinyBundle(t, "1.2.3")}
	for i := range 600 {
		files[fmt.Sprintf("f%03d", i)] = make([]byte, 600)
	}
	path := image(t, "ext4", files)
	if err := openPath(path); !errors.Is(err, bundle.ErrNotBundle) || !strings.Contains(err.Error(), "searched were the first 500 files") {
		t.Errorf("many files: %v", err)
	}
	checkOpens(t, path+"#z-release", files["z-release"])
	path = image(t, "ext4", map[string][]byte{"a\x1b[2J": files["z-release"], "b": files["z-release"]})
	if err := openPath(path); err == nil || slices.ContainsFunc([]rune(err.Error()), func(r rune) bool { return r < ' ' }) {
		t.Errorf("a name with control characters: %q", err)
	}
}

// Search ends at its bounds, and says so, with what it has found.
func TestSearchIsBounded(t *testing.T) {
	t.Parallel()
	file := tinyBundle(t, "1.2.3")
	disk, number := partitioned(t, "GPT", image(t, "FAT32", map[string][]byte{"release": file, "dir/other": []byte("other")}))
	f, err := os.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	s := bundlereader.Search(t.Context(), f, info.Size())
	if len(s.Found) != 1 || s.Found[0].Name() != fmt.Sprintf("%d:release", number) || s.Found[0].Err != nil || !slices.Equal(s.Partitions, []int{number}) || s.Err != nil {
		t.Fatalf("%+v", s)
	}
	list, err := s.Found[0].Extents(10)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	got := make([]byte, list[0].Length)
	if _, err := f.ReadAt(got, list[0].At); err != nil || !bytes.Equal(got, file) {
		t.Errorf("the extents are not where the file is: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if s := bundlereader.Search(ended, f, info.Size()); s.Err != nil || len(s.Problems) == 0 || len(s.Found) > 0 {
		t.Errorf("after its deadline: %+v", s)
	}
	if s := bundlereader.Search(t.Context(), bytes.NewReader(file), int64(len(file))); len(s.Found) != 1 || s.Found[0].Name() != "" || s.Found[0].Header.Digest != digestOf(t, file) {
		t.Errorf("raw: %+v", s)
	}
	broken := readerFunc(func([]byte, int64) (int, error) { return 0, errors.New("input/output error") })
	if s := bundlereader.Search(t.Context(), broken, 1<<20); s.Err == nil {
		t.Errorf("a medium that cannot be read: %+v", s)
	}
}

type readerFunc func(p []byte, off int64) (int, error)

func (f readerFunc) ReadAt(p []byte, off int64) (int, error) { return f(p, off) }
