package bundledelta_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/pipeline/bundle/bundledelta"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// write writes a bundle to a file.
func write(t testing.TB, path string, s bundletest.Spec) []byte {
	t.Helper()
	b := bundletest.Bytes(t, s, bundletest.Key(1))
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return b
}

func open(t testing.TB, path string) *bundlereader.File {
	t.Helper()
	f, err := bundlereader.OpenPath(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// pair writes an old and a new bundle, and the delta between them, to a directory.
type pair struct {
	dir      string
	old, new []byte
}

func (p pair) path(name string) string { return filepath.Join(p.dir, name) }

func makePair(t testing.TB, old, new bundletest.Spec) pair {
	t.Helper()
	p := pair{dir: t.TempDir()}
	p.old, p.new = write(t, p.path("old"), old), write(t, p.path("new"), new)
	if err := bundledelta.Create(context.Background(), open(t, p.path("old")), open(t, p.path("new")), p.path("delta"), nil); err != nil {
		t.Fatal(err)
	}
	return p
}

func restore(t testing.TB, base, delta, out string) error {
	t.Helper()
	d, err := bundledelta.OpenPath(delta)
	if err != nil {
		return err
	}
	defer d.Close()
	f, err := bundlereader.OpenPath(base)
	if err != nil {
		return err
	}
	defer f.Close()
	return bundledelta.Restore(context.Background(), f, d, out, nil)
}

func (p pair) check(t testing.TB) {
	t.Helper()
	if err := restore(t, p.path("old"), p.path("delta"), p.path("again")); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(p.path("again"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, p.new) {
		t.Errorf("restored %d bytes, which are not the %d of the bundle", len(got), len(p.new))
	}
	files, err := os.ReadDir(p.dir)
	if err != nil || len(files) != 4 {
		t.Errorf("other files are left: %v %v", files, err)
	}
}

// layer is a tar of files, in gzip of a level; 99 leaves it as it is.
func layer(t testing.TB, r *rand.Rand, level int, files ...[]byte) []byte {
	t.Helper()
	var raw bytes.Buffer
	tw := tar.NewWriter(&raw)
	for i, f := range files {
		if err := tw.WriteHeader(&tar.Header{Name: fmt.Sprintf("usr/lib/f%d-%d", i, r.IntN(9)), Mode: 0o644, Size: int64(len(f))}); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	if level == 99 {
		return raw.Bytes()
	}
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, level)
	if err == nil {
		z.Name, z.Comment, z.Extra = "layer.tar", "of a test", []byte("extra")
		_, err = z.Write(raw.Bytes())
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// edit changes a content in some places: bytes replaced, inserted, removed, moved.
func edit(r *rand.Rand, b []byte) []byte {
	b = bytes.Clone(b)
	for range r.IntN(12) {
		if len(b) < 2 {
			return append(b, noise(r, 10)...)
		}
		i := r.IntN(len(b))
		j := i + r.IntN(min(len(b)-i, 3000))
		switch r.IntN(5) {
		case 0:
			b[i]++
		case 1:
			b = append(b[:i:i], append(noise(r, r.IntN(2000)), b[i:]...)...)
		case 2:
			b = append(b[:i:i], b[j:]...)
		case 3:
			for k := i; k < j; k += 1 + r.IntN(20) {
				b[k] += 4
			}
		case 4:
			b = append(b, b[i:j]...)
		}
	}
	return b
}

// randomPair returns two bundles that have something in common, or little.
func randomPair(t testing.TB, r *rand.Rand) (old, new bundletest.Spec) {
	t.Helper()
	levels := []int{99, 99, gzip.BestSpeed, gzip.DefaultCompression, gzip.BestCompression, gzip.HuffmanOnly, 4}
	old = bundletest.Spec{ChunkSize: 512 << r.IntN(8)}
	new = bundletest.Spec{Version: "1.0.1", ChunkSize: 512 << r.IntN(8)}
	for i := range 1 + r.IntN(4) {
		var a, b [][]byte
		for range 1 + r.IntN(3) {
			one := noise(r, r.IntN(30000))
			if r.IntN(3) == 0 {
				one = bytes.Repeat([]byte("the same words "), r.IntN(3000))
			}
			two, packA, packB := edit(r, one), levels[r.IntN(len(levels))], levels[r.IntN(len(levels))]
			switch r.IntN(6) {
			case 0:
				two, packB = one, packA
			case 1:
				a = append(a, layer(t, r, packA, one))
				b = append(b, noise(r, r.IntN(5000)), nil)
				continue
			}
			a = append(a, layer(t, r, packA, one, two[:len(two)/2]))
			b = append(b, layer(t, r, packB, two, one[len(one)/2:]))
		}
		old.Images = append(old.Images, bundletest.Image{Name: fmt.Sprintf("registry.example/app%d:1", i), Layers: a})
		new.Images = append(new.Images, bundletest.Image{Name: fmt.Sprintf("registry.example/app%d:2", i), Layers: b})
	}
	kubelet := noise(r, 50000+r.IntN(200000))
	old.Payloads = []bundletest.Payload{{Name: "kubelet", Version: "v1.36.2", Content: kubelet}}
	new.Payloads = []bundletest.Payload{{Name: "kubelet", Version: "v1.36.3", Content: edit(r, kubelet)}}
	return old, new
}

// For random bundles, the restored bundle has the bytes of the one that was compared.
func TestRestoredBundleIsIdentical(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			old, new := randomPair(t, rand.New(rand.NewPCG(seed, 1)))
			makePair(t, old, new).check(t)
		})
	}
}

// similarPair is two bundles with patches of every kind.
func similarPair(t testing.TB, kubelet int) (old, new bundletest.Spec) {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 7))
	program, text := noise(r, 200000), bytes.Repeat([]byte("some text that packs well, "), 4000)
	changed := bytes.Clone(program)
	for i := 1000; i < len(changed); i += 700 {
		changed[i] += 3
	}
	base := noise(r, kubelet)
	newBase := append(append(bytes.Clone(base[:kubelet/2]), "inserted"...), base[kubelet/2:]...)
	old = bundletest.Spec{ChunkSize: 4096, Images: []bundletest.Image{{Name: "registry.example/app:1", Layers: [][]byte{layer(t, r, 6, program, text), layer(t, r, 99, text)}}},
		Payloads: []bundletest.Payload{{Name: "kubelet", Content: base}}}
	new = bundletest.Spec{ChunkSize: 4096, Version: "1.0.1", Images: []bundletest.Image{{Name: "registry.example/app:2", Layers: [][]byte{layer(t, r, 6, changed, text), layer(t, r, 99, text, []byte("more")), noise(r, 3000)}}},
		Payloads: []bundletest.Payload{{Name: "kubelet", Content: newBase}}}
	return old, new
}

