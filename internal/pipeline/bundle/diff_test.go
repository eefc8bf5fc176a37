package bundle

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDiff(t *testing.T) {
	a := &Metadata{
		Images:   []Image{{Name: "gone:1", Digest: "d1"}, {Name: "moved:1", Digest: "d2"}, {Name: "same:1", Digest: "d3"}},
		Payloads: []Payload{{Name: "kubelet", Platform: "linux/amd64", Digest: "p1"}},
		Blobs:    []Blob{{Digest: "b1", Size: 1}, {Digest: "b2", Size: 10}},
	}
	b := &Metadata{
		Images:   []Image{{Name: "moved:1", Digest: "d4"}, {Name: "new:1", Digest: "d5"}, {Name: "same:1", Digest: "d3"}},
		Payloads: []Payload{{Name: "kubelet", Platform: "linux/amd64", Digest: "p2"}, {Name: "any", Digest: "p3"}},
		Blobs:    []Blob{{Digest: "b2", Size: 10}, {Digest: "b3", Size: 100}},
	}
	want := Difference{
		Changes: []Change{
			{"image", "gone:1", ChangeRemoved, "d1", ""},
			{"image", "moved:1", ChangeChanged, "d2", "d4"},
			{"image", "new:1", ChangeAdded, "", "d5"},
			{"image", "same:1", ChangeSame, "d3", "d3"},
			{"payload", "any", ChangeAdded, "", "p3"},
			{"payload", "kubelet (linux/amd64)", ChangeChanged, "p1", "p2"},
		},
		SharedBytes: 10, RemovedBytes: 1, AddedBytes: 100,
	}
	if diff := cmp.Diff(want, Diff(a, b)); diff != "" {
		t.Error(diff)
	}
}
