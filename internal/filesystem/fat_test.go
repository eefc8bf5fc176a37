package filesystem

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"
)

// randomBytes returns the same bytes for the same seed.
func randomBytes(seed uint64, n int) []byte {
	b := make([]byte, n)
	c := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), 1})
	c.Read(b)
	return b
}

// testTree has the files that every format must read.
func testTree() map[string][]byte {
	return map[string][]byte{
		"empty":           {},
		"one.bin":         {1},
		"UPPER.TXT":       []byte("upper"),
		"Mixed.Case.json": []byte("{}"),
		"4096.bin":        randomBytes(1, 4096),
		"65536.bin":       randomBytes(2, 65536),
		"odd.bin":         randomBytes(3, 300001),
		"a/b/c/d/e.txt":   []byte("deep"),
		"many/release 1.36.1 with a long name, and a comma.refit": randomBytes(4, 12345),
		"many/ümläut ß.txt":                          []byte("latin"),
		"日本語/Ωmega ελληνικά.txt":                     []byte("wide"),
		"many/" + strings.Repeat("x", 200) + ".long": []byte("long"),
	}
}

// writeFiles writes files below a directory.
func writeFiles(t *testing.T, dir string, tree map[string][]byte) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, tree[name], 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// maxTested is how large files may be for fstest.TestFS, which reads each byte by byte.
const maxTested = 1 << 20

