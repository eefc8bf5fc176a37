package bundledelta

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// program is a content that resembles a program, and a later version of it.
func program(size int) (old, new []byte) {
	r := rand.New(rand.NewPCG(5, 5))
	for len(old) < size {
		old = append(old, fmt.Sprintf("func%d\x00\x48\x89%c", r.IntN(500), rune(r.IntN(128)))...)
		if r.IntN(4) == 0 {
			old = append(old, byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32()))
		}
	}
	new = append(append(bytes.Clone(old[:size/3]), "a new function of the next version"...), old[size/3:]...)
	for i := 100; i < len(new); i += 3000 {
		new[i] += 7
	}
	return old, new
}

// layerSpecs are bundles with one layer each.
func layerSpecs(old, new []byte) (a, b bundletest.Spec) {
	return bundletest.Spec{Images: []bundletest.Image{{Name: "registry.example/app:1", Layers: [][]byte{old}}}},
		bundletest.Spec{Version: "1.0.1", Images: []bundletest.Image{{Name: "registry.example/app:1", Layers: [][]byte{new}}}}
}

// patchOf makes a delta of two layers, restores it, and returns the patch of the new layer; nil if the delta has the layer
// whole.
func patchOf(t *testing.T, old, new []byte) (*patch, int64) {
	t.Helper()
	a, b := layerSpecs(old, new)
	f := forgeOf(t, a, b)
	if err := f.run(t, f.bytes(t)); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(f.dir, "new"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(f.dir, "again")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes were restored, want %d: %v", len(got), len(want), err)
	}
	var p piece
	if err := json.Unmarshal(bytes.SplitAfter(f.plan, []byte("\n"))[patched+1], &p); err != nil {
		t.Fatal(err)
	}
	if version := map[bool]int{true: tokenVersion, false: formatVersion}[p.Patch != nil && p.Patch.Tokens != nil]; f.pre.format != version {
		t.Errorf("format %d, want %d", f.pre.format, version)
	}
	return p.Patch, p.length()
}

// Layers of any program are patched, and no encoder packs them again. Old and new may be of two programs.
func TestLayersOfAnyProgram(t *testing.T) {
	t.Parallel()
	old, new := program(200_000)
	all := packers(t)
	for _, c := range []struct{ old, new string }{
		{"GNU gzip -6", "GNU gzip -6"}, {"pigz", "pigz"}, {"zlib 6 1", "zlib 6 1"}, {"go 6", "go 6"}, {"klauspost 5", "klauspost 5"},
		{"two members", "two members"}, {"go with a name", "go with a name"}, {"zlib 6 0", "GNU gzip -6"},
	} {
		if all[c.old] == nil || all[c.new] == nil {
			continue
		}
		t.Run(c.old+" to "+c.new, func(t *testing.T) {
			packed := all[c.new](new)
			p, length := patchOf(t, all[c.old](old), packed)
			if p == nil || p.Tokens == nil || p.Gzip != nil || p.Refs[0].Tokens == 0 || length > int64(len(packed))/4 {
				t.Errorf("%+v, %d bytes of %d", p, length, len(packed))
			}
		})
	}
}

// Without tokens of the base, an encoder takes fewer bytes. Where there is none, tokens take fewer than the layer.
func TestLayersWithoutTokensOfTheBase(t *testing.T) {
	t.Parallel()
	old, new := program(100_000)
	all := packers(t)
	p, _ := patchOf(t, old, all["go 6"](new))
	if p == nil || p.Gzip == nil || p.Gzip.Encoder != "go" || p.Gzip.Level != 6 || p.Tokens != nil {
		t.Errorf("%+v", p)
	}
	packed := all["GNU gzip -9"](new)
	if p, length := patchOf(t, old, packed); p == nil || p.Tokens == nil || p.Refs[0].Tokens != 0 || length >= int64(len(packed)) {
		t.Errorf("%+v", p)
	}
}

// What cannot be made of tokens, and what no encoder makes, is whole: here a layer whose last byte has bits that are not zero.
func TestLayerThatNothingMakes(t *testing.T) {
	t.Parallel()
	old, new := program(30_000)
	var tokens bytes.Buffer
	if err := (&tokenWriter{w: &tokens}).close(len(new)); err != nil {
		t.Fatal(err)
	}
	packed, err := putTogether(new, tokens.Bytes(), framesOf(int64(len(new))), bufferSize)
	if err != nil {
		t.Fatal(err)
	}
	last := 9 + len(packed)
	packed = append([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0}, packed...)
	packed = binary.LittleEndian.AppendUint32(packed, crc32.ChecksumIEEE(new))
	packed = binary.LittleEndian.AppendUint32(packed, uint32(len(new)))
	before := packers(t)["go 6"](old)
	if p, _ := patchOf(t, before, packed); p == nil || p.Tokens == nil {
		t.Errorf("%+v", p)
	}
	packed[last] |= 0x80
	if got, _, _, err := takeApart(packed); err != nil || !bytes.Equal(got, new) {
		t.Fatalf("the bit has a meaning: %v", err)
	}
	if p, _ := patchOf(t, before, packed); p != nil {
		t.Errorf("%+v", p)
	}
}

