package bundle_test

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// allocated is how many bytes f takes from the heap, freed ones included.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// What a header costs follows from what is valid in it, not from how many members its
// lists pretend to have: 3.2 GB were once built of 8 MB.
func TestCostlyHeadersAreRefusedCheaply(t *testing.T) {
	if testing.Short() {
		t.Skip("headers of many megabytes take seconds")
	}
	const most = 4 << 20 // bytes of memory, in addition to what is kept of the input
	accepted := map[string]bool{"as many blobs as have room": true, "an unknown member": true}
	for name, raw := range bundletest.Costly(4<<20-4096, 7<<20) {
		t.Run(name, func(t *testing.T) {
			var err, errSummary error
			spent := allocated(func() { _, err = bundle.ParseHeader(raw) })
			spentSummary := allocated(func() { _, errSummary = bundle.ReadSummary(bytes.NewReader(raw)) })
			t.Logf("%d bytes: %d KiB to parse, %d KiB for a summary: %v", len(raw), spent>>10, spentSummary>>10, err)
			if accepted[name] {
				if err != nil || errSummary != nil || max(spent, spentSummary) > 6*uint64(len(raw)) {
					t.Errorf("%d bytes cost %d and %d: %v, %v", len(raw), spent, spentSummary, err, errSummary)
				}
				return
			}
			var corrupt *bundle.CorruptError
			if !errors.As(err, &corrupt) || !errors.As(errSummary, &corrupt) || strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Fatalf("got %v and %v", err, errSummary)
			}
			if max(spent, spentSummary) > most {
				t.Errorf("%d bytes cost %d and %d", len(raw), spent, spentSummary)
			}
		})
	}
}

// The same parts beyond what the format allows are refused by their length alone.
func TestPartsThatAreTooLargeAreNotRead(t *testing.T) {
	if testing.Short() {
		t.Skip("headers of many megabytes take seconds")
	}
	for name, raw := range bundletest.Costly(8<<20, 16<<20) {
		if name == "as many blobs as have room" {
			continue
		}
		if spent := allocated(func() {
			if _, err := bundle.ReadSummary(bytes.NewReader(raw)); err == nil {
				t.Errorf("%s: accepted", name)
			}
		}); spent > 1<<20 {
			t.Errorf("%s: cost %d bytes", name, spent)
		}
	}
}

// A byte of a bundle's JSON costs a bounded number of bytes of memory, also if the JSON
// was altered.
func TestMemoryForAByteOfAHeaderIsBounded(t *testing.T) {
	const fixed, factor = 256 << 10, 24
	rapid.Check(t, func(rt *rapid.T) {
		piece := rapid.SampledFrom([]string{`{}`, `[]`, `{"a":[]}`, `""`, `0`, `{"digest":"sha256:00"}`, `null`, `{"name":"a","blobs":[0,1]}`})
		some := func(name string) string {
			n := rapid.IntRange(0, 3000).Draw(rt, name+" times")
			return strings.Repeat(","+piece.Draw(rt, name), n)
		}
		member := rapid.SampledFrom([]string{"images", "payloads", "blobs", "platforms", "other"}).Draw(rt, "member")
		meta := `{"formatVersion":1,"minRefit":"0.1.0","name":"test","version":"1.0.0","chunkSize":512,"` + member + `":[` + piece.Draw(rt, "first") + some("members") + `]}`
		raw := bundletest.Raw{Metadata: []byte(meta), Images: some("images"), Payloads: some("payloads")}.Header()
		if spent := allocated(func() { _, _ = bundle.ParseHeader(raw) }); spent > fixed+factor*uint64(len(raw)) {
			rt.Fatalf("%d bytes cost %d", len(raw), spent)
		}
	})
}

