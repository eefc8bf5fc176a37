package bundlereader_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

// partsOf are the files of the parts of a bundle.
func partsOf(t testing.TB, file []byte, step int64) [][]byte {
	t.Helper()
	h, err := bundlereader.Summary(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	parts, err := bundle.SplitParts(h.Digest, int64(len(file)), step)
	if err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for _, p := range parts {
		data := file[p.Offset : p.Offset+p.Length]
		p.Digest = bundle.DigestOf(data)
		out = append(out, append(p.Header(), data...))
	}
	return out
}

func writeParts(t testing.TB, dir string, files map[string][]byte) {
	t.Helper()
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Parts of any size under any names, in one directory or two, are the bundle.
func TestPartsOfAnySizeAndOrder(t *testing.T) {
	t.Parallel()
	file := tinyBundle(t, "1.2.3")
	rapid.Check(t, func(rt *rapid.T) {
		parts := partsOf(t, file, rapid.Int64Range(int64(len(file))/200, int64(len(file))+10).Draw(rt, "step"))
		one, err := os.MkdirTemp(t.TempDir(), "one")
		if err != nil {
			rt.Fatal(err)
		}
		two, err := os.MkdirTemp(t.TempDir(), "two")
		if err != nil {
			rt.Fatal(err)
		}
		dirs := []string{one}
		if rapid.Bool().Draw(rt, "two directories") {
			dirs = append(dirs, two)
		}
		order := rapid.Permutation(slices.Collect(func(yield func(int) bool) {
			for i := range parts {
				if !yield(i) {
					return
				}
			}
		})).Draw(rt, "order")
		for name, i := range order {
			writeParts(t, dirs[rapid.IntRange(0, len(dirs)-1).Draw(rt, "directory")], map[string][]byte{fmt.Sprintf("%03d", name): parts[i]})
		}
		f, err := bundlereader.OpenPath(strings.Join(dirs, ","))
		if err != nil {
			rt.Fatal(err)
		}
		defer f.Close()
		if err := bundlereader.Verify(t.Context(), f, nil); err != nil {
			rt.Fatal(err)
		}
		r := io.NewSectionReader(f.Unverified(), 0, int64(len(file))+1)
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, file) {
			rt.Fatalf("%d bytes, want %d: %v", len(got), len(file), err)
		}
		at := rapid.IntRange(0, len(file)-1).Draw(rt, "at")
		n := rapid.IntRange(1, len(file)-at).Draw(rt, "n")
		b := make([]byte, n)
		if _, err := f.Unverified().ReadAt(b, int64(at)); err != nil || !bytes.Equal(b, file[at:at+n]) {
			rt.Fatalf("%d bytes at %d: %v", n, at, err)
		}
	})
}

// A changed bit anywhere in any part is found, and the part is named.
func TestDamagedParts(t *testing.T) {
	t.Parallel()
	file := tinyBundle(t, "1.2.3")
	parts := partsOf(t, file, int64(len(file))/3)
	const magic = len("refit-bundle-part, format ") // other files may begin in any other way
	rapid.Check(t, func(rt *rapid.T) {
		i := rapid.IntRange(0, len(parts)-1).Draw(rt, "part")
		bit := rapid.IntRange(magic*8, len(parts[i])*8-1).Draw(rt, "bit")
		dir, err := os.MkdirTemp(t.TempDir(), "parts")
		if err != nil {
			rt.Fatal(err)
		}
		for n, b := range parts {
			if n == i {
				b = bytes.Clone(b)
				b[bit/8] ^= 1 << (bit % 8)
			}
			writeParts(t, dir, map[string][]byte{fmt.Sprint("file", n): b})
		}
		if inSlot(file, int64(bit/8-bundle.PartHeaderSize)+int64(i)*(int64(len(file))/3)) && bit/8 >= bundle.PartHeaderSize {
			return // a changed signature is an invalid signature
		}
		f, err := bundlereader.OpenPath(dir)
		if err == nil {
			defer f.Close()
			err = bundlereader.Verify(t.Context(), f, nil)
		}
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint("file", i)) && !strings.Contains(err.Error(), "one of the parts") || !strings.Contains(err.Error(), "copy ") {
			rt.Fatalf("bit %d of part %d: %v", bit, i+1, err)
		}
		var named []string
		err = bundlereader.VerifyParts(t.Context(), dir, func(p bundle.PartFile, err error) {
			if err != nil {
				named = append(named, p.Name)
			}
		})
		var wrong *bundle.PartsError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), fmt.Sprint("file", i)) {
			rt.Fatalf("each on its own: %v, %v", err, named)
		}
	})
}

