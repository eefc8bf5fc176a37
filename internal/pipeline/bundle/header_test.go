package bundle_test

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// header cuts the header off a bundle file, as a reader does.
func header(t testing.TB, file []byte) []byte {
	t.Helper()
	n, err := bundle.HeaderSize(file)
	if err != nil || n > int64(len(file)) {
		t.Fatalf("HeaderSize = %d, %v", n, err)
	}
	return file[:n]
}

func parse(t testing.TB, file []byte) *bundle.Header {
	t.Helper()
	h, err := bundle.ParseHeader(header(t, file))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// anySpec draws a bundle: shared, empty and large layers, several payloads.
func anySpec(t *rapid.T) bundletest.Spec {
	layer := rapid.SliceOfN(rapid.Byte(), 0, 1700)
	pool := rapid.SliceOfN(layer, 1, 5).Draw(t, "layers")
	s := bundletest.Spec{ChunkSize: int64(rapid.IntRange(bundle.MinChunkSize, 1300).Draw(t, "chunk size"))}
	for i := range rapid.IntRange(0, 4).Draw(t, "images") {
		img := bundletest.Image{Name: fmt.Sprintf("registry.example/team/app%d:v%d", i, i)}
		for range rapid.IntRange(0, 3).Draw(t, "layers of image") {
			img.Layers = append(img.Layers, rapid.SampledFrom(pool).Draw(t, "layer"))
		}
		s.Images = append(s.Images, img)
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "payloads") {
		s.Payloads = append(s.Payloads, bundletest.Payload{Name: fmt.Sprintf("tool%d", i), Content: rapid.SampledFrom(pool).Draw(t, "content")})
	}
	return s
}

// An ordinary tar reader finds the very bytes that the header says, at
// the offsets that it says.
func TestAnyBundleReadsBackAsWritten(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := anySpec(rt)
		p := bundletest.Make(t, s)
		file := bundletest.Bytes(t, s, bundletest.Key(1))
		h := parse(t, file)
		if diff := cmp.Diff(&p.Meta, h.Metadata); diff != "" {
			rt.Fatalf("metadata: %s", diff)
		}
		if h.FileSize() != int64(len(file)) {
			rt.Fatalf("FileSize = %d, the file has %d", h.FileSize(), len(file))
		}
		for i, content := range p.Blobs {
			at := h.BlobOffset(i)
			if !bytes.Equal(file[at:at+int64(len(content))], content) {
				rt.Fatalf("blob %d is not at %d", i, at)
			}
		}
		names := tarNames(rt, file)
		if want := 7 + len(p.Blobs); len(names) != want || names[0] != "oci-layout" || names[1] != "index.json" || names[3] != "refit-signatures.json" {
			rt.Fatalf("entries: %v", names)
		}
	})
}

func tarNames(t rapid.TB, file []byte) []string {
	var names []string
	tr := tar.NewReader(bytes.NewReader(file))
	for {
		e, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatalf("an ordinary tar reader: %v", err)
		}
		if e.Mode != 0o644 || e.Uid != 0 || e.ModTime.Unix() != 0 || e.Typeflag != tar.TypeReg {
			t.Fatalf("entry %s: %+v", e.Name, e)
		}
		b, err := io.ReadAll(tr)
		if err != nil {
			t.Fatalf("%s: %v", e.Name, err)
		}
		if hex, ok := strings.CutPrefix(e.Name, "blobs/sha256/"); ok && bundle.DigestOf(b) != "sha256:"+hex {
			t.Fatalf("%s has digest %s", e.Name, bundle.DigestOf(b))
		}
		names = append(names, e.Name)
	}
}