// Hostile plans of tokens are refused.
func TestHostileTokens(t *testing.T) {
	old, new := program(60_000)
	pack := packers(t)["go 6"]
	a, b := layerSpecs(pack(old), pack(new))
	whole := forgeOf(t, a, b)
	for name, c := range map[string]struct {
		change func(f *forged, p *patch)
		want   string
	}{
		"tokens in a delta of format 2":   {func(f *forged, _ *patch) { f.pre.format = sameVersion }, "tokens are of format 3"},
		"tokens and an encoder":           {func(_ *forged, p *patch) { p.Gzip = &recipe{Encoder: "go", Level: 6} }, "or what packs it"},
		"tokens of the base only":         {func(_ *forged, p *patch) { p.Tokens, p.Extra = nil, p.Extra+p.Tokens.length()+p.Tokens.Frames }, "or what packs it"},
		"a part of a record":              {func(_ *forged, p *patch) { p.Tokens.Size++ }, "bytes of tokens for"},
		"more records than content":       {func(_ *forged, p *patch) { p.Tokens.Size = 1 << 40 }, "bytes of tokens for"},
		"tokens of 2^50 bytes":            {func(_ *forged, p *patch) { p.Refs[0].Tokens = 1 << 50 }, "bytes of tokens"},
		"fewer tokens of the base":        {func(_ *forged, p *patch) { p.Refs[0].Tokens -= recordSize }, "more bytes than are expected"},
		"more tokens of the base":         {func(_ *forged, p *patch) { p.Refs[0].Tokens += recordSize }, "of tokens are missing"},
		"content that is longer":          {func(_ *forged, p *patch) { p.Refs[0].Size++ }, "are missing"},
		"a base that has no tokens":       {func(_ *forged, p *patch) { p.Refs[0].Packed = "" }, "bytes of tokens"},
		"a negative length":               {func(_ *forged, p *patch) { p.Tokens.Frames = -1 }, "-1 bytes"},
		"one record less":                 {func(_ *forged, p *patch) { p.Tokens.Size -= recordSize }, "patch is damaged"},
		"streams in other places":         {func(_ *forged, p *patch) { p.Tokens.Extra, p.Tokens.Frames = p.Tokens.Extra-1, p.Tokens.Frames+1 }, "cannot be made"},
		"frames that are not there":       {func(_ *forged, p *patch) { p.Extra, p.Tokens.Frames = p.Extra+p.Tokens.Frames, 0 }, "cannot be made"},
		"a large window of token streams": {func(f *forged, p *patch) { largeWindow(t, f, p) }, "window size exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			f := *whole
			f.edit(t, patched, func(p *piece) { c.change(&f, p.Patch) })
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := f.run(t, f.bytes(t))
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

// Damage of the data of tokens makes the same bundle or none.
func TestDamagedTokens(t *testing.T) {
	t.Parallel()
	old, new := program(30_000)
	pack := packers(t)["klauspost 1"]
	a, b := layerSpecs(pack(old), pack(new))
	f := forgeOf(t, a, b)
	want, err := os.ReadFile(filepath.Join(f.dir, "new"))
	if err != nil {
		t.Fatal(err)
	}
	data := f.data
	for at := 0; at < len(data); at += 1 + len(data)/200 {
		f.data = bytes.Clone(data)
		f.data[at] ^= 0x41
		if err := f.run(t, f.bytes(t)); err == nil {
			if got, err := os.ReadFile(filepath.Join(f.dir, "again")); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("byte %d: another file: %v", at, err)
			}
			os.Remove(filepath.Join(f.dir, "again"))
		}
	}
}

// largeWindow packs the frames with a window of 8 MiB.
func largeWindow(t *testing.T, f *forged, p *patch) {
	at := int64(len(f.data)) - p.Tokens.Frames
	var out bytes.Buffer
	z, err := zstd.NewWriter(&out, zstd.WithWindowSize(window), zstd.WithEncoderConcurrency(1))
	if err == nil {
		_, err = z.Write(make([]byte, 100))
	}
	if err = errors.Join(err, z.Flush(), z.Close()); err != nil {
		t.Fatal(err)
	}
	f.data = append(bytes.Clone(f.data[:at]), out.Bytes()...)
	p.Tokens.Frames = int64(out.Len())
}