// checkTree checks that a volume has these files, and that they read in all ways alike.
func checkTree(t *testing.T, v *Volume, tree map[string][]byte) {
	t.Helper()
	var found []string
	err := fs.WalkDir(v, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found = append(found, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Sorted(maps.Keys(tree))
	slices.Sort(found)
	if !slices.Equal(found, want) {
		t.Fatalf("files %q, want %q", found, want)
	}
	if !slices.ContainsFunc(want, func(name string) bool { return len(tree[name]) > maxTested }) {
		if err := fstest.TestFS(v, want...); err != nil {
			t.Error(err)
		}
	}
	for _, name := range want {
		checkContents(t, v, name, tree[name])
		checkContents(t, v, strings.ToUpper(name), tree[name])
	}
	if _, err := v.Open("a/no such file"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func checkContents(t *testing.T, v *Volume, name string, want []byte) {
	t.Helper()
	got, err := fs.ReadFile(v, name)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s: %d bytes, want %d, or other contents: %v", name, len(got), len(want), err)
	}
	f, err := v.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at := f.(File)
	checkExtents(t, v, at, want)
	random := rand.New(rand.NewPCG(1, uint64(len(want))))
	for range 200 {
		off, n := random.IntN(len(want)+1), random.IntN(9000)
		p := make([]byte, n)
		got, err := at.ReadAt(p, int64(off))
		rest := want[off:min(len(want), off+n)]
		if !bytes.Equal(p[:got], rest) || (got < n && err == nil) || (err != nil && !errors.Is(err, io.EOF)) {
			t.Fatalf("%s: %d bytes at %d: %d, %v", name, n, off, got, err)
		}
	}
}

// runsOf returns into how many pieces a file is split.
func runsOf(t *testing.T, v *Volume, name string) int {
	t.Helper()
	n := findNode[*clusterNode](t, v, name)
	content, err := n.v.content(n)
	if err != nil {
		t.Fatal(err)
	}
	return len(content.runs)
}

func TestFATFromTools(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, bits, cluster string
		size                int64
		sector              string
	}{
		{"FAT32", "32", "1", 40 << 20, "512"},
		{"FAT32", "32", "8", 300 << 20, "512"},
		{"FAT32", "32", "1", 300 << 20, "4096"},
		{"FAT16", "16", "4", 32 << 20, "512"},
		{"FAT12", "12", "4", 4 << 20, "512"},
	} {
		t.Run(fmt.Sprintf("%s %s %s", c.kind, c.sector, c.cluster), func(t *testing.T) {
			t.Parallel()
			image, dir, tree := imageFile(t, c.size), t.TempDir(), testTree()
			tool(t, "mkfs.vfat", "-F", c.bits, "-s", c.cluster, "-S", c.sector, "-n", "MEDIUM", image)
			writeFiles(t, dir, tree)
			args := []string{"-s", "-Q", "-m", "-i", image}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				args = append(args, filepath.Join(dir, e.Name()))
			}
			tool(t, "mcopy", append(args, "::/")...)
			tool(t, "fsck.vfat", "-n", image)
			v := openImageFile(t, image)
			if v.Kind != c.kind || v.Label != "MEDIUM" {
				t.Errorf("%s with label %q", v.Kind, v.Label)
			}
			checkTree(t, v, tree)
			info, err := fs.Stat(v, "odd.bin")
			if err != nil || info.Mode() != 0o444 || time.Since(info.ModTime()).Abs() > 26*time.Hour {
				t.Errorf("odd.bin: %v %v %v", info.Mode(), info.ModTime(), err)
			}
		})
	}
}

// TestFATFragmented fills a volume, deletes every other file and writes a large one into the gaps.
func TestFATFragmented(t *testing.T) {
	t.Parallel()
	image, dir := imageFile(t, 40<<20), t.TempDir()
	tool(t, "mkfs.vfat", "-F", "32", "-s", "1", image)
	tree, files := map[string][]byte{}, []string{"-i", image}
	for i := range 38 {
		name := fmt.Sprintf("fill%d", i)
		tree[name] = randomBytes(uint64(i), 1000000)
		files = append(files, filepath.Join(dir, name))
	}
	writeFiles(t, dir, tree)
	tool(t, "mcopy", append(files, "::/")...)
	for i := 0; i < 38; i += 2 {
		name := fmt.Sprintf("fill%d", i)
		tool(t, "mdel", "-i", image, "::/"+name)
		delete(tree, name)
	}
	large := map[string][]byte{"large.bin": randomBytes(99, 15000000)}
	writeFiles(t, dir, large)
	tool(t, "mcopy", "-i", image, filepath.Join(dir, "large.bin"), "::/")
	maps.Copy(tree, large)
	tool(t, "fsck.vfat", "-n", image)
	v := openImageFile(t, image)
	checkTree(t, v, tree)
	if n := runsOf(t, v, "large.bin"); n < 10 {
		t.Errorf("large.bin has %d pieces: the test does not fragment", n)
	}
}

// builtFiles are the contents of the images that the builders make.
func builtFiles() ([]testFile, map[string][]byte) {
	files := []testFile{
		{name: "Fragmented file.bin", data: randomBytes(1, 5000), fragmented: true},
		{name: "contiguous", data: randomBytes(2, 2048)},
		{name: "chained", data: randomBytes(3, 2000), chained: true},
		{name: "empty"},
		{name: "dir", children: []testFile{
			{name: "größe.txt", data: []byte("wide")},
			{name: "inner", children: []testFile{{name: "thirteenunits", data: []byte("deep")}}},
		}},
	}
	tree := map[string][]byte{"dir/größe.txt": []byte("wide"), "dir/inner/thirteenunits": []byte("deep")}
	for _, f := range files[:4] {
		tree[f.name] = f.data
	}
	return files, tree
}

func TestBuiltImages(t *testing.T) {
	t.Parallel()
	files, tree := builtFiles()
	for kind, c := range map[string]struct {
		image []byte
		label string
		check []string
		clock time.Time
	}{
		"FAT32":  {buildFAT32(100, files...), "TEST LABEL", []string{"fsck.vfat", "-n"}, time.Date(2026, 11, 23, 13, 18, 0, 0, time.UTC)},
		"exFAT":  {buildExFAT(100, 0, files...), "Test", []string{"fsck.exfat", "-n"}, time.Date(2026, 11, 23, 12, 18, 1, 5e8, time.UTC)},
		"exFAT ": {buildExFAT(100, 3, files...), "Test", []string{"fsck.exfat", "-n"}, time.Date(2026, 11, 23, 12, 18, 1, 5e8, time.UTC)},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			v, err := Open(bytes.NewReader(c.image), int64(len(c.image)))
			if err != nil {
				t.Fatal(err)
			}
			if v.Kind != strings.TrimSpace(kind) || v.Label != c.label {
				t.Errorf("%s with label %q", v.Kind, v.Label)
			}
			checkTree(t, v, tree)
			if info, err := fs.Stat(v, "chained"); err != nil || !info.ModTime().Equal(c.clock) {
				t.Errorf("modified %v, want %v: %v", info.ModTime(), c.clock, err)
			}
			if n := runsOf(t, v, "contiguous"); n != 1 {
				t.Errorf("contiguous file has %d pieces", n)
			}
			path := imageFile(t, 0)
			if err := os.WriteFile(path, c.image, 0o600); err != nil {
				t.Fatal(err)
			}
			tool(t, c.check[0], append(c.check[1:], path)...)
		})
	}
}

func TestFAT12(t *testing.T) {
	t.Parallel()
	image := buildFAT12()
	v, err := Open(bytes.NewReader(image), int64(len(image)))
	if err != nil {
		t.Fatal(err)
	}
	if v.Kind != "FAT12" || v.Label != "TINY" {
		t.Errorf("%s with label %q", v.Kind, v.Label)
	}
	want := strings.Repeat("a", 512) + strings.Repeat("b", 512) + strings.Repeat("c", 176)
	checkTree(t, v, map[string][]byte{"file.bin": []byte(want)})
}

// TestFATSecondTable checks that the table that the boot sector calls active is the one that counts.
func TestFATSecondTable(t *testing.T) {
	t.Parallel()
	files, tree := builtFiles()
	image := buildFAT32(100, files...)
	clear(image[8*512+8 : 9*512])
	image[40] = 0x81
	v, err := Open(bytes.NewReader(image), int64(len(image)))
	if err != nil {
		t.Fatal(err)
	}
	checkTree(t, v, tree)
}