// However a reader's steps fall, HeaderSize leads it to the same header.
func TestHeaderSizeFromAnyPrefix(t *testing.T) {
	file := bundletest.Bytes(t, bundletest.Tiny())
	want := int64(len(header(t, file)))
	for n := range file {
		need, err := bundle.HeaderSize(file[:n])
		if err != nil {
			t.Fatalf("prefix of %d bytes: %v", n, err)
		}
		if int64(n) >= want && need != want || int64(n) < want && (need <= int64(n) || need > want) {
			t.Fatalf("prefix of %d bytes: needs %d, the header has %d", n, need, want)
		}
	}
}

func TestOtherThingsAreNoBundles(t *testing.T) {
	var other bytes.Buffer
	w := tar.NewWriter(&other)
	for _, name := range []string{"oci-layout", "blobs/x"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: 3, Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("abc")); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	foreign := bundletest.Bytes(t, bundletest.Tiny())
	h := bundle.TarHeader("manifest.json", 30)
	foreign = append(bytes.Clone(foreign[:1024]), h[:]...)
	for name, b := range map[string][]byte{
		"zeros":                              make([]byte, 4096),
		"an ELF program":                     append([]byte("\x7fELF"), make([]byte, 4096)...),
		"another tar":                        other.Bytes(),
		"an OCI archive that refit made not": foreign,
		"text":                               []byte("hello"),
	} {
		if _, err := bundle.HeaderSize(b); !errors.Is(err, bundle.ErrNotBundle) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Hostile metadata is refused with an error that says why. It never becomes an index, a
// size, a path or a line on a terminal.
func TestHostileMetadataIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*bundletest.Parts)
		want  string
	}{
		"a payload that climbs out of its folder": {func(p *bundletest.Parts) { p.Meta.Payloads[0].Name = "../../etc/passwd" }, "bad payload name"},
		"a payload with a slash":                  {func(p *bundletest.Parts) { p.Meta.Payloads[0].Name = "a/b" }, "bad payload name"},
		"a set-user-id payload":                   {func(p *bundletest.Parts) { p.Meta.Payloads[0].Mode = 0o4755 }, "mode"},
		"a payload of a blob that is not there":   {func(p *bundletest.Parts) { p.Meta.Payloads[0].Blob = 99 }, "no blob 99"},
		"a payload of another blob":               {func(p *bundletest.Parts) { p.Meta.Payloads[0].Blob = 0 }, "is not that of blob 0"},
		"a payload twice":                         {func(p *bundletest.Parts) { p.Meta.Payloads = append(p.Meta.Payloads, p.Meta.Payloads[0]) }, "not in order"},
		"an image index below zero":               {func(p *bundletest.Parts) { p.Meta.Images[0].Blobs[0] = -1 }, "manifest"},
		"an image with blobs out of order":        {func(p *bundletest.Parts) { b := p.Meta.Images[0].Blobs; b[0], b[1] = b[1], b[0] }, "not in order"},
		"an image with a wrong size":              {func(p *bundletest.Parts) { p.Meta.Images[0].Size++ }, "its blobs have"},
		"a negative unpacked size":                {func(p *bundletest.Parts) { p.Meta.Images[0].UnpackedSize = -1 }, "unpacked size"},
		"an image name with an escape sequence":   {func(p *bundletest.Parts) { p.Meta.Images[0].Name = "a\x1b[2J/b:1" }, "bad image name"},
		"images out of order":                     {func(p *bundletest.Parts) { i := p.Meta.Images; i[0], i[1] = i[1], i[0] }, "not in order"},
		"a bundle name with a newline":            {func(p *bundletest.Parts) { p.Meta.Name = "a\nb" }, "bad bundle name"},
		"no version":                              {func(p *bundletest.Parts) { p.Meta.Version = "" }, "not a semantic version"},
		"chunks of no bytes":                      {func(p *bundletest.Parts) { p.Meta.ChunkSize = 0 }, "chunk size"},
		"chunks larger than memory":               {func(p *bundletest.Parts) { p.Meta.ChunkSize = 1 << 60 }, "chunk size"},
		"a blob larger than any disk":             {func(p *bundletest.Parts) { p.Meta.Blobs[2].Size = 1 << 62 }, "bad size"},
		"a negative blob":                         {func(p *bundletest.Parts) { p.Meta.Blobs[2].Size = -5 }, "bad size"},
		"a blob twice":                            {func(p *bundletest.Parts) { p.Meta.Blobs[2] = p.Meta.Blobs[1] }, "twice"},
		"a digest that is a path":                 {func(p *bundletest.Parts) { p.Meta.Blobs[2].Digest = "sha256:../../x" }, "bad digest"},
		"a platform with a space":                 {func(p *bundletest.Parts) { p.Meta.Platforms = []string{"linux amd64"} }, "bad platform"},
		"a chunk table that is too short":         {func(p *bundletest.Parts) { p.Table = p.Table[bundle.HashSize:] }, "chunk"},
		"a chunk table that is too long":          {func(p *bundletest.Parts) { p.Table = append(p.Table, p.Table[:bundle.HashSize]...) }, "chunk"},
		"a chunk table of other bytes":            {func(p *bundletest.Parts) { p.Table[len(p.Table)-1] ^= 1 }, "one chunk, whose digest differs"},
		"format version 0":                        {func(p *bundletest.Parts) { p.Meta.FormatVersion = 0 }, "format version 0"},
	} {
		t.Run(name, func(t *testing.T) {
			p := bundletest.Make(t, bundletest.Tiny())
			c.spoil(&p)
			raw, err := bundle.Marshal(&p.Meta, p.Table)
			if err == nil {
				_, err = bundle.ParseHeader(raw)
				var corrupt *bundle.CorruptError
				if !errors.As(err, &corrupt) {
					t.Fatalf("got %v", err)
				}
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Fatalf("got %v, want a sentence with %q", err, c.want)
			}
		})
	}
}

