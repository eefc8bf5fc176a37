package filesystem

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// sourceFiles are the files of the images that are made with the standard tools.
func sourceFiles() map[string][]byte {
	random := rand.New(rand.NewPCG(1, 2))
	bytesOf := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return b
	}
	files := map[string][]byte{
		"EMPTY":                       {},
		"SMALL.TXT":                   []byte("small\n"),
		"DIR/SUB/DEEP/RANDOM.BIN":     bytesOf(200_017),
		"DIR/ONEBLOCK":                bytesOf(4096),
		"SPARSE":                      make([]byte, 600_000),
		"HOLES":                       make([]byte, 400*8192+100),
		"PREALLOC":                    make([]byte, 40_960),
		strings.Repeat("D/", 5) + "X": []byte("deep"),
	}
	copy(files["SPARSE"][300_000:], bytesOf(5000))
	// Every second 4 KiB is a hole: hundreds of extents, in a deep tree if blocks are small.
	for at := 0; at < len(files["HOLES"])-4096; at += 8192 {
		copy(files["HOLES"][at:], bytesOf(4096))
	}
	for i := range 200 {
		files[fmt.Sprintf("MANY/F%05d", i)] = fmt.Appendf(nil, "file %d", i)
	}
	return files
}

// unixFiles are sourceFiles with names that need more than ISO 9660's own character set.
func unixFiles() map[string][]byte {
	files := map[string][]byte{
		"Überprüfung 日本.txt":                     []byte("non-ASCII"),
		strings.Repeat("long-name.", 20) + "txt": []byte("long"),
		"lower/case.tar.gz":                      bytes.Repeat([]byte("case"), 4000),
		"lower/trailing.dot.":                    []byte("dot"),
	}
	for name, data := range sourceFiles() {
		files[name] = data
	}
	return files
}

// writeTree writes files below a new directory.
func writeTree(t testing.TB, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// runTool runs a program of a Debian package that `make deps` installs.
func runTool(t testing.TB, name string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/" + name); err != nil {
			t.Skipf("%s is not installed (make deps)", name)
		}
	}
	command := exec.Command(path, args...)
	out, err := command.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && name == "e2fsck" && exit.ExitCode() == 1 {
		return // it changed the file system as it should
	}
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// makeISO makes an image of a directory, the program and its options are in command.
func makeISO(t testing.TB, command, dir string) []byte {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image.iso")
	words := strings.Fields(command)
	runTool(t, words[0], append(words[1:], "-quiet", "-V", "Label", "-o", image, dir)...)
	return readFile(t, image)
}