// inSlot reports whether an offset is in the signatures.
func inSlot(file []byte, offset int64) bool {
	h, err := bundlereader.Summary(bytes.NewReader(file))
	return err == nil && offset >= h.SlotOffset() && offset < h.SlotOffset()+bundle.SignatureSlotSize
}

func TestPartsThatAreNotOneBundle(t *testing.T) {
	t.Parallel()
	file, other := tinyBundle(t, "1.2.3"), tinyBundle(t, "1.2.4")
	step := int64(len(file))/3 + 1
	a, b := partsOf(t, file, step), partsOf(t, other, step)
	torn := a[1][:len(a[1])-7]
	// The bytes of the other bundle under the header of this one.
	swapped := append(bytes.Clone(a[0][:bundle.PartHeaderSize]), b[0][bundle.PartHeaderSize:]...)
	for sentence, c := range map[string]struct {
		files map[string][]byte
		want  []string
	}{
		"missing":             {map[string][]byte{"1": a[0], "3": a[2]}, []string{"part 2 of 3 is missing: add it"}},
		"the first missing":   {map[string][]byte{"2": a[1], "3": a[2]}, []string{"part 1 of 3 is missing"}},
		"doubled":             {map[string][]byte{"1": a[0], "2": a[1], "3": a[2], "4": a[1]}, []string{"part 2 of 3 is there twice, as ", "/2 and ", "/4: remove one"}},
		"swapped":             {map[string][]byte{"1": a[0], "2": b[1], "3": a[2]}, []string{"part 2 of 3 is missing", "/2) is of another split, of bundle " + digestOf(t, other)}},
		"swapped bytes":       {map[string][]byte{"1": swapped, "2": a[1], "3": a[2]}, []string{"part 1 of 3 (", "/1) has the beginning of bundle " + digestOf(t, other)}},
		"torn":                {map[string][]byte{"1": a[0], "2": torn, "3": a[2]}, []string{"part 2 of 3 (", "/2) has ", "copy it again"}},
		"a torn header":       {map[string][]byte{"1": a[0], "2": a[1][:100], "3": a[2]}, []string{"part 2 of 3 is missing", "/2: the header of the part is cut off: copy the part again"}},
		"only a torn header":  {map[string][]byte{"2": a[1][:100]}, []string{"parts of a bundle", "cut off"}},
		"no beginning":        {map[string][]byte{"1": append(bytes.Clone(a[0][:bundle.PartHeaderSize]), make([]byte, step)...), "2": a[1], "3": a[2]}, []string{"part 1 of 3 (", "does not begin as a bundle does"}},
		"another split of it": {map[string][]byte{"1": a[0], "2": a[1], "3": partsOf(t, file, step+1)[2]}, []string{"part 3 of 3 is missing", "/3) is of another split"}},
	} {
		dir := t.TempDir()
		writeParts(t, dir, c.files)
		_, err := bundlereader.OpenPath(dir)
		var parts *bundle.PartsError
		if !errors.As(err, &parts) {
			t.Errorf("%s: %v", sentence, err)
			continue
		}
		_, _, summary := bundlereader.SummaryPath(dir)
		found, list := bundlereader.ListPath(dir)
		if list != nil || len(found) == 0 || found[0].Err == nil {
			t.Errorf("%s: list %v %v", sentence, found, list)
			continue
		}
		for _, e := range []error{err, summary, found[0].Err} {
			for _, want := range c.want {
				if !strings.Contains(fmt.Sprint(e), want) {
					t.Errorf("%s: %v does not say %q", sentence, e, want)
				}
			}
		}
	}
}

