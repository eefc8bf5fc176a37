package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func splitOf(t testing.TB, bundle string, size, step int64) []PartFile {
	t.Helper()
	parts, err := SplitParts(bundle, size, step)
	if err != nil {
		t.Fatal(err)
	}
	var out []PartFile
	for _, p := range parts {
		p.Digest = DigestOf(fmt.Append(nil, p.Number))
		out = append(out, PartFile{Part: p, Name: fmt.Sprint("f", p.Number), FileSize: PartHeaderSize + p.Length})
	}
	return out
}

// Parts cover the bundle without gaps, their headers read back, and any changed bit of a header is
// found.
func TestPartHeaders(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(1, 1<<50).Draw(t, "size")
		step := rapid.Int64Range((size+MaxParts-1)/MaxParts, 2*size).Draw(t, "step")
		parts, err := SplitParts(DigestOf(nil), size, step)
		if err != nil {
			t.Fatal(err)
		}
		var at int64
		for i, p := range parts {
			p.Digest = DigestOf([]byte("x"))
			if p.Offset != at || p.Number != i+1 || p.Count != len(parts) || p.Length > step {
				t.Fatalf("%+v", p)
			}
			at += p.Length
			b := p.Header()
			got, err := ParsePart(b)
			if err != nil || got != p || len(b) != PartHeaderSize {
				t.Fatalf("%+v, want %+v, %v", got, p, err)
			}
			bit := rapid.IntRange(0, len(b)*8-1).Draw(t, "bit")
			b[bit/8] ^= 1 << (bit % 8)
			if got, err := ParsePart(b); err == nil {
				t.Fatalf("a changed bit %d: %+v", bit, got)
			}
		}
		if at != size {
			t.Fatalf("%d of %d bytes", at, size)
		}
	})
	if _, err := SplitParts(DigestOf(nil), MaxParts+1, 1); err == nil || !strings.Contains(err.Error(), "use larger parts") {
		t.Error(err)
	}
}

// Each part knows the ranges of the others.
func TestRangesOfParts(t *testing.T) {
	t.Parallel()
	for _, step := range []int64{1, 7, 33, 99, 100, 1000} {
		parts := splitOf(t, DigestOf(nil), 100, step)
		for _, p := range parts {
			for _, q := range parts {
				if offset, length := p.Range(q.Number); offset != q.Offset || length != q.Length || p.Containing(offset) != q.Number || p.Containing(offset+length-1) != q.Number {
					t.Fatalf("step %d: %s has %d bytes at %d, %s says %d at %d", step, q.Part, q.Length, q.Offset, p.Part, length, offset)
				}
			}
		}
		twice := append([]PartFile{parts[0]}, parts...)
		twice[len(twice)-1].FileSize = 1
		intact, torn := IntactParts(twice)
		if len(intact) != max(1, len(parts)-1) || torn == nil {
			t.Errorf("step %d: %d intact parts of %d, %v", step, len(intact), len(parts), torn)
		}
	}
}

func TestPartHeadersThatAreNone(t *testing.T) {
	t.Parallel()
	good := splitOf(t, DigestOf(nil), 100, 40)[1].Part
	for want, change := range map[string]func(p *Part){
		"a number":        func(p *Part) { p.Number = 4 },
		"no number":       func(p *Part) { p.Number = 0 },
		"an offset":       func(p *Part) { p.Offset = 41 },
		"a length":        func(p *Part) { p.Length = 39 },
		"another size":    func(p *Part) { p.Size = 121 },
		"a negative size": func(p *Part) { p.Size = -1 },
		"too many":        func(p *Part) { p.Count = MaxParts + 1 },
		"no digest":       func(p *Part) { p.Digest = "" },
		"no bundle":       func(p *Part) { p.Bundle = "sha256:x" },
		"a part of none":  func(p *Part) { p.Number, p.Offset, p.Length = 1, 0, 0 },
	} {
		p := good
		change(&p)
		if _, err := ParsePart(p.Header()); err == nil || errors.Is(err, ErrNotPart) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := ParsePart(bytes.Replace(good.Header(), []byte("format 1"), []byte("format 2"), 1)); err == nil || !strings.Contains(err.Error(), "update refit") {
		t.Errorf("another format: %v", err)
	}
	if _, err := ParsePart(good.Header()[:100]); err == nil || !strings.Contains(err.Error(), "cut off") {
		t.Errorf("half a header: %v", err)
	}
	for _, b := range [][]byte{nil, []byte("refit"), make([]byte, PartHeaderSize)} {
		if _, err := ParsePart(b); !errors.Is(err, ErrNotPart) {
			t.Errorf("%q: %v", b, err)
		}
	}
}

func TestWhatIsWrongWithParts(t *testing.T) {
	t.Parallel()
	a, b := splitOf(t, DigestOf([]byte("a")), 1000, 400), splitOf(t, DigestOf([]byte("b")), 1000, 400)
	torn := a[1]
	torn.FileSize = 700
	device := a[1]
	device.FileSize = UnknownPartSize
	twice := a[1]
	twice.Name = "copy"
	for sentence, c := range map[string]struct {
		files []PartFile
		want  string
	}{
		"all":             {[]PartFile{a[2], a[0], a[1]}, ""},
		"one on a device": {[]PartFile{a[0], device, a[2]}, ""},
		"one missing":     {[]PartFile{a[0], a[2]}, "part 2 of 3 is missing: add it, or the medium that has it"},
		"two missing":     {[]PartFile{a[1]}, "parts 1, 3 of 3 are missing"},
		"the last":        {[]PartFile{a[0], a[1]}, "part 3 of 3 is missing"},
		"doubled":         {[]PartFile{a[0], a[1], a[2], twice}, "part 2 of 3 is there twice, as f2 and copy: remove one of them"},
		"torn":            {[]PartFile{a[0], torn, a[2]}, "part 2 of 3 (f2) has 700 bytes, 912 expected: copy it again"},
		"swapped":         {[]PartFile{a[0], b[1], a[2]}, "part 2 of 3 is missing: add it, or the medium that has it (part 2 of 3 (f2) is of another split, of bundle " + b[0].Bundle + ")"},
	} {
		groups := GroupParts(c.files)
		err := CheckParts(groups[0], groups[1:])
		if c.want == "" && (err != nil || len(groups) != 1) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", sentence, err)
		}
	}
	many := splitOf(t, DigestOf(nil), MaxParts, 1)
	if err := CheckParts(many[:1], nil); err == nil || !strings.Contains(err.Error(), "parts 2, 3, 4, 5, 6, 7, 8, 9, 247 more of 256 are missing") {
		t.Error(err)
	}
}

// Any bytes are no part, an error, or exactly the header that the part has.
func FuzzParsePart(f *testing.F) {
	for _, p := range splitOf(f, DigestOf(nil), 1000, 400) {
		f.Add(p.Header())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParsePart(b)
		if err != nil {
			return
		}
		if !bytes.Equal(p.Header(), b[:PartHeaderSize]) || p.Offset < 0 || p.Length < 1 || p.Offset+p.Length > p.Size {
			t.Fatalf("%+v", p)
		}
	})
}
