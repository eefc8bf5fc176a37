package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// A table that fills its blocks has no padding: its end is found all the same.
func TestTableWithoutPadding(t *testing.T) {
	t.Parallel()
	m := sampleMetadata()
	m.Blobs[0].Size = 15 * 512
	m.Images[0].Size, m.Images[1].Size = 15*512+6, 15*512
	chunks := func(s string) string { return strings.Repeat("x", 15*HashSize) + s[2*HashSize:] }
	raw, at, size, _ := spoil{table: chunks}.build(t, m)
	if size[entryChunks] != 512 {
		t.Fatalf("the table has %d bytes", size[entryChunks])
	}
	h, err := readings(t, raw)
	if err != nil || h.Chunks.Len() != 16 || h.HeaderSize() != at[entryChunks]+512 {
		t.Fatalf("%+v, %v", h, err)
	}
	for _, n := range []int64{at[entryChunks], at[entryChunks] + 1, at[entryChunks] + 480, at[entryChunks] + 511} {
		if _, err := readings(t, raw[:n]); err == nil || err.Error() != fmt.Sprintf("bundle is damaged at offset %d: header: the file ends here: it was not copied completely", n) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	for name, c := range map[string]struct{ says, table string }{
		"a chunk is missing": {"the chunk table has 480 bytes, the blobs have 16 chunks", chunks(string(sampleTable()))[:480]},
		"a chunk too many":   {"the chunk table has 544 bytes, the blobs have 16 chunks", chunks(string(sampleTable())) + strings.Repeat("x", 32)},
		"a byte too many":    {"the chunk table has 513 bytes, the blobs have 16 chunks", chunks(string(sampleTable())) + "x"},
		"no table":           {"the chunk table has 0 bytes, the blobs have 16 chunks", ""},
	} {
		raw, at, _, _ := spoil{table: text(c.table)}.build(t, m)
		if _, err := readings(t, raw); err == nil || err.Error() != fmt.Sprintf("bundle is damaged at offset %d: chunk table: %s", at[entryChunks], c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Lists that are empty or null are read as written, and written again as they were.
func TestEmptyListsAreRead(t *testing.T) {
	t.Parallel()
	const scalars = `{"formatVersion":1,"minRefit":"0.1.0","name":"sample","version":"1.0.0","platforms":[],"images":[],"chunkSize":512,"blobs":[]}`
	empty := &Metadata{FormatVersion: 1, MinRefit: "0.1.0", Name: "sample", Version: "1.0.0", ChunkSize: 512, Platforms: []string{}, Images: []Image{}, Blobs: []Blob{}}
	for _, meta := range []string{scalars, strings.ReplaceAll(scalars, "[]", "null"), strings.Replace(scalars, `"blobs"`, `"payloads":[],"blobs"`, 1)} {
		raw, _, _, _ := spoil{meta: func(string) string { return meta + " " }, table: text("")}.build(t, empty)
		h, err := readings(t, raw)
		if err != nil {
			t.Fatalf("%s: %v", meta, err)
		}
		if diff := cmp.Diff(empty, h.Metadata); diff != "" {
			t.Errorf("%s: %s", meta, diff)
		}
	}
	raw, _, _, _ := spoil{meta: text(`{"formatVersion":2,"images":7,"blobs":{"a":[]},"minRefit":"9.1.0"}`)}.build(t, empty)
	var tooNew *TooNewError
	if _, err := readings(t, raw); !errors.As(err, &tooNew) || tooNew.MinRefit != `"9.1.0"` {
		t.Errorf("after members of a later format: %v", err)
	}
}

// A chunk that is not there is a mistake of the caller, and named.
func TestChunkThatIsNotThere(t *testing.T) {
	t.Parallel()
	table := newChunkTable(sampleMetadata(), sampleTable())
	if table.Len() != 3 {
		t.Fatalf("%d chunks", table.Len())
	}
	for blob, want := range [][2]int{{0, 2}, {2, 1}, {3, 0}} {
		if first, n := table.OfBlob(blob); first != want[0] || n != want[1] {
			t.Errorf("blob %d: chunks from %d, %d of them", blob, first, n)
		}
	}
	for _, n := range []int{-1, 3, 1 << 40} {
		func() {
			defer func() {
				if got, want := recover(), fmt.Sprintf("bundle: chunk %d of 3", n); got != want {
					t.Errorf("%v, want %s", got, want)
				}
			}()
			table.Chunk(n)
		}()
	}
}

// The scanner's refusals of what is kept and of what is passed over, word by word.
func TestScannerNamesWhatItFound(t *testing.T) {
	t.Parallel()
	const early = "is not JSON: it ends early"
	literal := errors.Join(errors.New("is not JSON: bad literal")).Error()
	for text, says := range map[string]string{
		``:                   early,
		`[`:                  `is not JSON as expected: found '[', want '{'`,
		`{"a"="x"}`:          `is not JSON as expected: found '=', want ':'`,
		`{"a":7}`:            `is not JSON as expected: found '7', want '"'`,
		`{"a":"x";`:          `is not JSON as expected: found ';', want a comma`,
		`{"a":"x`:            early,
		`{"a":"x\`:           early,
		`{"a":"\q"}`:         `is not JSON: invalid character 'q' in string escape code`,
		`{"a":nulx}`:         "\n" + literal,
		`{"a":nul`:           early + "\n" + literal,
		`{"n":tru}`:          `has "" where a whole number of 64 bits belongs`,
		`{"n":-}`:            `has "-" where a whole number of 64 bits belongs`,
		`{"n":1`:             early,
		`{"l":["a":`:         `is not JSON as expected: found ':', want a comma`,
		`{"l":["a"`:          early,
		`{"l":[`:             early,
		`{"l":`:              early,
		`{"z":"x`:            early,
		`{"z":"x\`:           early,
		"{\"z\":\"x\x1fy\"}": `is not JSON as expected: found '\x1f', want a text`,
		`{"z":{x`:            `is not JSON as expected: found 'x', want '"'`,
		`{"z":{"x"=`:         `is not JSON as expected: found '=', want ':'`,
		`{"z":falsy}`:        literal,
		`{"z":-}`:            `is not JSON as expected: found '-', want a value`,
		`{"z":`:              early,
		`{"z":[1,`:           early,
		`{"z":1`:             early,
		`{} `:                "",
		`{}null`:             `is not JSON as expected: found 'n', want the end`,
	} {
		_, err := scan(text)
		if got := fmt.Sprint(err); says == "" && err != nil || says != "" && (err == nil || strings.TrimSpace(got) != strings.TrimSpace(says)) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
		if strings.HasSuffix(says, early) && text != "" {
			s := newScanner(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader(text))))
			if err := s.object(members{"a": s.text(new(string)), "n": s.number(new(int64)), "l": func() error { return s.array(3, "words", s.text(new(string))) }}); err == nil {
				t.Errorf("%q: read although its medium timed out", text)
			}
		}
	}
}

// Text, names and numbers as long as they may be.
func TestScannerAtItsLimits(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxText-1)
	out, err := scan(`{"` + long + `":1,"a":"` + long + `","n":000}`)
	if err == nil || !strings.Contains(err.Error(), `has "000"`) || out.A != long {
		t.Errorf("%d characters: %v", len(out.A), err)
	}
	if _, err := scan(`{"a":"` + long + `x"}`); err == nil || err.Error() != "has a text of more than 1024 bytes" {
		t.Errorf("one more: %v", err)
	}
	if _, err := scan(`{"z":` + strings.Repeat("1", 64) + `}`); err != nil {
		t.Errorf("64 digits that are passed over: %v", err)
	}
	if _, err := scan(`{"n":` + strings.Repeat("1", 64) + `}`); err == nil || err.Error() != `has "`+strings.Repeat("1", 40)+`" where a whole number of 64 bits belongs` {
		t.Errorf("64 digits: %v", err)
	}
	out, err = scan(`{"l":["p","q","p"],"a":"q"}`)
	if err != nil || !cmp.Equal(out, scanned{A: "q", L: []string{"p", "q", "p"}}) {
		t.Errorf("%+v, %v", out, err)
	}
}

// Keys that are no keys are refused with what was found.
func TestKeysThatAreNone(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"":                                     "no PEM text in it",
		"refit":                                "no PEM text in it",
		"-----BEGIN X-----\n-----END X-----\n": `PEM block "X" found, "`,
	} {
		if _, err := ParsePublicKeyPEM([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), "public key: "+says) {
			t.Errorf("%q: %v", text, err)
		}
		if _, err := ParsePrivateKeyPEM([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), "private key: "+says) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, kind := range []string{"PUBLIC KEY", "PRIVATE KEY"} {
		text := []byte("-----BEGIN " + kind + "-----\nAAAA\n-----END " + kind + "-----\n")
		_, err := ParsePublicKeyPEM(text)
		if kind == "PRIVATE KEY" {
			_, err = ParsePrivateKeyPEM(text)
		}
		if err == nil || !strings.HasPrefix(err.Error(), strings.ToLower(kind)+": ") || !strings.Contains(err.Error(), "asn1") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// The entry of the signatures takes what fills it to its last byte.
func TestSignaturesThatFillTheirEntry(t *testing.T) {
	t.Parallel()
	slot := func(n int) ([]byte, error) {
		return EncodeSlot([]Envelope{{PayloadType: strings.Repeat("x", n)}})
	}
	least := len(canonical(struct {
		Signatures []Envelope `json:"signatures"`
	}{[]Envelope{{}}}))
	b, err := slot(SignatureSlotSize - least)
	if err != nil || len(b) != SignatureSlotSize || bytes.HasSuffix(b, []byte(" ")) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if b, err := slot(SignatureSlotSize - least + 1); err == nil || b != nil || err.Error() != "the signatures take 16385 bytes, the bundle has room for 16384: use fewer keys" {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// Metadata whose image has no manifest is not written.
func TestImageWithoutManifestIsNotWritten(t *testing.T) {
	t.Parallel()
	m := sampleMetadata()
	m.Images[1].Digest = DigestOf([]byte("x"))
	if raw, err := Marshal(m, sampleTable()); raw != nil || err == nil || err.Error() != "image "+imageB+": its manifest "+m.Images[1].Digest+" is not among its blobs" {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
	m = sampleMetadata()
	room := MetadataRoom(m)
	raw, err := Marshal(m, sampleTable())
	if err != nil {
		t.Fatal(err)
	}
	h, err := readings(t, raw)
	if err != nil || room != len(canonical(m))+5*18 {
		t.Fatalf("room for %d bytes, the metadata has %d: %v", room, len(canonical(m)), err)
	}
	m.Blobs[0].UnpackedSize, m.Images[0].UnpackedSize, m.Images[1].UnpackedSize = 1<<40, 1<<40, 1<<40
	later, err := Marshal(m, sampleTable())
	if err != nil || len(later) != len(raw) || MetadataRoom(m) != room || m.Blobs[0].UnpackedSize != 1<<40 {
		t.Errorf("%d bytes, then %d: %v", len(h.Raw), len(later), err)
	}
}

// What is no bundle at all is refused as such whichever way it is read, and nothing is
// known of its size.
func TestNoBundleIsRefusedByEveryReader(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string][]byte{
		"zeros": make([]byte, 4096), "fewer zeros": make([]byte, 100), "a program": append([]byte("\x7fELF"), make([]byte, 4096)...), "text": []byte("refit"),
		"a header that differs at its end": append(bytes.Repeat([]byte("o"), BlockSize), 1),
	} {
		if h, err := readings(t, raw); h != nil || !errors.Is(err, ErrNotBundle) || err.Error() != "not a refit bundle" {
			t.Errorf("%s: %v", name, err)
		}
		if n, err := HeaderSize(raw); n != 0 || !errors.Is(err, ErrNotBundle) {
			t.Errorf("%s: a header of %d bytes, %v", name, n, err)
		}
	}
	raw, at, _, _ := spoil{}.build(t, sampleMetadata())
	copy(raw[at[entryIndex]-BlockSize+124:], "size")
	want := fmt.Sprintf("bundle is damaged at offset %d (range of 12 bytes): tar header: the size is not a number", at[entryIndex]-BlockSize+124)
	if _, err := readings(t, raw); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if n, err := HeaderSize(raw); n != 0 || err == nil || err.Error() != want {
		t.Errorf("a header of %d bytes, %v, want %s", n, err, want)
	}
}

// A signature joins those over the same statement, and replaces that of its key.
func TestSignaturesAreMerged(t *testing.T) {
	t.Parallel()
	about := func(payload string, sigs ...Signature) Envelope {
		return Envelope{PayloadType: PayloadType, Payload: []byte(payload), Signatures: sigs}
	}
	one, two, again := Signature{"1", []byte("x")}, Signature{"2", []byte("y")}, Signature{"1", []byte("z")}
	have := []Envelope{about("other", Signature{"0", []byte("o")}), about("this", two, one)}
	if diff := cmp.Diff([]Envelope{about("this", again, two)}, AddSignature(have, about("this", again))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Envelope{about("new", one)}, AddSignature(have, about("new", one))); diff != "" {
		t.Error(diff)
	}
	if len(have) != 2 || len(have[1].Signatures) != 2 || have[1].Signatures[0].KeyID != "2" {
		t.Errorf("the caller's envelopes became %+v", have)
	}
}