// A length in an unchecked header costs no memory before its bytes came.
func TestHostileLengthsAreRefused(t *testing.T) {
	file := bundletest.Bytes(t, bundletest.Tiny())
	for name, size := range map[string]func([]byte){
		"a huge octal size":     func(f []byte) { copy(f, "77777777777\x00") },
		"a huge base-256 size":  func(f []byte) { f[0] = 0x80; binary.BigEndian.PutUint64(f[4:], 1<<61) },
		"a negative base-256":   func(f []byte) { f[0] = 0xff; binary.BigEndian.PutUint64(f[4:], 1<<63) },
		"letters":               func(f []byte) { copy(f, "size") },
		"just above the limit":  func(f []byte) { copy(f, "00040000001\x00") },
		"a size without digits": func(f []byte) { copy(f, "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00") },
	} {
		t.Run(name, func(t *testing.T) {
			b := bytes.Clone(file)
			at := 2048 + 1024 // some entry after index.json
			for ; string(b[at:at+13]) != "blobs/sha256/"; at += bundle.BlockSize {
			}
			size(b[at+124 : at+136])
			fixChecksum(b[at : at+bundle.BlockSize])
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := bundle.HeaderSize(b)
			_, errParse := bundle.ParseHeader(b[:16<<10])
			runtime.ReadMemStats(&after)
			if err == nil || errParse == nil {
				t.Fatalf("accepted: %v, %v", err, errParse)
			}
			if spent := after.TotalAlloc - before.TotalAlloc; spent > 1<<20 {
				t.Fatalf("cost %d bytes of memory", spent)
			}
		})
	}
}

func fixChecksum(h []byte) {
	copy(h[148:156], "        ")
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:156], fmt.Sprintf("%06o\x00 ", sum))
}

func TestLinksAndDevicesInTheHeaderAreRefused(t *testing.T) {
	file := bundletest.Bytes(t, bundletest.Tiny())
	for _, kind := range []byte("1234567xgLK\x00") {
		b := bytes.Clone(header(t, file))
		b[1024+156] = kind // index.json
		fixChecksum(b[1024 : 1024+bundle.BlockSize])
		if _, err := bundle.ParseHeader(b); err == nil {
			t.Errorf("an entry of type %q was accepted", kind)
		}
	}
}

