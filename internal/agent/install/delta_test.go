package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/filesystem"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundledelta"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// A first installation from a delta is refused, as a file and on a stick, with what helps: the full bundle, or
// the peers of this node. Nothing of the machine is touched.
func TestTheFirstInstallationTakesNoDelta(t *testing.T) {
	p, dir := root(t), t.TempDir()
	var files []*bundlereader.File
	for _, version := range []string{"1.0.0", "1.1.0"} {
		s := bundletest.Tiny()
		s.Version, s.Images[0].Group = version, bundle.GroupRefit
		path := filepath.Join(dir, version)
		if err := os.WriteFile(path, bundletest.Bytes(t, s), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := bundlereader.OpenPath(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	delta := filepath.Join(dir, "delta")
	if err := bundledelta.Create(t.Context(), files[0], files[1], delta, nil); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"a file": delta, "a stick": mediumWith(t, delta)} {
		_, err := Install(t.Context(), Options{Places: p, NoStart: true, Printf: discard(t), From: path})
		if err == nil {
			t.Errorf("%s was taken", name)
			continue
		}
		for _, want := range []string{"it is a delta", files[0].Header().Digest, files[1].Header().Digest, "refit bundle restore --base OLD DELTA", "refit-agent install without --from"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: no %q in %v", name, want, err)
			}
		}
		if left, err := os.ReadDir(p.Root); err != nil || len(left) != 0 {
			t.Errorf("%s: %v, %v after a refusal", name, left, err)
		}
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(t.Context(), Options{Places: p, NoStart: true, Printf: discard(t), From: mediumWith(t, empty)}); err == nil || strings.Contains(err.Error(), "without --from") {
		t.Errorf("a stick without a delta: %v", err)
	}
}

// mediumWith is the image of a stick with a file.
func mediumWith(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d, err := filesystem.NewExFAT(16<<20, "STICK", 1, []filesystem.NewFile{{Name: "release", Size: int64(len(content))}})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "stick"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(16 << 20); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(content, d.Offset(0)); err != nil {
		t.Fatal(err)
	}
	if err := d.WriteTables(f); err != nil {
		t.Fatal(err)
	}
	if err := d.WriteStart(f); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}