// A header of another bundle than the one that was asked for is refused by its digest:
// it says nothing of what is wrong inside.
func TestAnotherBundleIsRefusedBeforeItIsDecoded(t *testing.T) {
	want := bundle.DigestOf([]byte("another"))
	for name, raw := range map[string][]byte{
		"a good one":                 header(t, bundletest.Bytes(t, bundletest.Tiny())),
		"one that cannot be decoded": bundletest.Raw{Metadata: []byte("{}"), Images: ",[[["}.Header(),
	} {
		var other *bundle.OtherBundleError
		if _, err := bundle.ParseHeaderOf(want, raw); !errors.As(err, &other) || other.Want != want {
			t.Errorf("%s, parsed: %v", name, err)
		}
		if _, err := bundle.ReadHeader(bytes.NewReader(raw), want); !errors.As(err, &other) {
			t.Errorf("%s, read: %v", name, err)
		}
	}
	// One that only pretends to be it, by the name of its entry.
	raw := bundletest.Raw{Metadata: []byte("{}"), Images: ",[[["}.Header()
	at := bytes.Index(raw, []byte("blobs/sha256/"))
	h := bundle.TarHeader(bundle.BlobPath(want), sizeAt(t, raw, at))
	copy(raw[at:], h[:])
	var corrupt *bundle.CorruptError
	if _, err := bundle.ParseHeaderOf(want, raw); !errors.As(err, &corrupt) || !strings.Contains(err.Error(), "the bytes have digest") {
		t.Errorf("the wrong bytes: %v", err)
	}
}

func sizeAt(t *testing.T, raw []byte, at int) (n int64) {
	t.Helper()
	for _, c := range raw[at+124 : at+135] {
		n = n<<3 | int64(c-'0')
	}
	return n
}

// Both ways to read a header find the same.
func TestASummaryIsTheHeaderWithoutItsTable(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		file := bundletest.Bytes(t, anySpec(rt), bundletest.Key(1))
		h := parse(t, file)
		s, err := bundle.ReadSummary(bytes.NewReader(file))
		if err != nil {
			rt.Fatal(err)
		}
		if s.Raw != nil || s.Chunks != nil || s.Digest != h.Digest || s.FileSize() != h.FileSize() || s.HeaderSize() != int64(len(h.Raw)) ||
			s.ChunkCount() != int64(h.Chunks.Len()) || len(s.Metadata.Blobs) != len(h.Metadata.Blobs) || len(s.Signatures) != 1 || s.SlotOffset() != h.SlotOffset() {
			rt.Fatalf("%+v\n%+v", s, h)
		}
	})
}

// BenchmarkHeader keeps the numbers of a large bundle: two million chunks.
func BenchmarkHeader(b *testing.B) {
	raw := bundletest.Large()
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := bundle.ReadSummary(bytes.NewReader(raw)); err != nil {
			b.Fatal(err)
		}
	}
}

// Sizes are summed to see whether a bundle fits on a disk: no sum of what a header may
// say overflows, and none can be less than its parts.
func TestSizesThatCannotBeAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*bundletest.Parts)
		want  string
	}{
		"an image of 2^62 unpacked":        {func(p *bundletest.Parts) { p.Meta.Images[0].UnpackedSize = 1 << 62 }, "unpacked size"},
		"a blob of 2^63-1 unpacked":        {func(p *bundletest.Parts) { p.Meta.Blobs[2].UnpackedSize = 1<<63 - 1 }, "unpacked size"},
		"blobs that sum up":                {func(p *bundletest.Parts) { p.Meta.Blobs[2].UnpackedSize, p.Meta.Blobs[3].UnpackedSize = 1<<50, 1 }, "unpack to more"},
		"less than its layers":             {func(p *bundletest.Parts) { p.Meta.Images[0].UnpackedSize-- }, "its unpacked size is declared as"},
		"more than its layers":             {func(p *bundletest.Parts) { p.Meta.Images[0].UnpackedSize++ }, "its unpacked size is declared as"},
		"more chunks than a header may be": {func(p *bundletest.Parts) { p.Meta.Blobs[2].Size = 1 << 40 }, "chunks"},
	} {
		p := bundletest.Make(t, bundletest.Tiny())
		c.spoil(&p)
		if _, err := bundle.ParseHeader(p.Header(t)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
