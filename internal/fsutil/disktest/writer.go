package disktest

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Writer is what writes files; it is tried on file systems with no room, too little room,
// and on one that is read-only.
type Writer struct {
	// Write does it. It is called again after it failed.
	Write func(dir string) error
	// Torn names what is in the directory and neither as it was before, nor as it is to
	// be; "" if nothing is. It is asked after every call.
	Torn func(dir string) string
	// Whole reports whether all is as it is to be.
	Whole func(dir string) bool
	// Partial are patterns of the names of files that a failed call may leave for the next
	// one to continue. The next call must not leave more of them, and none after success.
	// Kept are files that must stay next to the target.
	Partial, Kept []string
}

func matches(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { ok, _ := filepath.Match(p, filepath.Base(path)); return ok })
}

// room is what is left free for a Writer, in bytes.
var room = []int64{0, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 512 << 10}

// Try runs a writer. prepare fills a directory with what is there before.
func (w Writer) Try(t *testing.T, prepare func(t *testing.T, dir string)) {
	t.Helper()
	Each(t, Small, func(t *testing.T, f *FS) {
		failed := 0
		for _, free := range room {
			dir := f.Path("room", strings.Repeat("x", failed+1))
			prepare(t, dir)
			before := list(t, dir)
			if free == 0 {
				f.Fill()
			} else {
				f.FillTo(free)
			}
			if !w.failing(t, dir, before, "no space left on device", "bytes are free", "are free there") {
				f.Free()
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
				break
			}
			failed++
			f.Free()
			w.succeeding(t, dir, before)
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}
		if failed == 0 {
			t.Error("it never failed: it writes nothing here")
		}
		dir := f.Path("readonly")
		prepare(t, dir)
		before := list(t, dir)
		f.ReadOnly()
		if !w.failing(t, dir, before, "read-only file system") {
			t.Error("it did not fail on a read-only file system")
		}
		f.Writable()
		w.succeeding(t, dir, before)
	})
}

// failing calls Write twice; false if it did not fail.
func (w Writer) failing(t *testing.T, dir string, before []string, words ...string) bool {
	t.Helper()
	left := -1
	for range 2 {
		err := w.Write(dir)
		torn := w.Torn(dir)
		switch {
		case err == nil && torn == "" && w.Whole(dir):
			return false
		case err == nil:
			t.Errorf("it succeeded, and %q is torn", torn)
			return false
		case torn != "":
			t.Errorf("%s is torn after: %v", torn, err)
		}
		if !slices.ContainsFunc(words, func(s string) bool { return strings.Contains(err.Error(), s) }) {
			t.Errorf("the error does not say %q: %v", words[0], err)
		}
		now := w.leftBehind(t, dir, before, err)
		if left >= 0 && now > left {
			t.Errorf("%d files are left behind, and %d after one more try", left, now)
		}
		left = now
	}
	return true
}

// leftBehind counts what was not there before.
func (w Writer) leftBehind(t *testing.T, dir string, before []string, err error) (n int) {
	t.Helper()
	for _, name := range list(t, dir) {
		if slices.Contains(before, name) {
			continue
		}
		if n++; !matches(w.Partial, name) && !matches(w.Kept, name) {
			t.Errorf("%s is left behind after: %v", name, err)
		}
	}
	return n
}

// succeeding calls Write with room, and compares what is left with a clean run.
func (w Writer) succeeding(t *testing.T, dir string, before []string) {
	t.Helper()
	if err := w.Write(dir); err != nil {
		t.Errorf("with room: %v", err)
	}
	if !w.Whole(dir) || w.Torn(dir) != "" {
		t.Errorf("with room it is not whole: %v", list(t, dir))
	}
	for _, name := range list(t, dir) {
		if !slices.Contains(before, name) && matches(w.Partial, name) {
			t.Errorf("%s stays after it went through", name)
		}
	}
}

func list(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
