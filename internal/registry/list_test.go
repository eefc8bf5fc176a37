//go:build linux

package registry

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/registry/registrytest"
)

func TestReaderReadsARepository(t *testing.T) {
	t.Parallel()
	s := registrytest.Start(t)
	r, err := NewReader()
	if err != nil {
		t.Fatal(err)
	}
	if tags, err := r.Tags(t.Context(), s.Ref("none")); err != nil || len(tags) != 0 {
		t.Errorf("a repository that is not there: %v, %v", tags, err)
	}
	created := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	one := s.Push("app", registrytest.Image{Version: "1.0.0", Layers: []string{"base", "app"}, Created: created, Labels: map[string]string{"dev.refit.definition": "d1"}}, "1.0.0", "latest")
	two := s.Push("app", registrytest.Image{Version: "1.0.1", Layers: []string{"base", "app 2"}, Platforms: []string{"linux/arm64", "linux/amd64"}}, "1.0.1")
	want := map[string]string{"1.0.0": one, "latest": one, "1.0.1": two}
	s.Requests()
	tags, err := r.Tags(t.Context(), s.Ref("app"))
	if d := cmp.Diff(want, tags); d != "" || err != nil {
		t.Errorf("%v: %s", err, d)
	}
	if asked := s.Requests(); len(asked) != 1+len(want) {
		t.Errorf("%d requests for a listing of %d tags: %v", len(asked), len(want), asked)
	}
	images, err := r.Images(t.Context(), s.Ref("app"), []string{one, two})
	if err != nil {
		t.Fatal(err)
	}
	a, b := images[0], images[1]
	if a.Digest != one || a.Labels["org.opencontainers.image.version"] != "1.0.0" || a.Labels["dev.refit.definition"] != "d1" || !a.Created.Equal(created) || len(a.Layers) != 2 || !slices.Equal(a.Platforms, []string{"linux/amd64"}) || a.Children != nil {
		t.Errorf("%+v", a)
	}
	if b.Digest != two || len(b.Children) != 2 || !slices.Equal(b.Platforms, []string{"linux/amd64", "linux/arm64"}) || a.Config != b.Config || a.Config == "" {
		t.Errorf("%+v", b)
	}
	if c, err := r.Image(t.Context(), s.Ref("app:1.0.1")); err != nil || c.Digest != two {
		t.Errorf("by its tag: %+v, %v", c, err)
	}
}

func TestReaderSaysWhatFailed(t *testing.T) {
	t.Parallel()
	s := registrytest.Start(t)
	r, err := NewReader()
	if err != nil {
		t.Fatal(err)
	}
	for name, ref := range map[string]string{"no such tag": s.Ref("app:1"), "no reference": "A B"} {
		if _, err := r.Image(t.Context(), ref); err == nil || !strings.Contains(err.Error(), ref) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.Stop()
	if tags, err := r.Tags(t.Context(), s.Ref("app")); err == nil {
		t.Errorf("a registry that is down has tags: %v", tags)
	}
}
