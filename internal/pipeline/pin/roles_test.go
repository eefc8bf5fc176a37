package pin

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// A worker's share has no image of the control plane; layers that images share count once in
// a total, and in each group that has them.
func TestRoleShares(t *testing.T) {
	t.Parallel()
	h := &bundle.Header{Digest: "sha256:b", Metadata: &bundle.Metadata{
		Platforms: []string{"linux/amd64", "linux/arm64"},
		Images: []bundle.Image{
			{Name: "a:1", Digest: "sha256:1", Group: bundle.GroupControlPlane, Blobs: []int{0, 2}},
			{Name: "b:1", Digest: "sha256:2", Group: bundle.GroupNode, Blobs: []int{1, 2}},
		},
		Payloads: []bundle.Payload{{Name: "kubelet", Platform: "linux/amd64", Digest: "sha256:4", Blob: 3}},
		Blobs:    []bundle.Blob{{Digest: "sha256:1", Size: 1}, {Digest: "sha256:2", Size: 10}, {Digest: "sha256:3", Size: 100, UnpackedSize: 7}, {Digest: "sha256:4", Size: 1000}},
	}}
	got := RoleShares(h, nil)
	if len(got) != 4 {
		t.Fatalf("%d shares", len(got))
	}
	for i, want := range []struct {
		images, payloads int
		size, unpacked   int64
	}{{2, 1, 1111, 7}, {1, 1, 1110, 7}, {2, 0, 111, 7}, {1, 0, 110, 7}} {
		if g := got[i]; g.Images != want.images || g.Payloads != want.payloads || g.Size != want.size || g.UnpackedSize != want.unpacked {
			t.Errorf("share %d: %+v, want %+v", i, g, want)
		}
	}
	if g := got[0].Groups; len(g) != 2 || g[0].Name != bundle.GroupControlPlane || g[0].Size != 101 || g[1].Size != 110 {
		t.Errorf("groups: %+v", g)
	}
}

// For any bundle, a share is what a node of the role selects, and no worker stores more
// than a control-plane node.
func TestRoleSharesFollowTheRuleOfNodes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &bundle.Metadata{Platforms: []string{"linux/amd64"}}
		for range rapid.IntRange(1, 6).Draw(t, "blobs") {
			n := rapid.Int64Range(0, 1000)
			m.Blobs = append(m.Blobs, bundle.Blob{Size: n.Draw(t, "size"), UnpackedSize: n.Draw(t, "unpacked")})
		}
		for i := range rapid.IntRange(0, 6).Draw(t, "images") {
			name := string(rune('a'+i)) + ":1"
			m.Images = append(m.Images, bundle.Image{Name: name, Digest: name, Group: rapid.SampledFrom([]string{"control-plane", "node", "x"}).Draw(t, "group"),
				Blobs: rapid.SliceOfNDistinct(rapid.IntRange(0, len(m.Blobs)-1), 1, len(m.Blobs), rapid.ID).Draw(t, "of image")})
		}
		h := &bundle.Header{Digest: "b", Metadata: m}
		shares := RoleShares(h, nil)
		for _, s := range shares {
			if w := SelectNeeded(h, FromBundle(h, s.Needs), s.Platform, nil); s.Size != w.Bytes || s.Images != len(w.Images) {
				t.Fatalf("%+v, a node selects %d bytes", s, w.Bytes)
			}
		}
		if shares[1].Size > shares[0].Size || shares[1].Images > shares[0].Images {
			t.Fatalf("a worker stores more: %+v", shares)
		}
	})
}
