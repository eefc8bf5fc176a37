package bootimagecheck

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"github.com/refit-dev/refit/internal/osversion"
)

// alephs of CoreOS and of bootc.
var alephs = []string{"sysroot/.coreos-aleph-version.json", ".coreos-aleph-version.json", "sysroot/.bootc-aleph.json", ".bootc-aleph.json"}

// maxVersion text that is taken.
const maxVersion = 128

// InstalledVersion of the image below root, empty if nothing says it.
func InstalledVersion(root string) string {
	for _, name := range alephs {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			continue
		}
		var aleph struct{ Version, Build string }
		if json.Unmarshal(data, &aleph) != nil {
			continue
		}
		for _, v := range []string{aleph.Version, aleph.Build} {
			if v != "" && len(v) <= maxVersion {
				return v
			}
		}
	}
	return buildID(filepath.Join(root, "etc/os-release"))
}

// BootedVersion is the version of the image that a machine has booted for the first time:
// what it was born from, else what it runs, which is the same then. On a machine
// that was updated it is not.
func BootedVersion(root string) string {
	if v := InstalledVersion(root); v != "" {
		return v
	}
	return field(filepath.Join(root, "etc/os-release"), "OSTREE_VERSION", "VERSION_ID")
}

// buildID counts only if it is a version: some write other things there.
func buildID(path string) string { return field(path, "BUILD_ID") }

// field of an os-release file: the first of the names whose value is a version.
func field(path string, names ...string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	values := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		name, v, _ := strings.Cut(lines.Text(), "=")
		values[name] = strings.Trim(v, `"'`)
	}
	for _, n := range names {
		if v := values[n]; v != "" {
			if _, err := osversion.Parse(v); err == nil {
				return v
			}
		}
	}
	return ""
}