func TestFATLabels(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ root, boot, want string }{
		{"ROOT \x9A", "BOOT", "ROOT Ü"},
		{"\xE5OOT", "BOOT", "BOOT"},
		{"\xE5OOT", "NO NAME", ""},
	} {
		image := buildFAT32(20)
		copy(image[71:82], c.boot+strings.Repeat(" ", 11-len(c.boot)))
		copy(image[bytes.LastIndex(image, []byte("TEST LABEL ")):], c.root+strings.Repeat(" ", 11-len(c.root)))
		v, err := Open(bytes.NewReader(image), int64(len(image)))
		if err != nil || v.Label != c.want {
			t.Errorf("root %q, boot %q: %+v %v", c.root, c.boot, v, err)
		}
	}
}

func TestFATShortNames(t *testing.T) {
	t.Parallel()
	if len(cp437) != 128 {
		t.Fatalf("code page 437 has %d upper characters", len(cp437))
	}
	image := buildFAT32(20, testFile{name: "long name.txt", data: []byte("x")})
	record := bytes.Index(image, []byte("F0000000   "))
	for _, c := range []struct {
		short string
		flags byte
		want  string
	}{
		{"F0000000   ", 0, "long name.txt"},
		{"README  TXT", 0, "README.TXT"},
		{"README  TXT", fatLowerBase, "readme.TXT"},
		{"README  TXT", fatLowerBase | fatLowerExtension, "readme.txt"},
		{"GR\x9A\x81E", 0, "GRÜüE"},
		{"\x05A", 0, "σA"},
	} {
		changed := bytes.Clone(image)
		copy(changed[record:], c.short+strings.Repeat(" ", 11-len(c.short)))
		changed[record+12] = c.flags
		v, err := Open(bytes.NewReader(changed), int64(len(changed)))
		if err != nil {
			t.Fatal(err)
		}
		list, err := fs.ReadDir(v, ".")
		if err != nil || len(list) != 1 || list[0].Name() != c.want {
			t.Errorf("%q: %v %v, want %s", c.short, list, err, c.want)
		}
	}
}

// countingReader counts the reads of a medium.
type countingReader struct {
	io.ReaderAt
	reads int
}

func (c *countingReader) ReadAt(p []byte, off int64) (int, error) {
	c.reads++
	return c.ReaderAt.ReadAt(p, off)
}

func TestContiguousFileIsOneRead(t *testing.T) {
	t.Parallel()
	file := testFile{name: "file", data: randomBytes(1, 100*512)}
	for _, image := range [][]byte{buildFAT32(200, file), buildExFAT(200, 0, file)} {
		r := &countingReader{ReaderAt: bytes.NewReader(image)}
		v, err := Open(r, int64(len(image)))
		if err != nil {
			t.Fatal(err)
		}
		f, err := v.Open("file")
		if err != nil {
			t.Fatal(err)
		}
		r.reads = 0
		p := make([]byte, len(file.data))
		if _, err := f.(File).ReadAt(p, 0); err != nil || !bytes.Equal(p, file.data) {
			t.Fatalf("%s: %v", v.Kind, err)
		}
		if r.reads != 1 {
			t.Errorf("%s: %d reads for a contiguous file", v.Kind, r.reads)
		}
	}
}

// TestConcurrentWalks is for the race detector.
func TestConcurrentWalks(t *testing.T) {
	t.Parallel()
	files, tree := builtFiles()
	image := buildFAT32(100, files...)
	v, err := Open(bytes.NewReader(image), int64(len(image)))
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for name, want := range tree {
				if got, err := fs.ReadFile(v, name); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	group.Wait()
}

func TestOtherMedia(t *testing.T) {
	t.Parallel()
	partitions := make([]byte, 4096)
	copy(partitions, "\xEB\x63\x90 code of a boot loader")
	partitions[510], partitions[511] = 0x55, 0xAA
	for name, image := range map[string][]byte{
		"nothing": nil, "zeros": make([]byte, 1<<20), "text": []byte(strings.Repeat("text ", 1000)), "partition table": partitions,
	} {
		if _, err := Open(bytes.NewReader(image), int64(len(image))); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// walkAll reads what a possibly damaged image has, within a budget, and returns the first error.
func walkAll(open func(io.ReaderAt, int64) (*Volume, error), image []byte) error {
	v, err := open(bytes.NewReader(image), int64(len(image)))
	if err != nil {
		return err
	}
	var first error
	budget := 300
	err = fs.WalkDir(v, ".", func(name string, d fs.DirEntry, err error) error {
		if budget--; budget == 0 {
			return fs.SkipAll
		}
		if err == nil && !d.IsDir() {
			err = readSome(v, name)
		}
		if first == nil {
			first = err
		}
		return nil
	})
	if err != nil {
		return err
	}
	return first
}

// readSome reads the beginning and the end of a file.
func readSome(v *Volume, name string) error {
	f, err := v.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || path.Base(name) != info.Name() {
		return fmt.Errorf("%s is %v: %w", name, info, err)
	}
	p := make([]byte, 3000)
	for _, off := range []int64{0, max(0, info.Size()-100), info.Size()} {
		n, err := f.(File).ReadAt(p, off)
		if int64(n) > info.Size()-off {
			panic(fmt.Sprintf("%s: %d bytes at %d of %d", name, n, off, info.Size()))
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}
