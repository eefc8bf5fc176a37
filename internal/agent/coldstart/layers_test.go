package coldstart

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// blob is a small layer with everything that is compared.
func blob(t *testing.T) (data []byte, digest string) {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	add := func(h tar.Header, content string) {
		h.Size, h.Mode = int64(len(content)), 0o755
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	add(tar.Header{Name: "./usr/lib/", Typeflag: tar.TypeDir}, "")
	add(tar.Header{Name: "lib", Typeflag: tar.TypeSymlink, Linkname: "/usr/lib"}, "")
	add(tar.Header{Name: "lib/a.so", Typeflag: tar.TypeReg}, "a library")
	add(tar.Header{Name: "bin", Typeflag: tar.TypeReg}, "an old program")
	add(tar.Header{Name: "bin", Typeflag: tar.TypeReg}, "a program")
	add(tar.Header{Name: "bin2", Typeflag: tar.TypeLink, Linkname: "bin"}, "")
	add(tar.Header{Name: "../../escape", Typeflag: tar.TypeReg}, "stays inside")
	add(tar.Header{Name: "etc/.wh.passwd", Typeflag: tar.TypeReg}, "")
	add(tar.Header{Name: "empty", Typeflag: tar.TypeReg}, "")
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), fmt.Sprintf("sha256:%x", sha256.Sum256(out.Bytes()))
}

func unpacked(t *testing.T) (dir string, x LayerIndex) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: unpacking sets owners and makes whiteouts")
	}
	data, digest := blob(t)
	dir = filepath.Join(t.TempDir(), "fs")
	if err := RestoreLayer(t.Context(), dir, bytes.NewReader(data), digest, false); err != nil {
		t.Fatal(err)
	}
	x, err := IndexLayer(t.Context(), bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return dir, x
}

// The damage that a power cut leaves in a layer is found, by size or by content, and is
// repaired.
func TestDamageIsFoundAndRestored(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, dir string)
		quick bool // seen without reading contents
	}{
		"a file of no bytes": {func(t *testing.T, dir string) { write(t, dir, "bin", "") }, true},
		"a torn file":        {func(t *testing.T, dir string) { write(t, dir, "usr/lib/a.so", "a lib") }, true},
		"a file of zeroes":   {func(t *testing.T, dir string) { write(t, dir, "usr/lib/a.so", strings.Repeat("\x00", 9)) }, false},
		"a file that is gone": {func(t *testing.T, dir string) {
			mustLayer(t, os.Remove(filepath.Join(dir, "empty")))
		}, true},
		"a link that leads elsewhere": {func(t *testing.T, dir string) {
			mustLayer(t, os.Remove(filepath.Join(dir, "lib")))
			mustLayer(t, os.Symlink("usr/lib", filepath.Join(dir, "lib")))
		}, true},
		"a directory that is gone": {func(t *testing.T, dir string) { mustLayer(t, os.RemoveAll(filepath.Join(dir, "usr"))) }, true},
		"all of it":                {func(t *testing.T, dir string) { mustLayer(t, os.RemoveAll(dir)) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir, x := unpacked(t)
			for _, deep := range []bool{false, true} {
				if d, err := x.Check(t.Context(), dir, deep); err != nil || d.Found() {
					t.Fatalf("a whole layer: %s %v", d, err)
				}
			}
			c.spoil(t, dir)
			quick, err := x.Check(t.Context(), dir, false)
			if err != nil || quick.Found() != c.quick {
				t.Errorf("by sizes: %s %v", quick, err)
			}
			if d, err := x.Check(t.Context(), dir, true); err != nil || !d.Found() {
				t.Errorf("by contents: %s %v", d, err)
			}
			data, digest := blob(t)
			mustLayer(t, RestoreLayer(t.Context(), dir, bytes.NewReader(data), digest, false))
			if d, err := x.Check(t.Context(), dir, true); err != nil || d.Found() {
				t.Errorf("after the restore: %s %v", d, err)
			}
		})
	}
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	mustLayer(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
}

func mustLayer(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAPathStaysInside(t *testing.T) {
	dir, _ := unpacked(t)
	if _, err := os.Stat(filepath.Join(dir, "escape")); err != nil {
		t.Fatal(err)
	}
}

// A corrupt copy is not unpacked over a layer.
func TestARottenCopyChangesNothing(t *testing.T) {
	dir, x := unpacked(t)
	write(t, dir, "bin", "half")
	data, digest := blob(t)
	data[len(data)/2] ^= 1
	if err := RestoreLayer(t.Context(), dir, bytes.NewReader(data), digest, false); err == nil || !strings.Contains(err.Error(), "corrupt") {
		t.Fatal(err)
	}
	if d, err := x.Check(t.Context(), dir, true); err != nil || len(d.Size) != 1 {
		t.Fatalf("%s %v", d, err)
	}
}

func TestIndexesAreKept(t *testing.T) {
	s := LayerIndexDir(filepath.Join(t.TempDir(), "layers"))
	data, digest := blob(t)
	x, err := IndexLayer(t.Context(), bytes.NewReader(data))
	mustLayer(t, err)
	if _, err := s.Load(digest); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	mustLayer(t, s.Save(digest, x))
	got, err := s.Load(digest)
	if err != nil || len(got) != len(x) || len(x) != 7 {
		t.Fatalf("%d of %d, %v", len(got), len(x), err)
	}
	whole, err := os.ReadFile(s.path(digest))
	mustLayer(t, err)
	for cut := range len(whole) {
		mustLayer(t, os.WriteFile(s.path(digest), whole[:cut], 0o600))
		if _, err := s.Load(digest); err == nil {
			t.Fatalf("cut off after %d of %d bytes it is taken for whole", cut, len(whole))
		}
	}
	mustLayer(t, s.Retain(nil))
	if _, err := s.Load(digest); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}
