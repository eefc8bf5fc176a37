package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// `refit approve` and `refit plan --to` take the digest of a bundle in a file system.
func TestResolveBundleOnAMedium(t *testing.T) {
	t.Parallel()
	mke2fs, err := exec.LookPath("mke2fs")
	if err != nil {
		mke2fs = "/usr/sbin/mke2fs"
	}
	if _, err := os.Stat(mke2fs); err != nil {
		t.Skip("mke2fs is not installed: make deps")
	}
	dir, image := t.TempDir(), filepath.Join(t.TempDir(), "image")
	add := func(name, version string) {
		s := bundletest.Tiny()
		s.Version = version
		if err := os.WriteFile(filepath.Join(dir, name), bundletest.Bytes(t, s), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(mke2fs, "-q", "-F", "-d", dir, image, "8M").CombinedOutput(); err != nil {
			t.Fatalf("mke2fs: %v\n%s", err, out)
		}
	}
	resolve := func(path, name string) string {
		t.Helper()
		h, err := bundleHeader(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := resolveBundle(t.Context(), nil, path); err != nil || got != h.Digest {
			t.Errorf("%s: %s, want %s: %v", path, got, h.Digest, err)
		}
		return h.Digest
	}
	add("one", "1.2.3")
	resolve(image, "one")
	add("two", "1.2.4")
	first, second := resolve(image+"#one", "one"), resolve(image+"#two", "two")
	_, err = resolveBundle(t.Context(), nil, image)
	if console.ExitCode(err) != console.ExitUsage || !strings.Contains(err.Error(), first) || !strings.Contains(err.Error(), second) {
		t.Errorf("several bundles: %v", err)
	}
}
