package pin

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// The whole of what is wanted: images, payloads, their blobs and chunks, and each
// thing that is missing while the rest is still picked.
func TestTheWholeWant(t *testing.T) {
	t.Parallel()
	h := header()
	hold := model.PinSet{
		Images: []model.PinSetImage{{Name: "x:1", Digest: "d0", Bundle: "sha256:other"}, {Name: "a:1", Digest: "d9", Bundle: "sha256:b"}, {Name: "m:1", Digest: "d8", Base: "d7", Bundle: "sha256:b"}, {Name: "b:1", Digest: "d1", Bundle: "sha256:b"}},
		Payloads: []model.PinSetPayload{{Name: "kubelet", Digest: "d3", Bundle: "sha256:other"}, {Name: "kubelet", Digest: "d9", Bundle: "sha256:b"},
			{Name: "kubelet", Digest: "d3", Bundle: "sha256:b"}},
	}
	got := SelectNeeded(h, hold, "linux/amd64", nil)
	want := Needed{Images: h.Metadata.Images[1:2], Payloads: h.Metadata.Payloads, Blobs: []int{1, 2, 3}, Bytes: 1110, Missing: []model.Blocker{
		{Reason: "ImagesMissing", Message: "the hold list wants image a:1 with digest d9 of bundle sha256:b, which does not have it", Fix: "correct the PinnedImageSet, or bring a bundle that has the image"},
		{Reason: "ImagesMissing", Message: "image m:1 with digest d8 was made of an image with digest d7 of bundle sha256:b, which does not have it", Fix: "correct the PinnedImageSet, or bring a bundle that has the image"},
		{Reason: "PayloadMissing", Message: "the hold list wants payload kubelet with digest d9 of bundle sha256:b, which does not have it for linux/amd64", Fix: "bring a bundle with the payload for this platform"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The share of a platform: another OS, another architecture, and an index that
// names none.
func TestBelowAPlatform(t *testing.T) {
	t.Parallel()
	contents := map[string]string{
		"top": `{"manifests":[{"digest":"lin-amd","platform":{"os":"linux","architecture":"amd64"}},{"digest":"win-amd","platform":{"os":"windows","architecture":"amd64"}},` +
			`{"digest":"lin-arm","platform":{"os":"linux","architecture":"arm64"}},{"digest":"any"},{"digest":"top"},{"digest":"lin-amd","platform":{"os":"linux","architecture":"amd64"}},{"digest":""}]}`,
		"lin-amd": `{"config":{"digest":"c"},"layers":[{"digest":"l1"},{"digest":"l2"}]}`,
		"any":     `{"layers":[{"digest":"no-config"}]}`,
		"c":       `not json`,
	}
	read := func(d string) []byte {
		if text, ok := contents[d]; ok {
			return []byte(text)
		}
		return nil
	}
	if diff := cmp.Diff([]string{"top", "lin-amd", "any", "c", "l1", "l2"}, ImageDigests("top", "linux/amd64", read)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"top", "lin-arm", "any"}, ImageDigests("top", "linux/arm64/v8", read)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"gone"}, ImageDigests("gone", "linux/amd64", read)); diff != "" {
		t.Error(diff)
	}
}

// The blobs of a share come in the order of the file, and nothing that the bundle
// does not count among the image's.
func TestShareIsInOrder(t *testing.T) {
	t.Parallel()
	h := &bundle.Header{Metadata: &bundle.Metadata{Platforms: []string{"linux/amd64", "linux/arm64"}, Blobs: []bundle.Blob{{Digest: "l2"}, {Digest: "c"}, {Digest: "m"}, {Digest: "l1"}, {Digest: "foreign"}}}}
	img := &bundle.Image{Digest: "m", Blobs: []int{0, 1, 2, 3}}
	read := func(d string) []byte {
		if d == "m" {
			return []byte(`{"config":{"digest":"c"},"layers":[{"digest":"l1"},{"digest":"l2"},{"digest":"foreign"}]}`)
		}
		return nil
	}
	if diff := cmp.Diff([]int{0, 1, 2, 3}, PlatformBlobs(h, img, "linux/amd64", read)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(img.Blobs, PlatformBlobs(h, img, "linux/amd64", nil)); diff != "" {
		t.Error("without a reader all are wanted: ", diff)
	}
}

// Room to the byte, in order, and need of one byte where there is none.
func TestSpaceInNumbers(t *testing.T) {
	t.Parallel()
	for size, want := range map[int64]int64{0: 0, 1: 4, 1000: 4000, -5: 0} {
		if got := SpaceToFetch(size); got != want {
			t.Errorf("%d: %d", size, got)
		}
	}
	vs := CheckSpace("n", map[string]int64{StateFS: 2, ImagesFS: 1, ProgramsFS: 1}, []Room{{Name: ImagesFS, ID: "8:3", Free: -7}, {Name: StateFS, ID: "8:1", Free: 1}, {Name: ProgramsFS, ID: "8:2", Free: 0}})
	var got []string
	for _, v := range vs {
		got = append(got, v.Message)
	}
	want := []string{"node n needs 2 bytes for state, 1 bytes are free above the kubelet's thresholds", "node n needs 1 bytes for programs, 0 bytes are free above the kubelet's thresholds",
		"node n needs 1 bytes for images, 0 bytes are free above the kubelet's thresholds"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	files := func(need, left int64, known bool, name string) int {
		return len(checkFiles("n", map[string]int64{name: need}, []Room{{Name: name, Files: left, FilesKnown: known}}))
	}
	if files(1<<20, 15, true, ImagesFS) != 1 || files(1<<20, 15, true, StateFS) != 0 || files(1<<20, 15, false, ImagesFS) != 0 || files(1, -1, true, ImagesFS) != 1 || files(0, -1, true, ImagesFS) != 0 {
		t.Error("files")
	}
	if v := checkFiles("n", map[string]int64{ImagesFS: 1}, []Room{{Name: ImagesFS, Files: -3, FilesKnown: true}})[0]; v.Message != "node n needs about 0 files (inodes) for images, 0 may be made above the kubelet's thresholds" {
		t.Error(v.Message)
	}
}

// The chunks of what is wanted, in the order of the file.
func TestChunksOfAWant(t *testing.T) {
	t.Parallel()
	h, err := bundle.ParseHeader(bundletest.Make(t, bundletest.Tiny()).Header(t))
	if err != nil {
		t.Fatal(err)
	}
	var all, want []int
	for b := range h.Metadata.Blobs {
		first, n := h.Chunks.OfBlob(b)
		for c := range n {
			if b%2 == 1 {
				want = append(want, first+c)
			}
		}
		if b%2 == 1 {
			all = append(all, b)
		}
	}
	if got := (Needed{Blobs: all}).Chunks(h.Chunks); len(want) == 0 || cmp.Diff(want, got) != "" {
		t.Errorf("%v, want %v", got, want)
	}
}
