package pin

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

func header() *bundle.Header {
	return &bundle.Header{Digest: "sha256:b", Metadata: &bundle.Metadata{
		Blobs: []bundle.Blob{{Digest: "d0", Size: 1}, {Digest: "d1", Size: 10}, {Digest: "d2", Size: 100}, {Digest: "d3", Size: 1000}},
		Images: []bundle.Image{
			{Name: "a:1", Digest: "d0", Blobs: []int{0, 2}},
			{Name: "b:1", Digest: "d1", Blobs: []int{1, 2}},
		},
		Payloads: []bundle.Payload{{Name: "kubelet", Platform: "linux/amd64", Digest: "d3", Blob: 3}},
	}}
}

// Only what the node needs.
func TestWanted(t *testing.T) {
	type want struct {
		Blobs   []int
		Bytes   int64
		Missing []string
	}
	for name, c := range map[string]struct {
		hold model.PinSet
		want want
	}{
		"nothing is held: nothing is wanted": {},
		"a blob that two images share is wanted once": {
			hold: model.PinSet{Images: []model.PinSetImage{{Name: "a:1", Digest: "d0", Bundle: "sha256:b"}, {Name: "b:1", Digest: "d1", Bundle: "sha256:b"}}},
			want: want{Blobs: []int{0, 1, 2}, Bytes: 111}},
		"what is of another bundle is not asked of this one": {
			hold: model.PinSet{Images: []model.PinSetImage{{Name: "a:1", Digest: "d0", Bundle: "sha256:other"}}}},
		"a name with another digest is a blocker, not a guess": {
			hold: model.PinSet{Images: []model.PinSetImage{{Name: "a:1", Digest: "d9", Bundle: "sha256:b"}}},
			want: want{Missing: []string{"ImagesMissing"}}},
		"a payload is for the node's platform": {
			hold: model.PinSet{Payloads: []model.PinSetPayload{{Name: "kubelet", Digest: "d3", Bundle: "sha256:b"}}},
			want: want{Blobs: []int{3}, Bytes: 1000}},
		"a payload that is not there": {
			hold: model.PinSet{Payloads: []model.PinSetPayload{{Name: "kubeadm", Digest: "d3", Bundle: "sha256:b"}}},
			want: want{Missing: []string{"PayloadMissing"}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := SelectNeeded(header(), c.hold, "linux/amd64", nil)
			got := want{Blobs: w.Blobs, Bytes: w.Bytes}
			for _, v := range w.Missing {
				got.Missing = append(got.Missing, v.Reason)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Fatal(d)
			}
		})
	}
}

// Of an index only this platform's share; step by step, as its
// parts arrive.
func TestShareOfAPlatform(t *testing.T) {
	contents := map[string]string{
		"index": `{"manifests":[{"digest":"m-amd","platform":{"os":"linux","architecture":"amd64"}},{"digest":"m-arm","platform":{"os":"linux","architecture":"arm64"}}]}`,
		"m-amd": `{"config":{"digest":"c-amd"},"layers":[{"digest":"shared"},{"digest":"l-amd"},{"digest":"not-in-the-bundle"}]}`,
		"m-arm": `{"config":{"digest":"c-arm"},"layers":[{"digest":"shared"},{"digest":"l-arm"}]}`,
		"c-amd": `{"config":{"Env":[]},"os":"linux"}`,
	}
	names := []string{"index", "m-amd", "c-amd", "shared", "l-amd", "m-arm", "c-arm", "l-arm"}
	h := &bundle.Header{Digest: "b", Metadata: &bundle.Metadata{Platforms: []string{"linux/amd64", "linux/arm64"},
		Images: []bundle.Image{{Name: "a:1", Digest: "index"}}}}
	for i, n := range names {
		h.Metadata.Blobs = append(h.Metadata.Blobs, bundle.Blob{Digest: n, Size: 1})
		h.Metadata.Images[0].Blobs = append(h.Metadata.Images[0].Blobs, i)
	}
	here := map[string]bool{}
	read := func(d string) []byte {
		if here[d] {
			return []byte(contents[d])
		}
		return nil
	}
	hold := model.PinSet{Images: []model.PinSetImage{{Name: "a:1", Digest: "index", Bundle: "b"}}}
	for _, step := range []struct {
		arrives string
		want    []int
	}{
		{"", []int{0}}, {"index", []int{0, 1}}, {"m-amd", []int{0, 1, 2, 3, 4}}, {"c-amd", []int{0, 1, 2, 3, 4}},
	} {
		here[step.arrives] = true
		if d := cmp.Diff(step.want, SelectNeeded(h, hold, "linux/amd64", read).Blobs); d != "" {
			t.Fatalf("after %q: %s", step.arrives, d)
		}
	}
	h.Metadata.Platforms = h.Metadata.Platforms[:1]
	if got := SelectNeeded(h, hold, "linux/amd64", read).Blobs; len(got) != len(names) {
		t.Fatalf("a bundle for one platform: %v", got)
	}
}

