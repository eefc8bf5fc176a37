package pin

import (
	"testing"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

func TestCovers(t *testing.T) {
	h := &bundle.Header{Digest: "sha256:b", Metadata: &bundle.Metadata{
		Images: []bundle.Image{{Name: "a:1", Digest: "sha256:1"}, {Name: "b:1", Digest: "sha256:2"}},
		Payloads: []bundle.Payload{{Name: "kubelet", Platform: "linux/amd64", Digest: "sha256:3"}, {Name: "kubelet", Platform: "linux/arm64", Digest: "sha256:4"},
			{Name: "file.motd", Digest: "sha256:7"}, {Name: "manual.pdf", Digest: "sha256:5"}, {Name: "runc", Platform: "linux/amd64", Digest: "sha256:6"}}}}
	full := FromBundle(h, Needs{"linux/amd64", true})
	if len(full.Images) != 2 || len(full.Payloads) != 3 || full.Payloads[0].Digest != "sha256:3" || full.Payloads[1].Name != "runc" || full.Payloads[2].Name != "file.motd" {
		t.Fatalf("a node wants every image, its own platform's payloads and files for configurations, nothing else: %+v", full)
	}
	if !Covers(full, h, Needs{"linux/amd64", true}) {
		t.Error("what is wanted covers")
	}
	if Covers(full, h, Needs{"linux/arm64", true}) {
		t.Error("another platform's kubelet does not")
	}
	other := full
	other.Images = []model.PinSetImage{{Name: "a:1", Digest: "sha256:1", Bundle: "another"}, full.Images[1]}
	if !Covers(other, h, Needs{"linux/amd64", true}) {
		t.Error("the same image from another bundle does")
	}
	other.Images = []model.PinSetImage{{Name: "a:1", Digest: "sha256:9"}, full.Images[1]}
	if Covers(other, h, Needs{"linux/amd64", true}) {
		t.Error("another image of the same name does not")
	}
}

// A file for several platforms is wanted once.
func TestWantedOnce(t *testing.T) {
	t.Parallel()
	h := &bundle.Header{Metadata: &bundle.Metadata{Payloads: []bundle.Payload{
		{Name: "file.a", Platform: "linux/amd64", Digest: "1"}, {Name: "file.a", Platform: "linux/arm64", Digest: "2"}, {Name: "file.b", Digest: "3"}}}}
	l := FromBundle(h, Needs{"linux/arm64", true})
	if len(l.Payloads) != 2 || l.Payloads[0].Digest != "2" || l.Payloads[1].Name != "file.b" {
		t.Errorf("%+v", l.Payloads)
	}
}

// Workers hold no image that only a control plane starts; other groups are for all nodes.
func TestImagesByRole(t *testing.T) {
	t.Parallel()
	h := &bundle.Header{Digest: "sha256:b", Metadata: &bundle.Metadata{Images: []bundle.Image{
		{Name: "apiserver:1", Digest: "sha256:1", Group: bundle.GroupControlPlane}, {Name: "proxy:1", Digest: "sha256:2", Group: bundle.GroupNode},
		{Name: "app:1", Digest: "sha256:3", Group: bundle.GroupWorkload}, {Name: "disk:1", Digest: "sha256:4", Group: "storage"}, {Name: "refit:1", Digest: "sha256:5", Group: bundle.GroupRefit}}}}
	worker, master := Needs{Platform: "linux/amd64"}, Needs{Platform: "linux/amd64", ControlPlane: true}
	got := FromBundle(h, worker)
	if len(got.Images) != 4 || got.Images[0].Name != "proxy:1" {
		t.Errorf("a worker holds %+v", got.Images)
	}
	if all := FromBundle(h, master); len(all.Images) != 5 {
		t.Errorf("a control-plane node holds %+v", all.Images)
	}
	if !Covers(got, h, worker) || Covers(got, h, master) {
		t.Error("what a worker holds is enough for a worker, and for no control-plane node")
	}
	h.Metadata.Blobs = []bundle.Blob{{Digest: "sha256:1", Size: 100, UnpackedSize: 1}, {Digest: "sha256:2", Size: 10, UnpackedSize: 1}}
	h.Metadata.Images = h.Metadata.Images[:2]
	h.Metadata.Images[0].Blobs, h.Metadata.Images[1].Blobs = []int{0}, []int{1}
	if w, m := Frees(h, nil, worker), Frees(h, nil, master); w.Images != 1 || m.Images != 2 || w.Bytes != 21 || m.Bytes != 222 {
		t.Errorf("a worker frees %+v, a control-plane node %+v", w, m)
	}
}
