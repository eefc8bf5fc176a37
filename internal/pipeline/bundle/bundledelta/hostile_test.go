package bundledelta

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// forged is a delta whose parts a test changes; then it is put together with right digests.
type forged struct {
	dir    string
	pre    preamble
	header []byte // packed
	data   []byte
	plan   []byte // not packed
	packed []byte // the plan, if a test packs it itself
}

func zip(t testing.TB, b []byte, o ...zstd.EOption) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil, append(o, zstd.WithEncoderConcurrency(1))...)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	return z.EncodeAll(b, nil)
}

// specs are bundles whose delta has a patch of a layer in place 2 of the plan.
func specs() (old, new bundletest.Spec) {
	text := []byte(strings.Repeat("0123456789 abcdefghijkl some words of a layer\n", 400))
	for i := range text {
		text[i] += byte(i / 997)
	}
	changed := append(bytes.Clone(text), "the end"...)
	changed[5000] = 'X'
	return bundletest.Spec{Images: []bundletest.Image{{Name: "registry.example/app:1", Layers: [][]byte{text}}}},
		bundletest.Spec{Version: "1.0.1", Images: []bundletest.Image{{Name: "registry.example/app:1", Layers: [][]byte{changed}}}}
}

func forge(t testing.TB) *forged {
	t.Helper()
	old, new := specs()
	return forgeOf(t, old, new)
}