// The blocker says node, needed and free bytes.
func TestCheckSpace(t *testing.T) {
	two := []Room{{Name: StateFS, ID: "8:1", Free: 100}, {Name: ImagesFS, ID: "8:2", Free: 50}}
	one := []Room{{Name: StateFS, ID: "8:1", Free: 100}, {Name: ImagesFS, ID: "8:1", Free: 90}}
	for name, c := range map[string]struct {
		need  map[string]int64
		rooms []Room
		want  []string
	}{
		"it fits":                    {need: map[string]int64{StateFS: 100, ImagesFS: 50}, rooms: two},
		"one of two disks is full":   {need: map[string]int64{StateFS: 10, ImagesFS: 51}, rooms: two, want: []string{"node n3 needs 51 bytes for images, 50 bytes are free above the kubelet's thresholds"}},
		"names on one disk share it": {need: map[string]int64{StateFS: 50, ImagesFS: 50}, rooms: one, want: []string{"node n3 needs 100 bytes for state and images, 90 bytes are free above the kubelet's thresholds"}},
		"files are counted where they have a limit": {need: map[string]int64{ImagesFS: 1 << 20}, rooms: []Room{{Name: ImagesFS, ID: "8:1", Free: 2 << 20, Files: 15, FilesKnown: true}},
			want: []string{"node n3 needs about 16 files (inodes) for images, 15 may be made above the kubelet's thresholds"}},
		"there are enough files":                                       {need: map[string]int64{ImagesFS: 1 << 20}, rooms: []Room{{Name: ImagesFS, ID: "8:1", Free: 2 << 20, Files: 16, FilesKnown: true}}},
		"a file system without a limit of files":                       {need: map[string]int64{ImagesFS: 1 << 20}, rooms: []Room{{Name: ImagesFS, ID: "8:1", Free: 2 << 20}}},
		"no files left, and nothing is needed":                         {need: map[string]int64{ImagesFS: 0}, rooms: []Room{{Name: ImagesFS, ID: "8:1", Files: -1, FilesKnown: true}}},
		"who needs nothing is never stopped, even above the threshold": {need: map[string]int64{StateFS: 0}, rooms: []Room{{Name: StateFS, ID: "8:1", Free: -5}}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, v := range CheckSpace("n3", c.need, c.rooms) {
				got = append(got, v.Message)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Fatal(d)
			}
		})
	}
}

func TestSpaceIsNeverPromisedTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		free := rapid.Int64Range(0, 1000).Draw(t, "free")
		a, b := rapid.Int64Range(0, 1000).Draw(t, "state"), rapid.Int64Range(0, 1000).Draw(t, "images")
		rooms := []Room{{Name: StateFS, ID: "x", Free: free}, {Name: ImagesFS, ID: "x", Free: free}}
		refused := len(CheckSpace("n", map[string]int64{StateFS: a, ImagesFS: b}, rooms)) > 0
		if refused != (a+b > free) {
			t.Fatalf("%d + %d of %d: refused=%v", a, b, free, refused)
		}
	})
}