// makeExt4 makes an image of a directory. Unused blocks are not zeros, so that reading the wrong
// ones does not pass as a hole. Requests for debugfs are separated by semicolons.
func makeExt4(t testing.TB, options string, kib int, dir, debugfs string) []byte {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image.ext4")
	if err := os.WriteFile(image, bytes.Repeat([]byte{0xff}, kib<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append(strings.Fields(options), "-q", "-F", "-E", "nodiscard", "-L", "Label", "-d", dir, image)
	runTool(t, "mke2fs", args...)
	for request := range strings.SplitSeq(debugfs, ";") {
		if request == "e2fsck" {
			runTool(t, "e2fsck", "-fyD", image) // makes indexes of large directories
		} else if request != "" {
			runTool(t, "debugfs", "-w", "-R", request, image)
		}
	}
	return readFile(t, image)
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

type opener func(io.ReaderAt, int64) (*Volume, error)

func openImage(t testing.TB, image []byte) *Volume {
	t.Helper()
	v, err := Open(bytes.NewReader(image), int64(len(image)))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// checkVolume compares a volume with the files it was made of, then runs Go's test of an fs.FS.
func checkVolume(t *testing.T, v *Volume, files map[string][]byte) {
	t.Helper()
	if v.Label != "Label" && v.Label != "LABEL" {
		t.Errorf("label %q", v.Label)
	}
	var names []string
	for name, want := range files {
		names = append(names, name)
		checkFile(t, v, name, want)
	}
	if err := fstest.TestFS(v, names...); err != nil {
		t.Error(err)
	}
	if _, err := v.Open("no/such/file"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := v.Open("SMALL.TXT/x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("file below a file: %v", err)
	}
}

func checkFile(t *testing.T, v *Volume, name string, want []byte) {
	t.Helper()
	f, err := v.Open(name)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	got, err := io.ReadAll(f)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes, want %d, or other bytes: %v", name, len(got), len(want), err)
		return
	}
	info, err := f.Stat()
	if err != nil || info.Size() != int64(len(want)) || !info.Mode().IsRegular() || time.Since(info.ModTime()).Abs() > time.Hour {
		t.Errorf("%s: %v %v", name, info, err)
	}
	checkExtents(t, v, f.(File), want)
	random := rand.New(rand.NewPCG(uint64(len(want)), 3))
	for range min(50, len(want)) {
		off := random.IntN(len(want))
		p := make([]byte, 1+random.IntN(100_000))
		n, err := f.(File).ReadAt(p, int64(off))
		end := min(off+len(p), len(want))
		if !bytes.Equal(p[:n], want[off:end]) || (n < len(p)) != errors.Is(err, io.EOF) {
			t.Fatalf("%s: ReadAt(%d bytes, %d) = %d, %v", name, len(p), off, n, err)
		}
	}
}

// checkExtents reads a file at the places that its extents name.
func checkExtents(t *testing.T, v *Volume, f File, want []byte) {
	t.Helper()
	list, err := f.Extents(maxRuns)
	if err != nil {
		if len(want) > 4096 || !strings.Contains(err.Error(), "contents are in the inode") {
			t.Error(err)
		}
		return
	}
	var got []byte
	for _, e := range list {
		p := make([]byte, e.Length)
		if !e.Zeros {
			if _, err := v.FS.(*tree).r.ReadAt(p, e.At); err != nil {
				t.Fatal(err)
			}
		}
		got = append(got, p...)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%d extents have %d bytes, want %d, or other bytes", len(list), len(got), len(want))
	}
	if len(list) > 1 {
		if _, err := f.Extents(len(list) - 1); err == nil || !strings.Contains(err.Error(), "pieces") {
			t.Errorf("fewer extents than there are: %v", err)
		}
	}
}

// walk opens and reads everything that a walk over a volume finds, up to limit entries.
func walk(v *Volume, limit int) error {
	buffer := make([]byte, 64<<10)
	entries := 0
	return fs.WalkDir(v, ".", func(path string, d fs.DirEntry, err error) error {
		if entries++; entries > limit {
			return fs.SkipAll
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := v.Open(path)
		if err != nil {
			return err
		}
		info, err := f.Stat()
		if err != nil {
			return err
		}
		_, _ = f.(File).Extents(1000) // it must end; the reads below find the same damage
		for _, off := range []int64{0, info.Size() / 2, info.Size() - 1} {
			if _, err := f.(File).ReadAt(buffer, max(off, 0)); err != nil && !errors.Is(err, io.EOF) {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
		return nil
	})
}

// corruption changes an image that can be read. A walk must then end with the error want.
type corruption struct {
	name   string
	change func(image []byte)
	want   string
}

func checkCorruptions(t *testing.T, open opener, image []byte, corruptions []corruption) {
	t.Helper()
	v, err := open(bytes.NewReader(image), int64(len(image)))
	if err == nil {
		err = walk(v, 1000)
	}
	if err != nil {
		t.Fatal("the image is bad before it is changed:", err)
	}
	for _, c := range corruptions {
		t.Run(c.name, func(t *testing.T) {
			damaged := bytes.Clone(image)
			c.change(damaged)
			r := &countedReader{ReaderAt: bytes.NewReader(damaged)}
			v, err := open(r, int64(len(damaged)))
			if err == nil {
				err = walk(v, 1_000_000)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			r.check(t, 1<<20)
		})
	}
}

// findNode returns the node of a path, with everything that its reader knows.
func findNode[N node](t testing.TB, v *Volume, name string) N {
	t.Helper()
	n, err := v.FS.(*tree).find(name)
	if err != nil {
		t.Fatal(err)
	}
	return n.(N)
}

// position returns where the entry of a name is in the root directory or on the medium.
func position(t testing.TB, v *Volume, name string) int64 {
	t.Helper()
	tree := v.FS.(*tree)
	for e, err := range tree.root.entries() {
		if err != nil {
			t.Fatal(err)
		}
		if e.name == name {
			return e.position
		}
	}
	t.Fatalf("no entry %q", name)
	return 0
}
