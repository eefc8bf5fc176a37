//go:build linux

package registry

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// push an artifact with these files, as oras does, and return its digest.
func push(t *testing.T, s *registrytest.Server, tag string, files ...string) string {
	t.Helper()
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	for _, f := range files {
		var err error
		if img, err = mutate.AppendLayers(img, static.NewLayer([]byte(f), "application/vnd.example.stream+json")); err != nil {
			t.Fatal(err)
		}
	}
	ref, err := name.ParseReference(s.Ref("boot-images:" + tag))
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

func TestArtifact(t *testing.T) {
	s := registrytest.Start(t)
	digest := push(t, s, "one", `{"a":1}`)
	push(t, s, "two", `{}`, `[]`)
	p := NewPoller(own(t), time.Now)
	at := Place{Repository: s.Ref("boot-images")}
	for _, what := range []string{"one", digest} {
		if data, d, err := p.Artifact(t.Context(), at, what, 100); err != nil || string(data) != `{"a":1}` || d != digest {
			t.Errorf("%s: %s %s %v", what, data, d, err)
		}
	}
	for what, want := range map[string]string{"two": "2 layers", "three": "has no three", "sha256:" + strings.Repeat("0", 64): "has no sha256:000"} {
		if _, _, err := p.Artifact(t.Context(), at, what, 100); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	if _, _, err := p.Artifact(t.Context(), at, "one", 3); err == nil || !strings.Contains(err.Error(), "at most 3 are read") {
		t.Error(err)
	}
}
