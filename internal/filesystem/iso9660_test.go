package filesystem

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestISO9660(t *testing.T) {
	t.Parallel()
	joliet := map[string][]byte{"Überprüfung 日本.txt": []byte("x"), "lower/case.tar.gz": []byte("y"), strings.Repeat("long", 15) + ".txt": []byte("z"), "SMALL.TXT": nil}
	for _, c := range []struct {
		name, command string
		files         map[string][]byte
		foldsCase     bool
	}{
		{"xorriso", "xorriso -as mkisofs -r -J", unixFiles(), false},
		{"genisoimage", "genisoimage -r -J -joliet-long", unixFiles(), false},
		{"genisoimage without Joliet", "genisoimage -r", unixFiles(), false},
		{"relocated directories", "genisoimage -r", map[string][]byte{"SMALL.TXT": nil, strings.Repeat("d/", 12) + "file": []byte("deep"), "a/b/c/d/e/f/g/h/i/j": nil}, false},
		{"Joliet", "genisoimage -J", joliet, true},
		{"plain", "genisoimage", sourceFiles(), true},
		{"plain without versions", "genisoimage -N -d -iso-level 3", sourceFiles(), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := openImage(t, makeISO(t, c.command, writeTree(t, c.files)))
			if v.Kind != "ISO 9660" {
				t.Errorf("kind %s", v.Kind)
			}
			checkVolume(t, v, c.files)
			if _, err := fs.Stat(v, "Small.txt"); (err == nil) != c.foldsCase {
				t.Errorf("a name in another case: %v", err)
			}
		})
	}
}

// tinyISO is an image with a few files and directories.
func tinyISO(t testing.TB, command string) []byte {
	return makeISO(t, command, writeTree(t, map[string][]byte{
		"a": []byte("contents of a"), "b": []byte("contents of b"), "dir/one": []byte("1"), "dir/two/three": []byte("3"), "empty": nil,
	}))
}