func TestPartsInFileSystems(t *testing.T) {
	t.Parallel()
	file := tinyBundle(t, "1.2.3")
	parts := partsOf(t, file, int64(len(file))/3+1)
	for _, kind := range []string{"FAT32", "ext4", "ISO 9660"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			all := image(t, kind, map[string][]byte{"README.txt": []byte("Plug it in."), "parts/c": parts[0], "parts/b": parts[1], "a": parts[2]})
			checkOpens(t, all, file)
			checkOpens(t, all+"#parts/b", file)
			for table := range tables {
				disk, number := partitioned(t, table, all)
				checkOpens(t, disk, file)
				checkOpens(t, fmt.Sprintf("%s#%d:a", disk, number), file)
			}
			one, two := image(t, kind, map[string][]byte{"x": parts[2], "y": parts[0]}), image(t, kind, map[string][]byte{"x": parts[1]})
			checkOpens(t, one+","+two, file)
			if _, err := bundlereader.OpenPath(one); err == nil || !strings.Contains(err.Error(), "part 2 of 3 is missing") {
				t.Errorf("one of two: %v", err)
			}
			states := 0
			err := bundlereader.VerifyParts(t.Context(), one, func(_ bundle.PartFile, err error) {
				if err == nil {
					states++
				}
			})
			if states != 2 || err == nil || !strings.Contains(err.Error(), "part 2 of 3 is missing") {
				t.Errorf("one of two: %d intact, %v", states, err)
			}
		})
	}
}

// A directory is a place for one bundle, whole or in parts, next to other files.
func TestDirectories(t *testing.T) {
	t.Parallel()
	file := tinyBundle(t, "1.2.3")
	parts := partsOf(t, file, int64(len(file))/2+1)
	dir := t.TempDir()
	if _, err := bundlereader.OpenPath(dir); !errors.Is(err, bundle.ErrNotBundle) {
		t.Errorf("an empty one: %v", err)
	}
	writeParts(t, dir, map[string][]byte{"README": []byte("Plug it in."), "1": parts[0], "2": parts[1]})
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	checkOpens(t, dir, file)
	checkOpens(t, filepath.Join(dir, "2"), file)
	checkOpens(t, filepath.Join(dir, "2")+","+filepath.Join(dir, "1"), file)
	if f, err := bundlereader.OpenPath(dir); err != nil {
		t.Error(err)
	} else if got := f.Places(); !slices.Equal(got, []string{filepath.Join(dir, "1"), filepath.Join(dir, "2")}) || f.Close() != nil {
		t.Errorf("places of the parts: %q", got)
	}
	writeParts(t, dir, map[string][]byte{"whole": tinyBundle(t, "1.2.4")})
	_, err := bundlereader.OpenPath(dir)
	var several *bundlereader.SeveralError
	if !errors.As(err, &several) || len(several.Found) != 2 {
		t.Errorf("two bundles: %v", err)
	}
	checkOpens(t, filepath.Join(dir, "1"), file)
	checkOpens(t, filepath.Join(dir, "whole"), tinyBundle(t, "1.2.4"))
	if found, err := bundlereader.ListPath(dir); err != nil || len(found) != 2 {
		t.Errorf("list: %v %v", found, err)
	}
}

// A part that changes while it is read is named.
func TestAPartThatShrinks(t *testing.T) {
	t.Parallel()
	file := tinyBundle(t, "1.2.3")
	parts := partsOf(t, file, int64(len(file))/3+1)
	dir := t.TempDir()
	writeParts(t, dir, map[string][]byte{"1": parts[0], "2": parts[1], "3": parts[2]})
	f, err := bundlereader.OpenPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(filepath.Join(dir, "3"), 600); err != nil {
		t.Fatal(err)
	}
	var corrupt *bundle.CorruptError
	if err := bundlereader.Verify(t.Context(), f, nil); !errors.As(err, &corrupt) || !strings.Contains(corrupt.Place, "part 3 of 3") {
		t.Errorf("%v", err)
	}
}
