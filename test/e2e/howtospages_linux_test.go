package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// builds types the part of os-images.md without a cluster: a base of the test gets the
// configuration of the samples, and travels in a bundle.
func (h *howTos) builds(t *testing.T) {
	t.Helper()
	const page = "os-images.md"
	base, err := layout.Write(filepath.Join(h.dir, "base"), empty.Index)
	must(t, err)
	must(t, base.AppendImage(appImage(t, h.s.AppImage()), layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "9"})))
	sample, err := os.ReadFile("../../config/samples/nodeconfig.yaml")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(h.dir, "nodeconfig.yaml"), sample, 0o644))
	said := h.types(t, page, 3, "refit.key", "keys/refit.key")
	for _, word := range []string{"/etc/sysctl.d/90-edge.conf: image", "os.bundle: "} {
		if !strings.Contains(said, word) {
			t.Errorf("the commands never printed %q: %s", word, said)
		}
	}
}
