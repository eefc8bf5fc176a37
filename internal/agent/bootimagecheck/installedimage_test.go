package bootimagecheck_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/agent/bootimagecheck"
)

// The installed image that a node recorded.
func TestVersion(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		files map[string]string
		want  string
	}{
		"the aleph file of CoreOS":           {map[string]string{"sysroot/.coreos-aleph-version.json": `{"build":"9.6.20251023-0","ref":"","imgid":"x"}`, "etc/os-release": "BUILD_ID=9.8.20260101-0\n"}, "9.6.20251023-0"},
		"a newer aleph file":                 {map[string]string{".coreos-aleph-version.json": `{"version":"42.20250101.3.0","build":"old"}`}, "42.20250101.3.0"},
		"bootc's":                            {map[string]string{"sysroot/.bootc-aleph.json": `{"image":"quay.example/os:9","version":"9.6.20251023-0"}`}, "9.6.20251023-0"},
		"a broken aleph file is passed over": {map[string]string{"sysroot/.coreos-aleph-version.json": `{`, "etc/os-release": "ID=x\nBUILD_ID=\"20250115\"\n"}, "20250115"},
		"a BUILD_ID that is no version":      {map[string]string{"etc/os-release": "BUILD_ID=rolling\n"}, ""},
		"nothing":                            {nil, ""},
		"an absurdly long text":              {map[string]string{"sysroot/.coreos-aleph-version.json": `{"build":"` + strings.Repeat("9", 500) + `"}`}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := bootimagecheck.InstalledVersion(tree(t, tc.files)); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		to := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// On its first boot a machine runs its installed image.
func TestBooted(t *testing.T) {
	t.Parallel()
	const aleph = ".coreos-aleph-version.json"
	for name, tc := range map[string]struct {
		files map[string]string
		want  string
	}{
		"installed counts first":     {map[string]string{aleph: `{"version":"42.20250101.3.0"}`, "etc/os-release": "OSTREE_VERSION='43.20260101.3.0'\n"}, "42.20250101.3.0"},
		"CoreOS without aleph":       {map[string]string{"etc/os-release": "VERSION_ID=42\nOSTREE_VERSION='42.20250101.3.0'\n"}, "42.20250101.3.0"},
		"Flatcar":                    {map[string]string{"etc/os-release": "ID=flatcar\nVERSION_ID=3815.2.0\n"}, "3815.2.0"},
		"Ubuntu":                     {map[string]string{"etc/os-release": "VERSION_ID=\"24.04\"\n"}, "24.04"},
		"a number alone is no build": {map[string]string{"etc/os-release": "VERSION_ID=\"12\"\n"}, ""},
	} {
		if got := bootimagecheck.BootedVersion(tree(t, tc.files)); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
