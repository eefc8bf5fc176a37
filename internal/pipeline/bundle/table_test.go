package bundle

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// scanned is what the scanner makes of a document with every kind of member.
type scanned struct {
	A string
	N int64
	L []string
}

func scan(text string) (out scanned, err error) {
	s := newScanner(strings.NewReader(text))
	err = s.object(members{
		"a": s.text(&out.A),
		"n": s.number(&out.N),
		"l": func() error {
			return s.array(3, "words", func() error {
				word := ""
				err := s.often(&word)()
				out.L = append(out.L, word)
				return err
			})
		},
	})
	if err == nil {
		err = s.end()
	}
	return out, err
}

// The scanner agrees with the standard library about every document, and about each
// of them cut short or with one byte changed.
func TestScannerReadsJSON(t *testing.T) {
	t.Parallel()
	documents := []string{
		`{}`, `null`, ` { "a" : "x" , "n" : 12 , "l" : [ "p" , "q" , "p" ] } `, "\t\r\n{\"a\":\"x\"}\n", `{"a":null,"n":null,"l":null}`, `{"l":[]}`, `{"l":[null]}`,
		`{"a":"\u0041\n\"\\\/é😀","n":-9223372036854775808}`, `{"n":9223372036854775807}`, `{"n":0}`, `{"n":-0}`, `{"z":{"b":[1,2.5e-3,true,false,null,"t\"x",{}],"c":[[],[{}]]},"a":"after"}`,
		`{"z":1E+9,"y":-1.0}`, `{"z":"","a":""}`, `{"a":"` + strings.Repeat("x", maxText-2) + `"}`,
	}
	bad := []string{
		``, `[]`, `"a"`, `{`, `{"a"}`, `{"a":}`, `{"a":"x"`, `{"a":"x",}`, `{"a":"x"}}`, `{"a":"x"} {}`, `{"a" "x"}`, `{a:"x"}`, `{"n":1.5}`, `{"n":1e3}`, `{"n":9223372036854775808}`, `{"n":01}`, `{"n":+1}`, `{"n":-}`, `{"n":""}`,
		`{"n":.5}`, `{"n":}`, `{"l":["a" "b"]}`, `{"l":[,]}`, `{"l":["a",]}`, `{"l":{}}`, `{"a":1}`, `{"a":tru}`, `{"z":tru}`, `{"z":fals3}`, `{"z":nul}`, `{"z":01}`, `{"z":1.}`, `{"z":--1}`, `{"z":x}`, `{"z":[1 2]}`, `{"z":{"b"}}`, `{"z":{"b":1,}}`,
		"{\"a\":\"x\ny\"}", "{\"z\":\"x\ny\"}", `{"a":"\x"}`, `{"a":"\u12"}`, "{\"a\":\"\x1f\"}", "{\"z\":\"\x1f\"}", `{"z":"`, `{"z":"\`,
	}
	for _, doc := range documents {
		for i := range len(doc) {
			bad = append(bad, doc[:i])
		}
	}
	for _, doc := range append(documents, bad...) {
		var want struct {
			A *string `json:"a"`
			N *int64  `json:"n"`
			L []*string
		}
		err := json.Unmarshal([]byte(doc), &want)
		got, gotErr := scan(doc)
		if (err == nil) != (gotErr == nil) {
			t.Errorf("%.80q: %v, the standard library: %v", doc, gotErr, err)
			continue
		}
		if err != nil {
			continue
		}
		if want.A != nil && got.A != *want.A || want.N != nil && got.N != *want.N || len(got.L) != len(want.L) {
			t.Errorf("%.80q: %+v", doc, got)
		}
		for i, w := range want.L {
			if w != nil && got.L[i] != *w {
				t.Errorf("%.80q: %+v", doc, got)
			}
		}
	}
}

// What the standard library takes and a bundle may not have.
func TestScannerRefuses(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return `{"z":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}` }
	for text, says := range map[string]string{
		`{"a":"x","a":"x"}`:                            `has the member "a" twice`,
		`{"a":"x","\u0061":""}`:                        `has the member "a" twice`,
		`{"l":["1","2","3","4"]}`:                      "lists more than 3 words",
		`{"a":"` + strings.Repeat("x", maxText) + `"}`: "has a text of more than 1024 bytes",
		`{"` + strings.Repeat("x", maxText) + `":1}`:   "has a text of more than 1024 bytes",
		`{"n":` + strings.Repeat("1", 65) + `}`:        "has a number of more than 64 digits",
		`{"n":` + strings.Repeat("1", 64) + `}`:        "where a whole number of 64 bits belongs",
		`{"z":` + strings.Repeat("1", 65) + `}`:        "has a number of more than 64 digits",
		deep(maxDepth):                                 "more than 32 deep",
		`{"a":"x"`:                                     "ends early",
		`{"z":?}`:                                      `found '?', want a value`,
		`{"a":"x"]`:                                    `found ']', want a comma`,
		`{"a":"x"}x`:                                   `found 'x', want the end`,
	} {
		if out, err := scan(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.40q: %+v, %v, want %q", text, out, err, says)
		}
	}
	if _, err := scan(deep(maxDepth - 1)); err != nil {
		t.Error(err)
	}
	broken := newScanner(io.MultiReader(strings.NewReader(`{"a":"x`), failing{}))
	if err := broken.skip(); !errors.Is(err, errFailing) {
		t.Errorf("an error of the medium: %v", err)
	}
	for _, text := range []string{`{`, `{"a":`, `{"a":1`, `{"a":"\`} {
		var n int64
		s := newScanner(io.MultiReader(strings.NewReader(text), failing{}))
		if err := s.object(members{"a": s.number(&n)}); !errors.Is(err, errFailing) && !strings.Contains(text, `"\`) {
			t.Errorf("%q: %v", text, err)
		}
		s = newScanner(io.MultiReader(strings.NewReader(text), failing{}))
		if err := s.object(members{"a": s.text(new(string))}); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}

var errFailing = errors.New("the medium is gone")

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errFailing }

// The parts of a tar header and of names, at their edges.
func TestFormatEdges(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{0, 1, 511, 512, 1<<33 - 1, 1 << 33, 1<<62 - 1} {
		h := TarHeader("blobs/sha256/x", size)
		if name, got, err := tarEntry(h[:], 7); err != nil || got != size || name != "blobs/sha256/x" {
			t.Errorf("%d: %s %d %v", size, name, got, err)
		}
		for i := range h {
			changed := h
			changed[i] ^= 1
			name, got, err := tarEntry(changed[:], 7)
			if err == nil && name == "blobs/sha256/x" && got == size {
				t.Fatalf("byte %d of the header of %d may be another", i, size)
			}
			var c *CorruptError
			if err != nil && (!errors.As(err, &c) || c.Offset < 7 || c.Offset >= 7+512 || c.Found == "") {
				t.Fatalf("byte %d: %v", i, err)
			}
		}
	}
	for _, size := range []int64{1 << 62, -1} {
		h := TarHeader("x", size)
		if _, got, err := tarEntry(h[:], 0); err == nil {
			t.Errorf("size %d is read as %d", size, got)
		}
	}
	for _, c := range []byte{'/', '8', ' ', 0, 'a'} {
		f := []byte("00000000017\x00")
		f[3] = c
		if n, ok := tarSize(f); ok {
			t.Errorf("%q is the size %d", f, n)
		}
	}
	if n, ok := tarSize([]byte("00000000017\x00")); !ok || n != 15 {
		t.Error(n, ok)
	}
	for size, want := range map[int64]int64{0: 0, 1: 512, 511: 512, 512: 512, 513: 1024} {
		if got := PaddedSize(size); got != want {
			t.Errorf("%d: %d", size, got)
		}
	}
	for v, want := range map[string]bool{"1.2.3": true, "v1.2.3": true, "v1.2.3-rc.1+k3s1": true, "1.2": false, "": false, "latest": false, "vv1.2.3": false, "1.2.3-" + strings.Repeat("a", 74): true, "1.2.3-" + strings.Repeat("a", 75): false} {
		if ValidVersion(v) != want {
			t.Errorf("%q: %t", v, !want)
		}
	}
	if firstDifference([]byte("abc"), []byte("abd")) != 2 || firstDifference([]byte("ab"), []byte("abd")) != 2 || firstDifference([]byte("abd"), []byte("abd")) != -1 || firstDifference([]byte("x"), []byte("y")) != 0 {
		t.Error("firstDifference")
	}
	if firstNonZero([]byte{0, 0, 1}) != 2 || firstNonZero([]byte{0}) != -1 || firstNonZero([]byte{1}) != 0 {
		t.Error("firstNonZero")
	}
}

// Every check of metadata alone: what is wrong, in its words.
func TestMetadataChecks(t *testing.T) {
	t.Parallel()
	digest := func(n int) string { return fmt.Sprintf("sha256:%064x", n) }
	good := func() *Metadata {
		return &Metadata{FormatVersion: 1, MinRefit: "0.1.0", Name: "n", Version: "1.0.0", Platforms: []string{"linux/amd64", "linux/arm64"}, ChunkSize: 512,
			Blobs:    []Blob{{Digest: digest(1), Size: 6, UnpackedSize: 3}, {Digest: digest(2), Size: 7}, {Digest: digest(3), Size: 8}},
			Images:   []Image{{Name: "r.example/a:1", Digest: digest(1), MediaType: "m", Group: "g", Size: 13, UnpackedSize: 3, Blobs: []int{0, 1}}, {Name: "r.example/b:1", Digest: digest(2), MediaType: "m", Group: "g", Size: 7, Blobs: []int{1}}},
			Payloads: []Payload{{Name: "p", Platform: "linux/amd64", Digest: digest(3), Size: 8, Mode: 0o755, Blob: 2}, {Name: "p", Platform: "linux/arm64", Digest: digest(3), Size: 8, Mode: 0o777, Blob: 2}, {Name: "q", Version: "1.2.3", Digest: digest(3), Size: 8, Blob: 2}}}
	}
	checks := func(m *Metadata) string {
		for _, c := range []func() string{m.checkPlatforms, m.checkImages, m.checkPayloads} {
			if found := c(); found != "" {
				return found
			}
		}
		for i, b := range m.Blobs {
			if found := checkBlob(i, b); found != "" {
				return found
			}
		}
		return ""
	}
	for says, change := range map[string]func(*Metadata){
		"":                                    func(*Metadata) {},
		"platforms are not sorted":            func(m *Metadata) { m.Platforms = []string{"linux/arm64", "linux/amd64"} },
		"bad platform \"linux\"":              func(m *Metadata) { m.Platforms = []string{"linux"} },
		"blob 1: bad digest":                  func(m *Metadata) { m.Blobs[1].Digest = "sha256:1"; m.Images = nil },
		"bad size -1":                         func(m *Metadata) { m.Blobs[2].Size = -1; m.Payloads = nil },
		"bad image name":                      func(m *Metadata) { m.Images[0].Name = "a b" },
		"image r.example/b:1 is not in order": func(m *Metadata) { m.Images[0].Name = "r.example/c:1" },
		"image r.example/a:1 is not in order": func(m *Metadata) { m.Images[1] = m.Images[0] },
		"image r.example/a:1: bad group, media type or unpacked size":                     func(m *Metadata) { m.Images[0].Group = "G h" },
		"image r.example/b:1: bad group, media type or unpacked size":                     func(m *Metadata) { m.Images[1].MediaType = "" },
		"image r.example/a:1: there is no blob 3":                                         func(m *Metadata) { m.Images[0].Blobs[1] = 3 },
		"image r.example/a:1: there is no blob -1":                                        func(m *Metadata) { m.Images[0].Blobs[0] = -1 },
		"image r.example/a:1: its blobs are not in order":                                 func(m *Metadata) { m.Images[0].Blobs = []int{1, 0} },
		"image r.example/b:1: its blobs are not in order":                                 func(m *Metadata) { m.Images[1].Blobs = []int{1, 1} },
		"image r.example/a:1: its size is declared as 12, its blobs have 13 bytes":        func(m *Metadata) { m.Images[0].Size = 12 },
		"image r.example/a:1: its unpacked size is declared as 4, its blobs have 3 bytes": func(m *Metadata) { m.Images[0].UnpackedSize = 4 },
		"image r.example/b:1: its manifest is not among its blobs":                        func(m *Metadata) { m.Images[1].Digest = digest(9) },
		"bad payload name":                                     func(m *Metadata) { m.Payloads[0].Name = "../p" },
		"payload p is not in order":                            func(m *Metadata) { m.Payloads[0], m.Payloads[1] = m.Payloads[1], m.Payloads[0] },
		"payload q is not in order":                            func(m *Metadata) { m.Payloads[1] = m.Payloads[2] },
		"payload q: version \"1.2\" is not a semantic version": func(m *Metadata) { m.Payloads[2].Version = "1.2" },
		"payload q: bad platform \"amd64\"":                    func(m *Metadata) { m.Payloads[2].Platform = "amd64" },
		"payload p: mode 1000":                                 func(m *Metadata) { m.Payloads[1].Mode = 0o1000 },
		"payload p: there is no blob 3":                        func(m *Metadata) { m.Payloads[0].Blob = 3 },
		"payload p: there is no blob -1":                       func(m *Metadata) { m.Payloads[1].Blob = -1 },
		"payload p: digest or size is not that of blob 2":      func(m *Metadata) { m.Payloads[0].Digest = digest(2) },
		"payload q: digest or size is not that of blob 2":      func(m *Metadata) { m.Payloads[2].Size = 7 },
	} {
		m := good()
		change(m)
		if got := checks(m); (got == "") != (says == "") || !strings.Contains(got, says) {
			t.Errorf("%q, want %q", got, says)
		}
	}
	m := good()
	m.Platforms[0], m.Platforms[1] = m.Platforms[1], m.Platforms[0]
	m.Images[0], m.Images[1] = m.Images[1], m.Images[0]
	m.Images[1].Blobs = []int{1, 0}
	m.Payloads[0], m.Payloads[2] = m.Payloads[2], m.Payloads[0]
	if m.Sort(); checks(m) != "" {
		t.Errorf("sorted: %s", checks(m))
	}
}

// What hangs under a manifest is what the metadata says, field by field.
func TestManifestsMatch(t *testing.T) {
	t.Parallel()
	m := &Metadata{Name: "n", Version: "1.0.0", Blobs: []Blob{{Digest: "d", Size: 6}}, Images: []Image{{Name: "a", Digest: "d", MediaType: "m", Blobs: []int{0}}}}
	top := func() *topManifest {
		return &topManifest{title: "n", version: "1.0.0", images: []descriptor{{refName: "a", image: "a", Digest: "d", MediaType: "m", Size: 6}}}
	}
	if why := matchTop(top(), m); why != "" {
		t.Error(why)
	}
	for name, change := range map[string]func(*topManifest){
		"title": func(x *topManifest) { x.title = "o" }, "version": func(x *topManifest) { x.version = "2.0.0" }, "number": func(x *topManifest) { x.images = nil },
		"ref name": func(x *topManifest) { x.images[0].refName = "b" }, "image": func(x *topManifest) { x.images[0].image = "b" }, "digest": func(x *topManifest) { x.images[0].Digest = "e" },
		"media type": func(x *topManifest) { x.images[0].MediaType = "o" }, "size": func(x *topManifest) { x.images[0].Size = 7 },
	} {
		x := top()
		if change(x); matchTop(x, m) == "" {
			t.Errorf("another %s is let through", name)
		}
	}
	payloads := []Payload{{Name: "p", Digest: "d", Size: 6}}
	layer := descriptor{Digest: "d", Size: 6, MediaType: MediaTypePayload}
	if why := matchLayers([]descriptor{layer}, payloads); why != "" {
		t.Error(why)
	}
	for name, l := range map[string][]descriptor{"number": nil, "digest": {{Digest: "e", Size: 6, MediaType: MediaTypePayload}}, "size": {{Digest: "d", Size: 7, MediaType: MediaTypePayload}}, "media type": {{Digest: "d", Size: 6, MediaType: "m"}}} {
		if matchLayers(l, payloads) == "" {
			t.Errorf("another %s is let through", name)
		}
	}
	hashes := make([]byte, 3*HashSize)
	hashes[HashSize], hashes[2*HashSize] = 1, 2
	table := newChunkTable(&Metadata{ChunkSize: 4, Blobs: []Blob{{Size: 5}, {Size: 0}, {Size: 4}}}, hashes)
	for n, want := range []Chunk{{Blob: 0, Offset: 0, Size: 4}, {Blob: 0, Offset: 4, Size: 1}, {Blob: 2, Offset: 0, Size: 4}} {
		want.Digest[0] = byte(n)
		if got := table.Chunk(n); got != want {
			t.Errorf("chunk %d: %+v", n, got)
		}
	}
	e := &CorruptError{Part: "blob", Digest: "d", Image: "image a", Offset: 7, Length: 9, Found: "it is torn", Err: errFailing}
	if e.Error() != "bundle is damaged at offset 7 (range of 9 bytes): blob d of image a: it is torn: the medium is gone" || !errors.Is(e, errFailing) {
		t.Error(e)
	}
	if e = (&CorruptError{Part: "blob", Found: "x"}); e.Error() != "bundle is damaged at offset 0: blob: x" || errors.Unwrap(e) != nil {
		t.Error(e)
	}
}
