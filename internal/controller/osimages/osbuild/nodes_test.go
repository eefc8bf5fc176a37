package osbuild

import (
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/osimage/imagebuild"
	"github.com/refit-dev/refit/internal/registry"
)

// What a Content cannot carry is refused before it is written, with what to do.
func TestPartsThatAreTooLarge(t *testing.T) {
	b := &v1alpha1.OSBuild{Spec: v1alpha1.OSBuildSpec{Base: "r/base@sha256:b"}}
	random := make([]byte, 800<<10)
	if _, err := rand.NewChaCha8([32]byte{1}).Read(random); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		layer []byte
		fits  bool
	}{
		"a layer that can be compressed": {[]byte(strings.Repeat("configuration ", 1<<20)), true},
		"one that cannot":                {random, false},
		"text of hex":                    {[]byte(hex.EncodeToString(random[:500<<10])), true},
	} {
		img := &imagebuild.AppendedImage{Blobs: []registry.Blob{{Digest: model.DigestOf(c.layer), Data: c.layer}}}
		data, err := partsOf(img, b)
		if (err == nil) != c.fits || err == nil && len(data) > mostParts || err != nil && !strings.Contains(err.Error(), "Put large files into a bundle as payloads") {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
	}
}
