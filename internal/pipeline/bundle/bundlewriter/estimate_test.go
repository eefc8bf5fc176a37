package bundlewriter

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"
)

// textOf is n bytes that compress, with some that do not.
func textOf(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	out := make([]byte, n)
	for i := range out {
		out[i] = byte('a' + r.IntN(16))
		if i%1024 < 128 {
			out[i] = byte(r.IntN(256))
		}
	}
	return out
}

func gzipped(t testing.TB, members ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, m := range members {
		w := gzip.NewWriter(&b)
		if _, err := w.Write(m); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// zstdFrame is one frame, with the size of its content in the header or without.
func zstdFrame(t testing.TB, content []byte, sized bool) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if sized {
		return w.EncodeAll(content, nil)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func measureIn(t testing.TB, layer []byte, whole bool, pieces func(left int) int) (n int64, ok bool, full bool) {
	t.Helper()
	s := newSizer(int64(len(layer)), whole)
	for p := layer; len(p) > 0; {
		k := min(len(p), max(1, pieces(len(p))))
		if _, err := s.Write(p[:k]); err != nil {
			t.Fatal(err)
		}
		p = p[k:]
	}
	n, ok, err := s.finish(nil)
	if err != nil {
		t.Fatal(err)
	}
	return n, ok, s.full != nil
}

func TestSizesThatFormatsSay(t *testing.T) {
	t.Parallel()
	big, small := textOf(1, 3<<20), textOf(2, 10<<10)
	noise := make([]byte, 3<<20)
	r := rand.NewChaCha8([32]byte{})
	_, _ = r.Read(noise)
	var many [][]byte
	for i := range 200 {
		many = append(many, textOf(uint64(i), 20<<10))
	}
	for name, c := range map[string]struct {
		layer []byte
		want  int64
		ok    bool
		full  bool
		odd   bool // unpacking it fails, or says something else
	}{
		"gzip: the trailer":                      {gzipped(t, big), 3 << 20, true, false, false},
		"gzip of what cannot be compressed":      {gzipped(t, noise), 3 << 20, true, false, false},
		"gzip of many members is unpacked":       {gzipped(t, many...), 200 * 20 << 10, true, true, false},
		"gzip with padding after it: read again": {append(gzipped(t, big), make([]byte, 512)...), 0, false, false, true},
		"a small layer is unpacked":              {gzipped(t, small), 10 << 10, true, true, false},
		"zstd: the frame's header":               {zstdFrame(t, big, true), 3 << 20, true, false, false},
		"zstd in several frames":                 {append(zstdFrame(t, big, true), zstdFrame(t, noise, true)...), 6 << 20, true, false, false},
		"zstd of a writer that knew no size":     {zstdFrame(t, big, false), 3 << 20, true, true, false},
		"zstd whose second frame says no size":   {append(zstdFrame(t, big, true), zstdFrame(t, big, false)...), 3 << 20, false, false, true},
		"zstd that is cut":                       {zstdFrame(t, big, true)[:1<<20], 3 << 20, false, false, true},
		"a skippable frame says nothing":         {append([]byte{0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 9, 9}, zstdFrame(t, big, true)...), 3 << 20, true, false, true},
		"a tar without compression":              {big, 3 << 20, true, false, false},
		"a small tar":                            {small, 10 << 10, true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, ok, full := measureIn(t, c.layer, false, func(int) int { return 1 << 20 })
			if ok != c.ok || ok && n != c.want || full != c.full {
				t.Errorf("%d bytes, known %v, unpacked %v; want %d, %v, %v", n, ok, full, c.want, c.ok, c.full)
			}
			if c.odd {
				return
			}
			if n, ok, full := measureIn(t, c.layer, true, func(int) int { return 1 << 20 }); !ok || n != c.want || !full {
				t.Errorf("unpacked on request: %d bytes, known %v, unpacked %v", n, ok, full)
			}
		})
	}
}

// 32 bits cannot count what compresses very well: such a layer is unpacked.
func TestATrailerIsNotTrustedBeyondItsBits(t *testing.T) {
	t.Parallel()
	zeros := gzipped(t, make([]byte, 256<<20))[:headSize]
	for size, trusted := range map[int64]bool{300 << 10: true, 1 << 20: false, 4 << 20: false} {
		if got := trustedTail(zeros, size) != nil; got != trusted {
			t.Errorf("a layer of %d bytes of zeros: trusted %v", size, got)
		}
	}
	text := gzipped(t, textOf(1, 1<<20))[:headSize]
	if trustedTail(text, 200<<20) == nil {
		t.Error("a common layer of 200 MiB is not trusted")
	}
}

// However a layer is cut into writes, its size is the same.
func TestSizesDoNotDependOnWrites(t *testing.T) {
	t.Parallel()
	layers := [][]byte{gzipped(t, textOf(3, 1<<20)), zstdFrame(t, textOf(4, 1<<20), true), append(zstdFrame(t, textOf(5, 300<<10), true), zstdFrame(t, textOf(6, 1<<20), true)...)}
	want := []int64{1 << 20, 1 << 20, 300<<10 + 1<<20}
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.IntRange(0, len(layers)-1).Draw(t, "layer")
		most := rapid.SampledFrom([]int{1, 2, 3, 5, 17, 1000, 70000}).Draw(t, "most")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		s := newSizer(int64(len(layers[i])), false)
		for p := layers[i]; len(p) > 0; {
			k := min(len(p), 1+r.IntN(most))
			_, _ = s.Write(p[:k])
			p = p[k:]
		}
		if n, ok, err := s.finish(nil); err != nil || !ok || n != want[i] {
			t.Fatalf("%d, %v, %v; want %d", n, ok, err, want[i])
		}
	})
}

func FuzzZstdSize(f *testing.F) {
	f.Add(zstdFrame(f, textOf(7, 1000), true), 3)
	f.Fuzz(func(t *testing.T, layer []byte, piece int) {
		z := &zstdSize{}
		for p := layer; len(p) > 0; {
			k := min(len(p), max(1, piece))
			z.write(p[:k])
			p = p[k:]
		}
		whole := &zstdSize{}
		whole.write(layer)
		a, okA := z.size()
		b, okB := whole.size()
		if okA != okB || okA && a != b {
			t.Fatalf("in pieces %d %v, whole %d %v", a, okA, b, okB)
		}
	})
}