func forgeOf(t testing.TB, old, new bundletest.Spec) *forged {
	t.Helper()
	f := &forged{dir: t.TempDir()}
	for name, s := range map[string]bundletest.Spec{"old": old, "new": new} {
		if err := os.WriteFile(filepath.Join(f.dir, name), bundletest.Bytes(t, s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	base, target := f.open(t, "old"), f.open(t, "new")
	if err := Create(context.Background(), base, target, filepath.Join(f.dir, "delta"), nil); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(f.dir, "delta"))
	if err != nil {
		t.Fatal(err)
	}
	if f.pre, err = parsePreamble(b); err != nil {
		t.Fatal(err)
	}
	rest := b[preambleSize:]
	f.header, rest = rest[:f.pre.Header.Length], rest[f.pre.Header.Length:]
	f.data, rest = rest[:f.pre.Data.Length], rest[f.pre.Data.Length:]
	z, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	if f.plan, err = z.DecodeAll(rest, nil); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *forged) open(t testing.TB, name string) *bundlereader.File {
	t.Helper()
	b, err := bundlereader.OpenPath(filepath.Join(f.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// bytes puts the delta together.
func (f *forged) bytes(t testing.TB) []byte {
	packed := f.packed
	if packed == nil {
		packed = zip(t, f.plan)
		f.pre.Plan = section{int64(len(packed)), int64(len(f.plan)), bundle.DigestOf(f.plan)}
	}
	f.pre.Header.Length, f.pre.Plan.Length = int64(len(f.header)), int64(len(packed))
	f.pre.Data = section{int64(len(f.data)), int64(len(f.data)), bundle.DigestOf(f.data)}
	return bytes.Join([][]byte{f.pre.marshal(), f.header, f.data, packed}, nil)
}

// edit changes a piece of the plan.
func (f *forged) edit(t testing.TB, blob int, change func(p *piece)) {
	t.Helper()
	lines := bytes.SplitAfter(f.plan, []byte("\n"))
	var p piece
	if err := json.Unmarshal(lines[blob+1], &p); err != nil {
		t.Fatal(err)
	}
	change(&p)
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	lines[blob+1] = append(b, '\n')
	f.plan = bytes.Join(lines, nil)
}

// run opens and restores what was forged.
func (f *forged) run(t testing.TB, b []byte) error {
	t.Helper()
	d, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return err
	}
	return Restore(context.Background(), f.open(t, "old"), d, filepath.Join(f.dir, "again"), nil)
}

const patched = 2 // the layer: after manifest and config

// Deltas made by hand are refused, with a reason, in little memory, and leave no file.
func TestHostileDeltas(t *testing.T) {
	patchOf := func(change func(p *patch)) func(t *testing.T, f *forged) {
		return func(t *testing.T, f *forged) { f.edit(t, patched, func(p *piece) { change(p.Patch) }) }
	}
	for name, c := range map[string]struct {
		change func(t *testing.T, f *forged)
		want   string
	}{
		"a base that is not named":       {func(_ *testing.T, f *forged) { f.pre.Base = bundle.DigestOf([]byte("other")) }, "needs the base sha256:"},
		"another target":                 {func(_ *testing.T, f *forged) { f.pre.Target = bundle.DigestOf([]byte("other")) }, "expected sha256:"},
		"a header of 65 MiB":             {func(_ *testing.T, f *forged) { f.pre.Header.Size = 65 << 20 }, "more than the"},
		"a header that unpacks to 1 GiB": {func(t *testing.T, f *forged) { f.header = append(f.header, zip(t, make([]byte, 64<<20))...) }, "another size"},
		"a header with one byte more":    {func(_ *testing.T, f *forged) { f.pre.Header.Size++ }, "another size"},
		"a signature that is not the one": {func(_ *testing.T, f *forged) { f.pre.Header.Digest = bundle.DigestOf(nil) },
			"header of the bundle: has another digest"},
		"a target of 2^50 bytes":       {func(_ *testing.T, f *forged) { f.pre.Size = 1 << 50 }, "another size"},
		"a plan of 1 GiB":              {func(t *testing.T, f *forged) { f.packed = zip(t, f.plan); f.pre.Plan.Size = 1 << 30 }, "more than the"},
		"a plan of one long line":      {func(_ *testing.T, f *forged) { f.plan = bytes.Repeat([]byte(" "), 1<<20) }, "line cut or above"},
		"a plan with no lines":         {func(_ *testing.T, f *forged) { f.plan = nil }, "line cut"},
		"a plan with lines more":       {func(_ *testing.T, f *forged) { f.plan = append(f.plan, bytes.Repeat([]byte("{}\n"), 1<<20)...) }, "more lines than blobs"},
		"a large zstd window":          {func(t *testing.T, f *forged) { packLarge(t, f) }, "window size exceeded"},
		"two kinds in one piece":       {func(t *testing.T, f *forged) { f.edit(t, patched, func(p *piece) { zero := 0; p.Copy = &zero }) }, "wants one of"},
		"same in a delta of format 1":  {func(t *testing.T, f *forged) { f.edit(t, patched, func(p *piece) { *p = piece{Same: true} }) }, "same is of format 2"},
		"same and a copy":              {func(t *testing.T, f *forged) { sameBlob(t, f, 1, piece{Same: true, Copy: new(int)}) }, "wants one of"},
		"same of a blob of the target": {func(t *testing.T, f *forged) { sameBlob(t, f, patched, piece{Same: true}) }, "does not have 1 blob that the delta"},
		"no kind":                      {func(t *testing.T, f *forged) { f.edit(t, patched, func(p *piece) { p.Patch = nil }) }, "wants one of"},
		"a copy of another blob":       {func(t *testing.T, f *forged) { copyOf(t, f, 1) }, "is not blob 1 of the base"},
		"a copy of no blob":            {func(t *testing.T, f *forged) { copyOf(t, f, 1<<40) }, "of the base"},
		"a copy of a negative blob":    {func(t *testing.T, f *forged) { copyOf(t, f, -1) }, "blob -1"},
		"refs without end":             {patchOf(func(p *patch) { p.Refs = append(p.Refs, p.Refs[0], p.Refs[0], p.Refs[0], p.Refs[0]) }), "at most 4"},
		"a ref of 2^50 bytes":          {patchOf(func(p *patch) { p.Refs[0].Packed, p.Refs[0].Size = packedGzip, 1<<50 }), "needs "},
		"a ref with a negative size":   {patchOf(func(p *patch) { p.Refs[0].Size = -1 }), "-1 bytes"},
		"a ref packed in no known way": {patchOf(func(p *patch) { p.Refs[0].Packed = "xz" }), `packed by "xz"`},
		"a ref that is no gzip":        {patchOf(func(p *patch) { p.Refs[0].Packed = packedGzip }), "unpack blob"},
		"streams larger than the data": {patchOf(func(p *patch) { p.Control = 1 << 49 }), "more data than the delta has"},
		"streams whose sum overflows":  {patchOf(func(p *patch) { p.Control, p.Diff, p.Extra = math.MaxInt64, math.MaxInt64, 2 }), "are not from 0 to"},
		"streams that are shorter":     {patchOf(func(p *patch) { p.Extra-- }), "less data than the delta has"},
		"a patch of another size":      {patchOf(func(p *patch) { p.Size++ }), "a patch makes"},
		"an unknown gzip encoder":      {patchOf(func(p *patch) { p.Gzip = &recipe{Encoder: "x"} }), "not known: update refit"},
		"a gzip level of 99":           {patchOf(func(p *patch) { p.Gzip = &recipe{Encoder: "go", Level: 99} }), "cannot be made"},
		"a blob in gzip that is not":   {patchOf(func(p *patch) { p.Gzip = &recipe{Encoder: "go", Level: 6} }), "gzip packs it otherwise here"},
		"a gzip header of 5 KiB":       {patchOf(func(p *patch) { p.Gzip = &recipe{Encoder: "go", Level: 6, Header: make([]byte, 5<<10)} }), "a gzip header of"},
		"other data":                   {func(_ *testing.T, f *forged) { clear(f.data) }, "cannot be made"},
		"whole blobs for patches":      {func(t *testing.T, f *forged) { wholeBlob(t, f, make([]byte, 64<<20)) }, "other bytes: more than"},
		"a whole blob that is short":   {func(t *testing.T, f *forged) { wholeBlob(t, f, nil) }, "are missing"},
		"an operation beyond the old":  {func(t *testing.T, f *forged) { control(t, f, 0, 100, 1<<40) }, "outside the old bytes"},
		"an operation before the old":  {func(t *testing.T, f *forged) { control(t, f, 0, 100, -1) }, "outside the old bytes"},
		"a place that overflows":       {func(t *testing.T, f *forged) { control(t, f, 0, 100, math.MaxInt64) }, "outside the old bytes"},
		"a length that overflows":      {func(t *testing.T, f *forged) { control(t, f, math.MaxUint64, 1, 0) }, "more than"},
		"operations without bytes":     {func(t *testing.T, f *forged) { control(t, f, 0, 0, 0) }, "an operation without bytes"},
		"extra bytes that are missing": {func(t *testing.T, f *forged) { control(t, f, 9000, 0, 0) }, "ends early"},
	} {
		t.Run(name, func(t *testing.T) {
			f := forge(t)
			c.change(t, f)
			b := f.bytes(t)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := f.run(t, b)
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
				t.Errorf("%d MiB were allocated", used>>20)
			}
			for _, left := range []string{"again", "again.partial"} {
				if _, err := os.Stat(filepath.Join(f.dir, left)); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s is there: %v", left, err)
				}
			}
		})
	}
}

func copyOf(t *testing.T, f *forged, blob int) {
	f.edit(t, patched, func(p *piece) {
		f.data = f.data[:int64(len(f.data))-p.length()]
		*p = piece{Copy: &blob}
	})
}

// sameBlob makes a delta of format 2 of it, with a piece in the place of another one.
func sameBlob(t *testing.T, f *forged, blob int, same piece) {
	f.pre.format = sameVersion
	f.edit(t, blob, func(p *piece) {
		f.data = f.data[:int64(len(f.data))-p.length()]
		*p = same
	})
}

// wholeBlob puts a content in the place of the patch.
func wholeBlob(t *testing.T, f *forged, content []byte) {
	f.edit(t, patched, func(p *piece) {
		packed := zip(t, content)
		n := int64(len(packed))
		f.data = append(f.data[:int64(len(f.data))-p.length()], packed...)
		*p = piece{Data: &n}
	})
}

// control puts one operation, many times, in the place of the control stream.
func control(t *testing.T, f *forged, extra, diff uint64, seek int64) {
	f.edit(t, patched, func(p *piece) {
		line := binary.AppendUvarint(nil, extra)
		line = binary.AppendUvarint(line, diff)
		if diff > 0 {
			line = binary.AppendVarint(line, seek)
		}
		packed := zip(t, bytes.Repeat(line, 1000))
		from := int64(len(f.data)) - p.length()
		rest := bytes.Clone(f.data[from+p.Patch.Control:])
		f.data = append(append(f.data[:from:from], packed...), rest...)
		p.Patch.Control = int64(len(packed))
	})
}

// packLarge packs the plan with a window of 512 MiB: a frame without a content size that a
// decoder would have to reserve memory for.
func packLarge(t *testing.T, f *forged) {
	var out bytes.Buffer
	z, err := zstd.NewWriter(&out, zstd.WithWindowSize(512<<20), zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write(f.plan); err != nil {
		t.Fatal(err)
	}
	if err := z.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	f.pre.Plan.Size, f.pre.Plan.Digest = int64(len(f.plan)), bundle.DigestOf(f.plan)
	f.packed = out.Bytes()
}

// A delta with any byte changed, or cut anywhere, makes the same bundle or none.
func TestDamagedDelta(t *testing.T) {
	t.Parallel()
	f := forge(t)
	whole := f.bytes(t)
	want, err := os.ReadFile(filepath.Join(f.dir, "new"))
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(whole); at += 1 + at/40 {
		b := bytes.Clone(whole)
		b[at] ^= 0x41
		if err := f.run(t, b); err == nil {
			if got, _ := os.ReadFile(filepath.Join(f.dir, "again")); !bytes.Equal(got, want) {
				t.Fatalf("byte %d: another file", at)
			}
			if err := verify(b); at < preambleSize || err == nil {
				t.Errorf("byte %d: damage not found: %v", at, err)
			}
		}
		if err := f.run(t, whole[:at]); err == nil {
			t.Errorf("cut at byte %d: no error", at)
		}
	}
}

func verify(b []byte) error {
	d, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return err
	}
	return d.Verify(context.Background(), nil)
}

func TestNewerFormat(t *testing.T) {
	t.Parallel()
	var tooNew *TooNewError
	if _, err := parsePreamble([]byte(bundlereader.DeltaMagic + "4\n{}\n")); !errors.As(err, &tooNew) {
		t.Error(err)
	}
}

// apply makes new bytes of a patch in memory.
func apply(control, diff, extra, old []byte, size int64) ([]byte, error) {
	var out bytes.Buffer
	p := &patcher{control: bufio.NewReader(bytes.NewReader(control)), diff: bytes.NewReader(diff), extra: bytes.NewReader(extra),
		old: bytes.NewReader(old), oldSize: int64(len(old)), size: size}
	err := p.copyTo(&out)
	return out.Bytes(), err
}

// FuzzPatch: a patch of any two contents makes the new one.
func FuzzPatch(f *testing.F) {
	words := bytes.Repeat([]byte("words of a content that are in both, more or less; "), 20)
	f.Add(words, append([]byte("before "), words[:700]...))
	f.Add([]byte{}, words)
	f.Add(words, []byte{})
	f.Fuzz(func(t *testing.T, old, b []byte) {
		var control, diff, extra bytes.Buffer
		if err := writePatch(newIndex(old), b, patchStreams{&control, &diff, &extra}); err != nil {
			t.Fatal(err)
		}
		got, err := apply(control.Bytes(), diff.Bytes(), extra.Bytes(), old, int64(len(b)))
		if err != nil || !bytes.Equal(got, b) {
			t.Fatalf("%d bytes, want %d: %v", len(got), len(b), err)
		}
	})
}

// FuzzApply: a hostile patch gives at most the bytes that it says, or an error.
func FuzzApply(f *testing.F) {
	f.Add([]byte{0, 3, 0}, []byte{0, 0, 0}, []byte{}, uint16(3))
	f.Add([]byte{2, 0}, []byte{}, []byte("ab"), uint16(2))
	f.Fuzz(func(t *testing.T, control, diff, extra []byte, size uint16) {
		got, err := apply(control, diff, extra, []byte("some old bytes"), int64(size))
		if len(got) > int(size) || err == nil && len(got) != int(size) {
			t.Fatalf("%d bytes, want %d: %v", len(got), size, err)
		}
	})
}

// FuzzDelta: hostile bytes in the place of the plan or the data make the bundle or none.
func FuzzDelta(f *testing.F) {
	forged := forge(f)
	want, err := os.ReadFile(filepath.Join(forged.dir, "new"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(forged.plan, forged.data)
	for _, p := range []piece{{Copy: new(int)}, {Data: new(int64)}} {
		line, _ := json.Marshal(p)
		f.Add(fmt.Appendf(nil, "{}\n%s\n%s\n%s\n", line, line, line), forged.data)
	}
	f.Fuzz(func(t *testing.T, plan, data []byte) {
		c := *forged
		c.plan, c.data = plan, data
		err := c.run(t, c.bytes(t))
		got, readErr := os.ReadFile(filepath.Join(c.dir, "again"))
		if (err == nil) != (readErr == nil) || err == nil && !bytes.Equal(got, want) {
			t.Fatalf("%v, %d bytes", err, len(got))
		}
		_ = os.Remove(filepath.Join(c.dir, "again"))
	})
}

// FuzzPreamble: only what marshal makes is read.
func FuzzPreamble(f *testing.F) {
	f.Add(forge(f).pre.marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := parsePreamble(b); err == nil && !bytes.Equal(p.marshal(), b[:preambleSize]) {
			t.Fatal("another form")
		}
	})
}

// FuzzHead: a hostile head, and hostile data, give steps that write at most what the header says.
func FuzzHead(f *testing.F) {
	forged := forge(f)
	delta := forged.bytes(f)
	target := forged.pre.Target
	var head bytes.Buffer
	if err := UnpackHead(&head, bytes.NewReader(delta)); err != nil {
		f.Fatal(err)
	}
	if _, err := ParseHead(target, head.Bytes()); err != nil {
		f.Fatal(err)
	}
	dir := f.TempDir()
	f.Add(head.Bytes(), delta)
	f.Fuzz(func(t *testing.T, head, delta []byte) {
		d, err := ParseHead(target, head)
		if err != nil {
			return
		}
		for i, blob := range d.Target().Metadata.Blobs {
			s, ok := d.Step(i)
			if !ok || s.SpoolSize() > 1<<20 {
				continue
			}
			spool, err := fsutil.Unnamed(dir)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			err = s.Run(t.Context(), bytes.NewReader(delta), func(int) (io.Reader, error) { return bytes.NewReader(delta), nil }, spool, &out)
			spool.Close()
			if int64(out.Len()) > blob.Size || err == nil && int64(out.Len()) != blob.Size {
				t.Fatalf("%d bytes of %d, %v", out.Len(), blob.Size, err)
			}
		}
	})
}
