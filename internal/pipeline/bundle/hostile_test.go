package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

const (
	imageA   = "registry.example/a:1"
	imageB   = "registry.example/b:1"
	smallSum = "sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03" // of "hello\n"
	emptySum = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// sampleMetadata has a blob of one chunk, one of two chunks and an empty one, two images
// and two payloads.
func sampleMetadata() *Metadata {
	large := fmt.Sprintf("sha256:%064x", 7)
	return &Metadata{FormatVersion: 1, MinRefit: "0.1.0", Name: "sample", Version: "1.0.0", Platforms: []string{"linux/amd64", "linux/arm64"}, ChunkSize: 512,
		Blobs: []Blob{{Digest: large, Size: 513, UnpackedSize: 9}, {Digest: smallSum, Size: 6}, {Digest: emptySum}},
		Images: []Image{
			{Name: imageA, Digest: smallSum, MediaType: MediaTypeManifest, Group: "node", Size: 519, UnpackedSize: 9, Blobs: []int{0, 1}},
			{Name: imageB, Digest: emptySum, MediaType: MediaTypeManifest, Group: "node", Size: 513, UnpackedSize: 9, Blobs: []int{0, 2}},
		},
		Payloads: []Payload{{Name: "any", Digest: emptySum, Mode: 0o644, Blob: 2}, {Name: "kubelet", Version: "v1.36.3", Platform: "linux/amd64", Digest: smallSum, Size: 6, Mode: 0o755, Blob: 1}}}
}

func sampleTable() []byte {
	return append(bytes.Repeat([]byte{9}, 2*HashSize), "\x58\x91\xb5\xb5\x22\xd5\xdf\x08\x6d\x0f\xf0\xb1\x10\xfb\xd9\xd2\x1b\xb4\xfc\x71\x63\xaf\x34\xd0\x82\x86\xa2\xe8\x46\xf6\xbe\x03"...)
}

// spoil changes the text of one part of a header; the digests and sizes above it follow.
type spoil struct {
	layout, index, top, slot, manifest, meta, table func(string) string
}

// build makes a header of the sample and says where the content of each entry begins.
func (s spoil) build(t testing.TB, m *Metadata) (raw []byte, at, size [entryCount]int64, digest [entryCount]string) {
	t.Helper()
	do := func(f func(string) string, text []byte) []byte {
		if f == nil {
			return text
		}
		changed := f(string(text))
		if changed == string(text) {
			t.Fatalf("the change of %.60q changes nothing", text)
		}
		return []byte(changed)
	}
	meta, table := do(s.meta, canonical(m)), do(s.table, sampleTable())
	mm := manifest{SchemaVersion: 2, MediaType: MediaTypeManifest, ArtifactType: ArtifactType,
		Config: descriptor{MediaType: MediaTypeMetadata, Digest: DigestOf(meta), Size: int64(len(meta))},
		Layers: []descriptor{{MediaType: MediaTypeChunks, Digest: DigestOf(table), Size: int64(len(table))}}}
	for _, p := range m.Payloads {
		mm.Layers = append(mm.Layers, payloadDescriptor(p))
	}
	mmRaw := do(s.manifest, canonical(mm))
	top := index{SchemaVersion: 2, MediaType: MediaTypeIndex, ArtifactType: ArtifactType,
		Annotations: map[string]string{AnnotationTitle: m.Name, AnnotationVersion: m.Version},
		Manifests:   []descriptor{{MediaType: MediaTypeManifest, ArtifactType: ArtifactType, Digest: DigestOf(mmRaw), Size: int64(len(mmRaw))}}}
	for _, img := range m.Images {
		n, _ := m.sizeOf(img)
		top.Manifests = append(top.Manifests, imageDescriptor(img.Name, img.MediaType, img.Digest, n))
	}
	topRaw := do(s.top, canonical(top))
	slot, err := EncodeSlot(nil)
	if err != nil {
		t.Fatal(err)
	}
	for kind, e := range []struct {
		name    string
		content []byte
	}{
		{nameLayout, do(s.layout, []byte(layoutContent))},
		{nameIndex, do(s.index, indexJSON(DigestOf(topRaw), int64(len(topRaw)), top.Manifests[1:]))},
		{BlobPath(DigestOf(topRaw)), topRaw},
		{nameSignatures, do(s.slot, slot)},
		{BlobPath(DigestOf(mmRaw)), mmRaw},
		{BlobPath(DigestOf(meta)), meta},
		{BlobPath(DigestOf(table)), table},
	} {
		at[kind], size[kind] = int64(len(raw))+BlockSize, int64(len(e.content))
		if entryRules[kind].name == "" {
			digest[kind] = DigestOf(e.content)
		}
		raw = appendEntry(raw, e.name, e.content)
	}
	return raw, at, size, digest
}

// readings reads a header in every way there is and wants the same error of all.
func readings(t testing.TB, raw []byte) (*Header, error) {
	t.Helper()
	h, err := ParseHeader(raw)
	for name, read := range map[string]func() (*Header, error){
		"ReadHeader":             func() (*Header, error) { return ReadHeader(bytes.NewReader(raw), "") },
		"ReadSummary":            func() (*Header, error) { return ReadSummary(bytes.NewReader(raw)) },
		"ReadHeader by halves":   func() (*Header, error) { return ReadHeader(iotest.HalfReader(bytes.NewReader(raw)), "") },
		"ReadSummary with error": func() (*Header, error) { return ReadSummary(iotest.DataErrReader(bytes.NewReader(raw))) },
	} {
		other, otherErr := read()
		if fmt.Sprint(err) != fmt.Sprint(otherErr) || (h == nil) != (other == nil) {
			t.Errorf("ParseHeader: %v, %s: %v", err, name, otherErr)
		}
	}
	return h, err
}

func swap(from, to string) func(string) string {
	return func(s string) string { return strings.Replace(s, from, to, 1) }
}

func add(what string) func(string) string { return func(s string) string { return s + what } }

// cut takes away what begins with from and ends before to.
func cut(from, to string) func(string) string {
	return func(s string) string {
		before, rest, _ := strings.Cut(s, from)
		_, after, _ := strings.Cut(rest, to)
		return before + to + after
	}
}

func text(s string) func(string) string { return func(string) string { return s } }

// Each refusal of a header names the part, its digest and the offset, in the same words
// whichever way the header is read.
func TestHostileHeadersNamePartAndOffset(t *testing.T) {
	t.Parallel()
	const blobOfA = `,"blobs":[0,1]}`
	for _, c := range []struct {
		says  string
		entry int
		spoil spoil
	}{
		{"differs from its only content", entryLayout, spoil{layout: swap("1.0.0", "1.0.1")}},
		{"differs from what the top manifest implies", entryIndex, spoil{index: swap(imageA, imageB)}},
		{"is not the OCI index of a bundle", entryTop, spoil{top: swap(`"schemaVersion":2`, `"schemaVersion":1`)}},
		{"is not the OCI index of a bundle", entryTop, spoil{top: swap(MediaTypeIndex, MediaTypeManifest)}},
		{"is not the OCI index of a bundle", entryTop, spoil{top: swap(ArtifactType, ArtifactType+"x")}},
		{"does not begin with the metadata manifest", entryTop, spoil{top: cut(`{"mediaType"`, `],"annotations"`)}},
		{"does not begin with the metadata manifest", entryTop, spoil{top: swap(`manifest.v1+json","artifactType":"`+ArtifactType, `manifest.v1+json","artifactType":"x`)}},
		{"does not begin with the metadata manifest", entryTop, spoil{top: swap(MediaTypeManifest, "m")}},
		{`has a descriptor with the bad digest "sha256:1"`, entryTop, spoil{top: swap(smallSum, "sha256:1")}},
		{"has a descriptor of " + smallSum + " with a bad media type or size", entryTop, spoil{top: swap(`"size":6`, `"size":-1`)}},
		{"has a descriptor of " + smallSum + " with a bad media type or size", entryTop, spoil{top: swap(MediaTypeManifest+`","digest":"`+smallSum, `m m","digest":"`+smallSum)}},
		{`is not JSON as expected: found 'x', want the end`, entryTop, spoil{top: add(" x")}},
		{`is not JSON as expected: found '1', want '"'`, entryTop, spoil{top: swap(`"`+AnnotationTitle+`":"sample"`, `"`+AnnotationTitle+`":1`)}},
		{`is not JSON as expected: found '1', want '"'`, entryTop, spoil{top: swap(`"`+AnnotationRefName+`":"`+imageA+`"`, `"`+AnnotationRefName+`":1`)}},
		{"names another bundle than its metadata", entryTop, spoil{top: swap(`"sample"`, `"other"`)}},
		{"names another bundle than its metadata", entryTop, spoil{top: swap(`"1.0.0"`, `"1.0.1"`)}},
		{"image 0 is not " + imageA + " as its metadata says", entryTop, spoil{top: swap(`"`+AnnotationImage+`":"`+imageA, `"`+AnnotationImage+`":"`+imageB)}},
		{"not in the one form allowed (compact JSON, padded with spaces)", entrySignatures, spoil{slot: swap("} ", " }")}},
		{"has no metadata or no chunk table", entryMetaManifest, spoil{manifest: swap(MediaTypeMetadata, "m")}},
		{"has no metadata or no chunk table", entryMetaManifest, spoil{manifest: cut(`{"mediaType":"`+MediaTypeChunks, `]}`)}},
		{"has no metadata or no chunk table", entryMetaManifest, spoil{manifest: swap(MediaTypeChunks, "m")}},
		{"has no metadata or no chunk table", entryMetaManifest, spoil{manifest: func(s string) string { before, _, _ := strings.Cut(s, `,"layers"`); return before + "}" }}},
		{"is not JSON as expected: found 'x', want the end", entryMetaManifest, spoil{manifest: add("x")}},
		{`has a descriptor with the bad digest ""`, entryMetaManifest, spoil{manifest: swap(`"config":{`, `"config":{},"x":{`)}},
		{`has a descriptor with the bad digest ""`, entryMetaManifest, spoil{manifest: swap(`"layers":[`, `"layers":[{},`)}},
		{`has a descriptor with the bad digest ""`, entryMetaManifest, spoil{manifest: swap(`]}`, `,{}]}`)}},
		{"lists 3 payloads, its metadata 2", entryMetaManifest, spoil{manifest: swap(`]}`, `,{"mediaType":"m","digest":"`+smallSum+`"}]}`)}},
		{"payload 1 is not kubelet as its metadata says", entryMetaManifest, spoil{manifest: swap(smallSum, emptySum)}},
		{"is not JSON as expected: found 'x', want the end", entryMetadata, spoil{meta: add("x")}},
		{"is not JSON as expected: found 'x', want '\"'", entryMetadata, spoil{meta: swap(`"linux/arm64"`, "x")}},
		{`bad platform "linux/z z"`, entryMetadata, spoil{meta: swap("linux/arm64", "linux/z z")}},
		{`image "` + imageA + `": blob -1 is not in order`, entryMetadata, spoil{meta: swap(blobOfA, `,"blobs":[-1,1]}`)}},
		{`image "` + imageA + `": blob 0 is not in order`, entryMetadata, spoil{meta: swap(blobOfA, `,"blobs":[0,0]}`)}},
		{`image "` + imageA + `": blob 32768 is not in order`, entryMetadata, spoil{meta: swap(blobOfA, `,"blobs":[0,32768]}`)}},
		{"image " + imageA + ": there is no blob 32767", entryMetadata, spoil{meta: swap(blobOfA, `,"blobs":[0,32767]}`)}},
		{`has "1.5" where a whole number of 64 bits belongs`, entryMetadata, spoil{meta: swap(blobOfA, `,"blobs":[0,1.5]}`)}},
		{"image " + imageB + ": bad group, media type or unpacked size", entryMetadata, spoil{meta: swap(`"group":"node","size":513`, `"size":513`)}},
		{"image " + imageB + ": bad group, media type or unpacked size", entryMetadata, spoil{meta: swap(`"size":513,"unpackedSize":9,"blobs":[0,2]`, `"size":513,"unpackedSize":-9,"blobs":[0,2]`)}},
		{"image " + imageB + ": bad group, media type or unpacked size", entryMetadata, spoil{meta: swap(`"size":513,"unpackedSize":9,"blobs":[0,2]`, `"size":513,"unpackedSize":1125899906842625,"blobs":[0,2]`)}},
		{"image " + imageB + ": its unpacked size is declared as 0, its blobs have 9 bytes", entryMetadata, spoil{meta: swap(`"size":513,"unpackedSize":9,"blobs":[0,2]`, `"size":513,"blobs":[0,2]`)}},
		{"image " + imageB + ": its size is declared as 0, its blobs have 513 bytes", entryMetadata, spoil{meta: swap(`"size":513,"unpackedSize":9,"blobs":[0,2]`, `"unpackedSize":9,"blobs":[0,2]`)}},
		{"image " + imageB + ": its size is declared as 513, its blobs have 0 bytes", entryMetadata, spoil{meta: swap(`,"blobs":[0,2]`, ``)}},
		{`payload "any": mode -1`, entryMetadata, spoil{meta: swap(`"mode":420`, `"mode":-1`)}},
		{`payload "any": mode 4294967716`, entryMetadata, spoil{meta: swap(`"mode":420`, `"mode":4294967716`)}},
		{"payload any: mode 1000", entryMetadata, spoil{meta: swap(`"mode":420`, `"mode":512`)}},
		{"payload any: there is no blob 3", entryMetadata, spoil{meta: swap(`"mode":420,"blob":2`, `"mode":420,"blob":3`)}},
		{"payload any: digest or size is not that of blob 0", entryMetadata, spoil{meta: swap(`"mode":420,"blob":2`, `"mode":420`)}},
		{`bad payload name ""`, entryMetadata, spoil{meta: swap(`"name":"kubelet",`, ``)}},
		{`is not JSON as expected: found 'x', want '"'`, entryMetadata, spoil{meta: swap(`"kubelet"`, "x")}},
		{`blob 2: bad digest ""`, entryMetadata, spoil{meta: swap(`"digest":"`+emptySum+`","size":0,"unpackedSize":0`, `"size":0,"unpackedSize":0`)}},
		{"blob " + smallSum + ": bad size 6 or unpacked size -1", entryMetadata, spoil{meta: swap(`"size":6,"unpackedSize":0`, `"size":6,"unpackedSize":-1`)}},
		{"blob " + smallSum + " is one chunk, whose digest differs", entryChunks, spoil{table: swap("\x58\x91", "\x58\x92")}},
	} {
		raw, at, _, digest := c.spoil.build(t, sampleMetadata())
		_, err := readings(t, raw)
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) {
			t.Errorf("%s: got %v", c.says, err)
			continue
		}
		want := &CorruptError{Part: entryRules[c.entry].part, Offset: at[c.entry], Found: c.says, Digest: corrupt.Digest} // not every refusal names it
		if diff := cmp.Diff(want.Error(), err.Error()); diff != "" {
			t.Error(diff)
		}
		if corrupt.Digest != "" && corrupt.Digest != digest[c.entry] {
			t.Errorf("%s: digest %s, want %s", c.says, corrupt.Digest, digest[c.entry])
		}
	}
}