func TestANewerFormatSaysWhatItNeeds(t *testing.T) {
	p := bundletest.Make(t, bundletest.Tiny())
	p.Meta.FormatVersion, p.Meta.MinRefit = 2, "3.0.0"
	_, err := bundle.ParseHeader(p.Header(t))
	var tooNew *bundle.TooNewError
	if !errors.As(err, &tooNew) || tooNew.FormatVersion != 2 || !strings.Contains(err.Error(), "3.0.0") {
		t.Fatalf("got %v", err)
	}
}

func TestHeaderLookUps(t *testing.T) {
	s := bundletest.Tiny()
	s.Payloads = append(s.Payloads, bundletest.Payload{Name: "any", Content: []byte("x")})
	h := parse(t, bundletest.Bytes(t, s))
	if i := h.ImageByName("registry.k8s.io/pause:3.10.2"); i == nil || i.Group != bundle.GroupNode {
		t.Errorf("pause: %+v", i)
	}
	if h.ImageByName("registry.k8s.io/pause:3.9") != nil {
		t.Error("found an image that is not there")
	}
	if p := h.PayloadByName("kubelet", "linux/amd64"); p == nil || p.Version != "v1.36.3" {
		t.Errorf("kubelet: %+v", p)
	}
	if h.PayloadByName("kubelet", "linux/arm64") != nil {
		t.Error("found a payload for another platform")
	}
	if h.PayloadByName("any", "linux/arm64") == nil {
		t.Error("a payload for any platform is not found for one")
	}
	shared := h.ImageByName("registry.example/app:1").Blobs[2]
	if got := h.UserOf(shared); got != "image registry.example/app:1 and 1 more" {
		t.Errorf("UserOf(shared layer) = %q", got)
	}
}

func TestSizesFrom8GiBAreWrittenBase256(t *testing.T) {
	for _, size := range []int64{0, 1, 1<<33 - 1, 1 << 33, 1 << 45} {
		h := bundle.TarHeader("blobs/sha256/x", size)
		got, err := tar.NewReader(bytes.NewReader(h[:])).Next()
		if err != nil || got.Size != size {
			t.Errorf("an ordinary tar reader reads size %d as %+v, %v", size, got, err)
		}
		if base256 := h[124] == 0x80; base256 != (size >= 1<<33) {
			t.Errorf("size %d: base-256 is %v", size, base256)
		}
	}
}

func FuzzParseHeader(f *testing.F) {
	valid := header(f, bundletest.Bytes(f, bundletest.Tiny(), bundletest.Key(1)))
	f.Add(valid)
	f.Add(header(f, bundletest.Bytes(f, bundletest.Spec{})))
	f.Add(valid[:700])
	f.Add([]byte{})
	spoiled := bytes.Clone(valid)
	spoiled[len(spoiled)-1] ^= 1
	f.Add(spoiled)
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := bundle.HeaderSize(b)
		if err == nil && (n <= 0 || n > bundle.MaxHeaderSize) {
			t.Fatalf("HeaderSize = %d", n)
		}
		h, err := bundle.ParseHeader(b)
		if err != nil {
			return
		}
		if n != int64(len(b)) {
			t.Fatalf("accepted %d bytes, HeaderSize says %d", len(b), n)
		}
		at := int64(len(b))
		for i, blob := range h.Metadata.Blobs {
			if h.BlobOffset(i) < at {
				t.Fatalf("blob %d overlaps", i)
			}
			at = h.BlobOffset(i) + blob.Size
		}
		if h.FileSize() < at+bundle.EndSize {
			t.Fatal("the file ends before its blobs")
		}
		for i := range h.Chunks.Len() {
			h.Chunks.Chunk(i)
		}
	})
}
