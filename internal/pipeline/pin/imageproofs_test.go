package pin_test

import (
	"testing"

	"github.com/refit-dev/refit/internal/imageproof"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// TestNodesLeaveImageProofs: the payload with signatures of images is in no node's set.
func TestNodesLeaveImageProofs(t *testing.T) {
	t.Parallel()
	h := &bundle.Header{Digest: "sha256:x", Metadata: &bundle.Metadata{Payloads: []bundle.Payload{{Name: imageproof.PayloadName}, {Name: bundle.PayloadKubelet}}}}
	set := pin.FromBundle(h, pin.Needs{Platform: "linux/amd64"})
	if len(set.Payloads) != 1 || set.Payloads[0].Name != bundle.PayloadKubelet {
		t.Errorf("nodes store %v", set.Payloads)
	}
}