// A header of the sample that nothing is done to says what was written, whichever way it
// is read, and a reader takes no byte behind it.
func TestGoodHeaderIsRead(t *testing.T) {
	t.Parallel()
	m := sampleMetadata()
	raw, at, size, digest := spoil{}.build(t, m)
	for name, change := range map[string]spoil{
		"as written":        {},
		"spaces at its end": {meta: add(" \n")},
		"unknown members":   {meta: swap(`{`, `{"future":[{"a":[1]}],`), manifest: swap(`{`, `{"future":{},`), top: swap(`{`, `{"future":null,`)},
		"version as last": {meta: func(s string) string {
			return strings.TrimSuffix(swap(`"formatVersion":1,`, ``)(s), "}") + `,"formatVersion":1}`
		}},
		"no size of nothing":    {meta: swap(`"digest":"`+emptySum+`","size":0,"unpackedSize":0`, `"digest":"`+emptySum+`"`)},
		"payload without sizes": {meta: swap(`"digest":"`+emptySum+`","size":0,"mode"`, `"digest":"`+emptySum+`","mode"`)},
	} {
		changed, _, _, _ := change.build(t, m)
		h, err := readings(t, changed)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(m, h.Metadata); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	rest := bytes.NewReader(append(bytes.Clone(raw), "rest"...))
	h, err := ReadHeader(rest, digest[entryTop])
	if err != nil || rest.Len() != 4 || !bytes.Equal(h.Raw, raw) || h.Digest != digest[entryTop] || h.MetadataDigest != digest[entryMetadata] || h.SlotOffset() != at[entrySignatures] {
		t.Fatalf("%d bytes left: %+v, %v", rest.Len(), h, err)
	}
	end := at[entryChunks] + PaddedSize(size[entryChunks])
	want := []int64{end + 512, end + 512 + 1024 + 512, end + 512 + 1024 + 512 + 512 + 512}
	if got := []int64{h.BlobOffset(0), h.BlobOffset(1), h.BlobOffset(2)}; h.HeaderSize() != end || !cmp.Equal(got, want) || h.FileSize() != want[2]+1024 {
		t.Errorf("blobs at %v, want %v, the file ends at %d", got, want, h.FileSize())
	}
	if got := []int64{h.ChunkOffset(0), h.ChunkOffset(1), h.ChunkOffset(2)}; !cmp.Equal(got, []int64{want[0], want[0] + 512, want[1]}) || h.ChunkCount() != 3 {
		t.Errorf("%d chunks at %v", h.ChunkCount(), got)
	}
	summary, err := ReadSummary(bytes.NewReader(append(bytes.Clone(raw), "rest"...)))
	if err != nil || summary.Raw != nil || summary.Chunks != nil || summary.FileSize() != h.FileSize() || summary.HeaderSize() != end {
		t.Errorf("%+v, %v", summary, err)
	}
	_, err = ParseHeader(append(bytes.Clone(raw), 0))
	if want := fmt.Sprintf("bundle is damaged at offset %d: header: more bytes than the header has", end); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

var errUnplugged = errors.New("medium unplugged")

// A header that ends early, or whose medium fails, is refused at the very byte.
func TestHeaderThatEndsEarly(t *testing.T) {
	t.Parallel()
	raw, at, size, _ := spoil{}.build(t, sampleMetadata())
	cuts := []int64{0, 1, 511, 512, int64(len(raw)) - 1}
	for kind := range entryCount {
		cuts = append(cuts, at[kind], at[kind]+1, at[kind]+size[kind]-1, at[kind]+size[kind], at[kind]+PaddedSize(size[kind])-1)
	}
	for _, n := range cuts {
		_, err := readings(t, raw[:n])
		want := fmt.Sprintf("bundle is damaged at offset %d: header: the file ends here: it was not copied completely", n)
		if n == 0 {
			want = "not a refit bundle: it is empty"
		}
		if err == nil || err.Error() != want || errors.Is(err, ErrNotBundle) != (n == 0) {
			t.Errorf("%d bytes: %v", n, err)
		}
		want = fmt.Sprintf("bundle is damaged at offset %d: header: cannot be read: medium unplugged", n)
		failing := func() io.Reader { return io.MultiReader(bytes.NewReader(raw[:n]), iotest.ErrReader(errUnplugged)) }
		if _, err := ReadHeader(failing(), ""); !errors.Is(err, errUnplugged) || err.Error() != want {
			t.Errorf("%d bytes: %v, want %s", n, err, want)
		}
		if _, err := ReadSummary(failing()); !errors.Is(err, errUnplugged) || err.Error() != want {
			t.Errorf("summary, %d bytes: %v, want %s", n, err, want)
		}
	}
}

// What a tar header or a padding may not have is refused at its byte, and content by its
// digest.
func TestHostileEntries(t *testing.T) {
	t.Parallel()
	raw, at, size, digest := spoil{}.build(t, sampleMetadata())
	other := DigestOf([]byte("other"))
	for kind := range entryCount {
		part := entryRules[kind].part
		header := func(name string, n int64) func([]byte) {
			return func(b []byte) {
				h := TarHeader(name, n)
				copy(b[at[kind]-BlockSize:], h[:])
			}
		}
		cases := map[string]func([]byte){}
		if n := at[kind] + size[kind]; n < at[kind]+PaddedSize(size[kind]) {
			cases[fmt.Sprintf("bundle is damaged at offset %d: padding after %s: is not zero", n+1, part)] = func(b []byte) { b[n+1] = 7 }
		}
		if digest[kind] != "" {
			sum := fmt.Sprintf("bundle is damaged at offset %d (range of %d bytes): %s %s: the bytes have digest ", at[kind], size[kind], part, digest[kind])
			cases[sum] = func(b []byte) { b[at[kind]+size[kind]-1] ^= 1 }
		}
		if kind > entrySignatures {
			tar := fmt.Sprintf("bundle is damaged at offset %d: tar header of the %s: ", at[kind]-BlockSize, part)
			cases[tar+fmt.Sprintf("names %q, %q is implied", BlobPath(other), digest[kind])] = header(BlobPath(other), size[kind])
			cases[tar+`names "index.json"`] = header("index.json", size[kind])
			cases[fmt.Sprintf("bundle is damaged at offset %d: tar header of the %s: says %d bytes, %d are implied", at[kind]-BlockSize+124, part, size[kind]-1, size[kind])] = header(BlobPath(digest[kind]), size[kind]-1)
		}
		if kind > entryLayout && kind <= entrySignatures {
			cases[fmt.Sprintf(`not a refit bundle: an archive whose entry %d is "x" where a bundle has its %s`, kind+1, part)] = header("x", size[kind])
		}
		for want, change := range cases {
			b := bytes.Clone(raw)
			change(b)
			if _, err := readings(t, b); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
}

// The largest entry of each kind is let through and one more byte is not, nor a header
// that would be larger than all may be.
func TestEntriesAtTheirLimits(t *testing.T) {
	t.Parallel()
	for kind, rule := range entryRules {
		name := rule.name
		if name == "" {
			name = BlobPath(smallSum)
		}
		entry := func(size, at int64) (int64, error) {
			h := TarHeader(name, size)
			_, got, err := headerEntry(kind, h[:], at)
			return got, err
		}
		most := min(rule.maxSize, MaxHeaderSize-BlockSize)
		if got, err := entry(most, 0); err != nil || got != most {
			t.Errorf("%s of %d bytes: %d, %v", rule.part, most, got, err)
		}
		want := fmt.Sprintf("bundle is damaged at offset 512: tar header of the %s: %d bytes are more than the %d allowed", rule.part, rule.maxSize+1, rule.maxSize)
		if _, err := entry(rule.maxSize+1, 512); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		last := MaxHeaderSize - BlockSize - PaddedSize(most)
		if _, err := entry(most, last); err != nil {
			t.Errorf("%s at the end of the largest header: %v", rule.part, err)
		}
		want = fmt.Sprintf("bundle is damaged at offset %d: %s: the header would be larger than 67108864 bytes", last+1, rule.part)
		if _, err := entry(most, last+1); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A later format is refused with an error that names the version it needs, for any members.
func TestLaterFormat(t *testing.T) {
	t.Parallel()
	for meta, want := range map[string]string{
		`{"formatVersion":2,"minRefit":"9.1.0","images":7,"platforms":{},"blobs":"x","payloads":1,"chunkSize":"1","name":[],"version":{},"kubernetesVersion":1}`: `has format version 2, this refit reads 1: update refit to "9.1.0" or later`,
		`{"minRefit":"9.1.0","formatVersion":2,`:                           `has format version 2, this refit reads 1: update refit to "9.1.0" or later`,
		`{"formatVersion":1073741825}`:                                     `has format version 1073741824, this refit reads 1: update refit to "" or later`,
		`{"formatVersion":2,"minRefit":"` + strings.Repeat("9", 41) + `"}`: `has format version 2, this refit reads 1: update refit to "` + strings.Repeat("9", 40) + `" or later`,
	} {
		raw, _, _, digest := spoil{meta: text(meta)}.build(t, sampleMetadata())
		_, err := readings(t, raw)
		var tooNew *TooNewError
		if !errors.As(err, &tooNew) || tooNew.Digest != digest[entryTop] || err.Error() != "bundle "+tooNew.Digest+" "+want {
			t.Errorf("%.60s: %v", meta, err)
		}
	}
	for meta, want := range map[string]string{
		`{"formatVersion":1,"images":7}`:      "found '7', want '['",
		`{"formatVersion":1,"platforms":{}}`:  "found '{', want '['",
		`{"formatVersion":1,"blobs":"x"}`:     `found '"', want '['`,
		`{"formatVersion":1,"payloads":1}`:    "found '1', want '['",
		`{"formatVersion":1,"chunkSize":"1"}`: `where a whole number of 64 bits belongs`,
		`{"formatVersion":"1"}`:               `where a whole number of 64 bits belongs`,
		`{"formatVersion":1,"name":1}`:        `found '1', want '"'`,
		`{"minRefit":1,"formatVersion":1}`:    `found '1', want '"'`,
	} {
		raw, _, _, _ := spoil{meta: text(meta)}.build(t, sampleMetadata())
		var corrupt *CorruptError
		if _, err := readings(t, raw); !errors.As(err, &corrupt) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", meta, err, want)
		}
	}
}

// Every list takes as many members as the format allows and not one more.
func TestListsAtTheirLimits(t *testing.T) {
	t.Parallel()
	many := func(n int, item func(i int) string) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(item(i))
		}
		return "[" + b.String() + "]"
	}
	numbers := func(n int) string { return many(n, func(i int) string { return fmt.Sprint(i) }) }
	image := func(blobs string) func(int) string {
		return func(i int) string {
			return fmt.Sprintf(`{"name":"r.example/a%05d:1","mediaType":"m","group":"g","blobs":%s}`, i, blobs)
		}
	}
	layer := func(int) string { return `{"mediaType":"` + MediaTypeChunks + `","digest":"` + emptySum + `"}` }
	config := `{"config":{"mediaType":"` + MediaTypeMetadata + `","digest":"` + emptySum + `"},"layers":`
	read := func(f func(*metadataReader) error) func(string) error {
		return func(text string) error {
			return f(&metadataReader{s: newScanner(strings.NewReader(text)), m: &Metadata{}})
		}
	}
	for name, c := range map[string]struct {
		text string
		read func(string) error
		says string
	}{
		"64 platforms":           {many(64, func(int) string { return `"linux/amd64"` }), read((*metadataReader).platforms), ""},
		"65 platforms":           {many(65, func(int) string { return `"linux/amd64"` }), read((*metadataReader).platforms), "lists more than 64 platforms"},
		"8192 images":            {many(8192, image("[]")), read((*metadataReader).images), ""},
		"8193 images":            {many(8193, image("[]")), read((*metadataReader).images), "lists more than 8192 images"},
		"32768 blobs of one":     {many(1, image(numbers(1<<15))), read((*metadataReader).images), ""},
		"32769 blobs of one":     {many(1, image(numbers(1<<15+1))), read((*metadataReader).images), "lists more than 32768 blobs of an image"},
		"262144 blobs of images": {many(8, image(numbers(1<<15))), read((*metadataReader).images), ""},
		"262145 blobs of images": {strings.TrimSuffix(many(8, image(numbers(1<<15))), "]") + "," + image("[0]")(8) + "]", read((*metadataReader).images), "has images with more than 262144 blobs together"},
		"4096 payloads":          {many(4096, func(i int) string { return fmt.Sprintf(`{"name":"p%04d"}`, i) }), read((*metadataReader).payloads), ""},
		"4097 payloads":          {many(4097, func(i int) string { return fmt.Sprintf(`{"name":"p%04d"}`, i) }), read((*metadataReader).payloads), "lists more than 4096 payloads"},
		"32768 blobs":            {many(1<<15, func(int) string { return `{"digest":"` + emptySum + `"}` }), read((*metadataReader).blobs), ""},
		"32769 blobs":            {many(1<<15+1, func(int) string { return `{"digest":"` + emptySum + `"}` }), read((*metadataReader).blobs), "lists more than 32768 blobs"},
		"4096 layers":            {config + many(4097, layer) + "}", decodeLayers, ""},
		"4097 layers":            {config + many(4098, layer) + "}", decodeLayers, "lists more than 4097 payloads"},
	} {
		err := c.read(c.text)
		if (err == nil) != (c.says == "") || err != nil && !strings.HasSuffix(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func decodeLayers(text string) error {
	in := &intake{h: &Header{}}
	return in.decodeMetaManifest(part{kind: entryMetaManifest, name: BlobPath(emptySum)}, strings.NewReader(text))
}

// The chunk table is compared with every blob that is one chunk or none.
func TestChunkTableOfBlobs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Metadata)
		table  []byte
		says   string
	}{
		"right":                     {func(*Metadata) {}, sampleTable(), ""},
		"an empty blob of a digest": {func(m *Metadata) { m.Blobs[2].Digest = smallSum }, sampleTable(), "blob " + smallSum + " is empty but has not the digest of nothing"},
		"another chunk":             {func(m *Metadata) { m.Blobs[1].Digest = emptySum }, sampleTable(), "blob " + emptySum + " is one chunk, whose digest differs"},
		"a whole chunk":             {func(m *Metadata) { m.Blobs[1].Size = 512 }, sampleTable(), ""},
		"cut in the second chunk":   {func(*Metadata) {}, sampleTable()[:HashSize+1], "cannot be read: EOF"},
		"cut in the last chunk":     {func(*Metadata) {}, sampleTable()[:3*HashSize-1], "cannot be read: unexpected EOF"},
	} {
		m := sampleMetadata()
		c.change(m)
		if got := m.checkTable(bytes.NewReader(c.table)); got != c.says {
			t.Errorf("%s: %q, want %q", name, got, c.says)
		}
	}
}
