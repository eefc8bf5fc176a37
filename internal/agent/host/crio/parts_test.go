package crio

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/agent/host/cri"
)

// The records are those of containers-storage with the overlay driver, as CRI-O 1.34
// writes them.
func TestStoreParts(t *testing.T) {
	root := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("overlay-images/images.json", `[{"id":"aa","layer":"l2","big-data-names":["manifest","sha256:c","manifest-sha256:m","signatures"],
		"big-data-sizes":{"manifest":5,"sha256:c":7,"manifest-sha256:m":5},"big-data-digests":{"manifest":"sha256:m","sha256:c":"sha256:c","manifest-sha256:m":"sha256:m"}}]`)
	layers := `[{"id":"l1","compressed-diff-digest":"sha256:z1","diff-digest":"sha256:d1"},{"id":"l2","parent":"l1","diff-digest":"sha256:d2"}]`
	put("overlay-layers/layers.json", layers)
	got, err := storeParts(root, "aa")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "overlay-images", "aa")
	want := []cri.Part{
		{Digest: "sha256:m", File: filepath.Join(dir, "manifest"), Size: 5},
		{Digest: "sha256:c", File: filepath.Join(dir, "=c2hhMjU2OmM="), Size: 7},
		{Digest: "sha256:m", File: filepath.Join(dir, "=bWFuaWZlc3Qtc2hhMjU2Om0="), Size: 5},
		{Digest: "sha256:d2", Dir: filepath.Join(root, "overlay/l2/diff")},
		{Digest: "sha256:z1", Dir: filepath.Join(root, "overlay/l1/diff"), Base: true},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for name, c := range map[string]struct{ file, text string }{
		"a record of no bytes":          {"overlay-layers/layers.json", ""},
		"a layer of which is no record": {"overlay-layers/layers.json", `[{"id":"l2","parent":"l1","diff-digest":"sha256:d2"}]`},
		"no record of the image":        {"overlay-images/images.json", `[]`},
	} {
		put("overlay-layers/layers.json", layers)
		put(c.file, c.text)
		if parts, err := storeParts(root, "aa"); err == nil {
			t.Errorf("%s is taken for whole: %v", name, parts)
		}
	}
}
