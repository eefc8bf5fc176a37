package oci

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
)

func TestTheSameBinariesMakeTheSameImage(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	for _, n := range SelfImage.Programs {
		if err := os.WriteFile(filepath.Join(bin, n), []byte("binary "+n), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	name, first, err := SelfImage.Write(bin, filepath.Join(dir, "a"), "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	if name != "refit.dev/refit:1.2.3" {
		t.Errorf("name %s", name)
	}
	_, second, err := SelfImage.Write(bin, filepath.Join(dir, "a"), "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	if first != second {
		t.Errorf("two builds of one input: %s and %s", first, second)
	}
	idx, err := layout.ImageIndexFromPath(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := idx.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Manifests) != 1 || m.Manifests[0].Digest.String() != first {
		t.Errorf("the layout holds %v, want one image %s", m.Manifests, first)
	}
}

func TestAMissingBinaryIsNamed(t *testing.T) {
	t.Parallel()
	if _, _, err := SelfImage.Write(t.TempDir(), filepath.Join(t.TempDir(), "a"), "1"); err == nil {
		t.Fatal("an image without binaries was made")
	}
}