func TestISO9660SpecialFiles(t *testing.T) {
	t.Parallel()
	dir := writeTree(t, map[string][]byte{"file": []byte("x")})
	if err := os.Symlink("file", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	checkSpecialFiles(t, openImage(t, makeISO(t, "xorriso -as mkisofs -r", dir)))
}

// checkSpecialFiles checks a volume with a symbolic link.
func checkSpecialFiles(t *testing.T, v *Volume) {
	t.Helper()
	info, err := fs.Stat(v, "link")
	if err != nil || info.Mode().Type() != fs.ModeSymlink {
		t.Errorf("link: %v %v", info, err)
	}
	for _, name := range []string{"link", "link/x"} {
		if _, err := v.Open(name); err == nil || !strings.Contains(err.Error(), "symbolic links are not followed") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := v.Open("../file"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("invalid path: %v", err)
	}
	if _, err := v.Open(strings.Repeat("d/", maxDepth) + "x"); err == nil || !strings.Contains(err.Error(), "nested") {
		t.Errorf("deep path: %v", err)
	}
}

// zeroTail is a medium that ends with zeros which are not in memory.
type zeroTail struct{ data []byte }

func (z zeroTail) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	if off < int64(len(z.data)) {
		copy(p, z.data[off:])
	}
	return len(p), nil
}

// A file of more than 4 GiB has several directory records.
func TestISO9660SeveralExtents(t *testing.T) {
	t.Parallel()
	image := tinyISO(t, "genisoimage")
	v := openImage(t, image)
	a, b := image[position(t, v, "A"):], image[position(t, v, "B"):]
	const first = 0xfffff800
	binary.LittleEndian.PutUint32(a[10:], first)
	a[25] |= isoContinues
	b[33] = 'A'
	binary.LittleEndian.PutUint32(image[16*isoSector+80:], 3<<20)
	big, err := openISO9660(zeroTail{image}, 6<<30)
	if err != nil {
		t.Fatal(err)
	}
	f, err := big.Open("A")
	if err != nil {
		t.Fatal(err)
	}
	info, _ := f.Stat()
	if want := int64(first + len("contents of b")); info.Size() != want {
		t.Errorf("size %d, want %d", info.Size(), want)
	}
	p := make([]byte, 8+len("contents of b"))
	if _, err := f.(File).ReadAt(p, first-8); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if want := "\x00\x00\x00\x00\x00\x00\x00\x00contents of b"; string(p) != want {
		t.Errorf("%q, want %q", p, want)
	}
	if _, err := fs.Stat(big, "B"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the second extent is a file: %v", err)
	}
}

// A name of several parts, the second one in a continuation area.
func TestRockRidgeNames(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("n", 250)
	v := openImage(t, makeISO(t, "genisoimage -r", writeTree(t, map[string][]byte{name: []byte("x")})))
	checkFile(t, v, name, []byte("x"))
}

func TestISO9660Corruption(t *testing.T) {
	t.Parallel()
	image := tinyISO(t, "xorriso -as mkisofs -r")
	v := openImage(t, image)
	a, dir := position(t, v, "a"), position(t, v, "dir")
	root := findNode[*isoNode](t, v, ".").extents[0].at
	put := func(at int64, n uint32) func([]byte) {
		return func(image []byte) { binary.LittleEndian.PutUint32(image[at:], n) }
	}
	set := func(at int64, b ...byte) func([]byte) {
		return func(image []byte) { copy(image[at:], b) }
	}
	// entry returns where a system use entry of a's record is.
	entry := func(signature string) int64 {
		return a + int64(bytes.Index(image[a:][:image[a]], []byte(signature)))
	}
	// continuation replaces the entry PX of a by one that continues elsewhere.
	continuation := func(block, offset, length uint32) func([]byte) {
		return func(image []byte) {
			px := image[entry("PX"):]
			copy(px[28:], []byte{'P', 'D', px[2] - 28, 1})
			copy(px, "CE\x1c\x01")
			binary.LittleEndian.PutUint32(px[4:], block)
			binary.LittleEndian.PutUint32(px[12:], offset)
			binary.LittleEndian.PutUint32(px[20:], length)
		}
	}
	px := entry("PX")
	const descriptor = 16 * isoSector
	checkCorruptions(t, openISO9660, image, []corruption{
		{"volume larger than medium", put(descriptor+80, 1<<24), "is larger than its medium"},
		{"volume smaller than its root", put(descriptor+80, 17), "outside of the volume"},
		{"block size", set(descriptor+128, 0, 2), "logical blocks of 512 bytes"},
		{"no terminator", func(image []byte) {
			at := bytes.Index(image, []byte("\xffCD001"))
			image[at], image[at+isoSector+1] = 3, 'X'
		}, "has no signature"},
		{"many descriptors", func(image []byte) {
			for at := descriptor + isoSector; at < 100*isoSector; at += isoSector {
				copy(image[at:], "\x03CD001")
			}
		}, "more than 64 volume descriptors"},
		{"no primary descriptor", set(descriptor, 3), "no primary volume descriptor"},
		{"root outside", put(descriptor+156+2, 1<<30), "outside of the volume"},
		{"root is not a directory", put(descriptor+156+2, uint32(findNode[*isoNode](t, v, "a").extents[0].at/isoSector)), "directory record at byte"},
		{"root of 0 bytes", put(root+10, 0), "has 0 bytes"},
		{"large directory", put(dir+10, maxDirectory+1), "directory record at byte"},
		{"record of length 0", set(a, 0), "has the length 0, but its sector has more records"},
		{"short record", set(a, 20), "has the length 20"},
		{"record beyond its sector", put(root+10, uint32(image[root])-1), "bytes left"},
		{"name beyond its record", set(a+32, 250), "does not fit into the directory record"},
		{"extent outside", put(a+2, 1<<31), "is outside of the volume"},
		{"size beyond the volume", put(a+10, 1<<31), "is outside of the volume"},
		{"interleaved file", set(a+26, 1, 1), "interleaved files are not supported"},
		{"file of another volume", set(a+28, 7), "another volume of the set"},
		{"unfinished file", set(a+25, isoContinues), "is not the next extent"},
		{"directory of several extents", set(dir+25, isoContinues|isoDirectory), "only one extent"},
		{"directory at a file", put(dir+2, uint32(findNode[*isoNode](t, v, "a").extents[0].at/isoSector)), "directory record at byte"},
		{"directory in itself", put(dir+2, uint32(root/isoSector)), "more than one place"},
		{"system use entry", set(px+2, 3), "system use entry \"PX\" has the length 3"},
		{"name with a separator", set(entry("NM")+5, '/'), "is not a name"},
		{"name of the parent", set(entry("NM")+4, 4), "is not a name"},
		{"name twice", set(entry("NM")+5, 'b'), "has the name \"b\" twice"},
		{"second name", set(px, 'N', 'M', image[px+2], 1, 0), "second name"},
		{"name of the directory", set(entry("NM")+4, 2), "is not a name"},
		{"times", set(entry("TF")+4, 0x83), "time stamps 0x83 do not fit"},
		{"unfinished name", set(entry("NM")+4, 1), "is not complete"},
		{"mode of a directory", put(px+4, 0o040755), "is of another type"},
		{"unknown mode", put(px+4, 0), "has no known file type"},
		{"continuation without end", continuation(uint32(a/isoSector), uint32(px%isoSector), 28), "more than 16 continuation areas"},
		{"continuation outside", continuation(1<<31, 0, 28), "is outside of the volume"},
		{"long continuation", continuation(20, 0, 1<<31), "longer than a sector"},
		{"relocated directory at a file", func(image []byte) {
			copy(image[px+12:], []byte{'P', 'D', image[px+2] - 12, 1})
			copy(image[px:], "CL\x0c\x01")
			binary.LittleEndian.PutUint32(image[px+4:], 19)
		}, "directory"},
		{"compressed file", set(px, 'Z', 'F'), "zisofs"},
		{"sparse file", set(px, 'S', 'F'), "sparse"},
	})
}

func TestRockRidgeTimes(t *testing.T) {
	t.Parallel()
	want := time.Date(2026, 3, 4, 5, 6, 7, 0, time.FixedZone("", 3600))
	for _, data := range []string{
		"\x02\x7e\x03\x04\x05\x06\x07\x04",
		"\x03XXXXXXX\x7e\x03\x04\x05\x06\x07\x04",
		"\x822026030405060700\x04",
	} {
		var rr rockRidge
		if err := rr.add("TF", []byte(data)); err != nil || !rr.modTime.Equal(want) {
			t.Errorf("%q: %v, want %v, error %v", data, rr.modTime, want, err)
		}
	}
	if at := isoTime([]byte{126, 13, 1, 0, 0, 0, 0}); !at.IsZero() {
		t.Errorf("time with a month 13: %v", at)
	}
}

// A medium that ends early, or that cannot be read, gives an error wherever that happens.
func TestCutMedium(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]opener{"iso9660-rockridge": openISO9660, "iso9660-joliet": openISO9660, "ext4-extents": openExt4, "ext4-map": openExt4} {
		image := fuzzImage(t, name)
		last := 0
		for at := 1; at < len(image); at += 512 {
			v, err := open(bytes.NewReader(image[:at]), int64(len(image)))
			if err == nil {
				err = walk(v, 1000)
			}
			if err == nil {
				break
			}
			if !strings.Contains(err.Error(), io.ErrUnexpectedEOF.Error()) {
				t.Errorf("%s cut at byte %d: %v", name, at, err)
			}
			last = at
		}
		if last < 20<<10 {
			t.Errorf("%s cut at byte %d can be read", name, last+512)
		}
	}
}

func TestNotISO9660(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{0, 1, 2048, 17*isoSector - 1, 1 << 20} {
		if _, err := openISO9660(zeroTail{}, size); !errors.Is(err, errOther) {
			t.Errorf("%d zeros as ISO 9660: %v", size, err)
		}
		if _, err := openExt4(zeroTail{}, size); !errors.Is(err, errOther) {
			t.Errorf("%d zeros as ext4: %v", size, err)
		}
		if _, err := Open(zeroTail{}, size); !errors.Is(err, ErrUnknown) {
			t.Errorf("%d zeros: %v", size, err)
		}
	}
}