func TestSmallChangesMakeASmallDelta(t *testing.T) {
	t.Parallel()
	old, new := similarPair(t, 300000)
	p := makePair(t, old, new)
	p.check(t)
	d, err := bundledelta.OpenPath(p.path("delta"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Size()*100 > int64(len(p.new))*9 {
		t.Errorf("the delta has %d bytes, the bundle %d", d.Size(), len(p.new))
	}
	kinds := map[string]int{}
	for i := range d.Target().Metadata.Blobs {
		_, kind := d.Blob(i)
		kinds[kind]++
	}
	if kinds[bundledelta.KindPatched] < 3 || kinds[bundledelta.KindNew] == 0 {
		t.Errorf("kinds of blobs: %v", kinds)
	}
	if err := d.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// The same bundle, and one that shares nothing.
func TestExtremeDeltas(t *testing.T) {
	t.Parallel()
	old, new := similarPair(t, 1000)
	makePair(t, old, old).check(t)
	makePair(t, bundletest.Tiny(), new).check(t)
	makePair(t, new, bundletest.Tiny()).check(t)
	empty := bundletest.Spec{Version: "3.0.0"}
	makePair(t, empty, new).check(t)
	makePair(t, new, empty).check(t)
}

func TestWrongBase(t *testing.T) {
	t.Parallel()
	old, new := similarPair(t, 1000)
	p := makePair(t, old, new)
	other := write(t, p.path("other"), bundletest.Tiny())
	var wrong *bundledelta.BaseError
	err := restore(t, p.path("other"), p.path("delta"), p.path("again"))
	if !errors.As(err, &wrong) || !strings.Contains(err.Error(), wrong.Want) || !strings.Contains(err.Error(), wrong.Found) || wrong.Want == wrong.Found {
		t.Errorf("other base: %v", err)
	}
	_ = other
	// a base of the right digest, with a byte that is wrong in each of some places
	for at := len(p.old) / 4; at < len(p.old)-2000; at += len(p.old) / 9 {
		bad := bytes.Clone(p.old)
		bad[at] ^= 1
		if err := os.WriteFile(p.path("bad"), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		err := restore(t, p.path("bad"), p.path("delta"), p.path("again"))
		if err == nil {
			got, _ := os.ReadFile(p.path("again"))
			if !bytes.Equal(got, p.new) {
				t.Errorf("byte %d: wrong file", at)
			}
			os.Remove(p.path("again"))
		} else if !strings.Contains(err.Error(), "base: bundle is damaged") {
			t.Errorf("byte %d: %v", at, err)
		}
	}
	// cut
	if err := os.WriteFile(p.path("bad"), p.old[:len(p.old)-100], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := restore(t, p.path("bad"), p.path("delta"), p.path("again")); err == nil || !strings.Contains(err.Error(), "not copied completely") {
		t.Errorf("cut base: %v", err)
	}
}

// Commands that meet a delta say what it is and what to do. The search of the agent finds it.
func TestFullBundleIsNeeded(t *testing.T) {
	t.Parallel()
	old, new := similarPair(t, 1000)
	p := makePair(t, old, new)
	target := open(t, p.path("new")).Header().Digest
	for name, open := range map[string]func() error{
		"open":    func() error { _, err := bundlereader.OpenPath(p.path("delta")); return err },
		"summary": func() error { _, _, err := bundlereader.SummaryPath(p.path("delta")); return err },
		"list":    func() error { _, err := bundlereader.ListPath(p.path("delta")); return err },
		"raw":     func() error { _, err := bundlereader.OpenRaw(p.path("delta")); return err },
	} {
		if err := open(); err == nil || !strings.Contains(err.Error(), "it is a delta") || !strings.Contains(err.Error(), target) || !strings.Contains(err.Error(), "refit bundle restore") {
			t.Errorf("%s: %v", name, err)
		}
	}
	raw, err := os.ReadFile(p.path("delta"))
	if err != nil {
		t.Fatal(err)
	}
	found := bundlereader.Search(context.Background(), bytes.NewReader(raw), int64(len(raw)))
	if len(found.Deltas) != 1 || found.Problems != nil {
		t.Fatalf("%+v", found)
	}
	base, h, err := bundledelta.Summary(found.Deltas[0].Reader(), found.Deltas[0].Size())
	if err != nil || base != open(t, p.path("old")).Header().Digest || h.Digest != target {
		t.Errorf("%s %+v, %v", base, h, err)
	}
}

func TestOutputAndInterruption(t *testing.T) {
	t.Parallel()
	old, new := similarPair(t, 1000)
	p := makePair(t, old, new)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d, err := bundledelta.OpenPath(p.path("delta"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := bundledelta.Restore(ctx, open(t, p.path("old")), d, p.path("again"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("restore: %v", err)
	}
	if err := bundledelta.Create(ctx, open(t, p.path("old")), open(t, p.path("new")), p.path("delta2"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("create: %v", err)
	}
	if err := bundledelta.Restore(t.Context(), open(t, p.path("old")), d, p.path("missing/again"), nil); err == nil || !strings.Contains(err.Error(), "output") {
		t.Errorf("no directory: %v", err)
	}
	if files, _ := os.ReadDir(p.dir); len(files) != 3 {
		t.Errorf("files are left: %v", files)
	}
	// what an earlier run left does not matter
	if err := os.WriteFile(p.path("again.partial"), noise(rand.New(rand.NewPCG(1, 1)), len(p.new)+5000), 0o600); err != nil {
		t.Fatal(err)
	}
	p.check(t)
}

// The same bundles give the same delta.
func TestSameDelta(t *testing.T) {
	t.Parallel()
	old, new := similarPair(t, 50000)
	var all [2][]byte
	for i := range all {
		f, err := os.Open(makePair(t, old, new).path("delta"))
		if err != nil {
			t.Fatal(err)
		}
		all[i], err = io.ReadAll(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(all[0], all[1]) {
		t.Error("two deltas of the same bundles differ")
	}
}
