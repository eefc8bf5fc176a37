package bundlewriter

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

const someMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\n"

// resourcesOf is what a bundle of these sources has for the controller.
func resourcesOf(t *testing.T, source string) string {
	t.Helper()
	path, h := create(t, Options{Sources: []string{source}, Version: "1.0.0"})
	p := h.PayloadByName(bundle.PayloadResources, "linux/amd64")
	if p == nil || p.Platform != "" {
		t.Fatalf("no payload for every platform: %+v", h.Metadata.Payloads)
	}
	f, err := bundlereader.OpenPath(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(f.Blob(p.Blob)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A file, or a folder by name, becomes one payload; what the site would refuse is
// refused here.
func TestResourcesAreASource(t *testing.T) {
	if got := resourcesOf(t, "resources:"+writeFile(t, "a.yaml", someMap, 0o600)); got != "---\n"+someMap {
		t.Errorf("of a file: %q", got)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"b.yml": strings.ReplaceAll(someMap, "name: a", "name: b"), "a.yaml": someMap, "sub/c.json": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`, "notes.txt": "not a manifest"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := resourcesOf(t, "resources:"+dir)
	a, b, c := strings.Index(got, "name: a"), strings.Index(got, "name: b"), strings.Index(got, `"name":"c"`)
	if a < 0 || b < a || c < b || strings.Contains(got, "not a manifest") {
		t.Errorf("of a folder: %q", got)
	}
}

func TestResourcesThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, says string }{
		"a Secret":         {"---\n" + someMap + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\n", "document 2: Secret s is refused"},
		"one in a list":    {"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: s}}\n", "Secret s is refused"},
		"refit's own kind": {"apiVersion: refit.dev/v1alpha1\nkind: Bundle\nmetadata: {name: b}\n", "must not approve"},
		"no name":          {"apiVersion: v1\nkind: ConfigMap\n", "metadata.name"},
		"no object":        {"- a\n", "no object"},
	} {
		_, err := Create(t.Context(), filepath.Join(t.TempDir(), "b"), Options{Sources: []string{"resources:" + writeFile(t, "x.yaml", c.text, 0o600)}, Version: "1.0.0"}, nil)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	for _, path := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none")} {
		if _, err := Create(t.Context(), filepath.Join(t.TempDir(), "b"), Options{Sources: []string{"resources:" + path}, Version: "1.0.0"}, nil); err == nil {
			t.Errorf("%s made a bundle", path)
		}
	}
}
