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
	full := FromBundle(h, "linux/amd64")
	if len(full.Images) != 2 || len(full.Payloads) != 3 || full.Payloads[0].Digest != "sha256:3" || full.Payloads[1].Name != "runc" || full.Payloads[2].Name != "file.motd" {
		t.Fatalf("a node wants every image, its own platform's payloads and files for configurations, nothing else: %+v", full)
	}
	if !Covers(full, h, "linux/amd64") {
		t.Error("what is wanted covers")
	}
	if Covers(full, h, "linux/arm64") {
		t.Error("another platform's kubelet does not")
	}
	other := full
	other.Images = []model.PinSetImage{{Name: "a:1", Digest: "sha256:1", Bundle: "another"}, full.Images[1]}
	if !Covers(other, h, "linux/amd64") {
		t.Error("the same image from another bundle does")
	}
	other.Images = []model.PinSetImage{{Name: "a:1", Digest: "sha256:9"}, full.Images[1]}
	if Covers(other, h, "linux/amd64") {
		t.Error("another image of the same name does not")
	}
}

// A file for several platforms is wanted once.
func TestWantedOnce(t *testing.T) {
	t.Parallel()
	h := &bundle.Header{Metadata: &bundle.Metadata{Payloads: []bundle.Payload{
		{Name: "file.a", Platform: "linux/amd64", Digest: "1"}, {Name: "file.a", Platform: "linux/arm64", Digest: "2"}, {Name: "file.b", Digest: "3"}}}}
	l := FromBundle(h, "linux/arm64")
	if len(l.Payloads) != 2 || l.Payloads[0].Digest != "2" || l.Payloads[1].Name != "file.b" {
		t.Errorf("%+v", l.Payloads)
	}
}
