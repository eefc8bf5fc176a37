package bootimagecheck

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"github.com/refit-dev/refit/internal/componentversion"
)

// alephs are the files of CoreOS and of bootc with the version of the installed image.
var alephs = []string{"sysroot/.coreos-aleph-version.json", ".coreos-aleph-version.json", "sysroot/.bootc-aleph.json", ".bootc-aleph.json"}

// maxVersion is the longest version that is accepted, in bytes.
const maxVersion = 128

// InstalledVersion is the version of the image below root, empty if no file has it.
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
// the installed image, or else the running OS, which is the same then. After an update of
// the machine it is not.
func BootedVersion(root string) string {
	if v := InstalledVersion(root); v != "" {
		return v
	}
	return osReleaseField(filepath.Join(root, "etc/os-release"), "OSTREE_VERSION", "VERSION_ID")
}

// buildID counts only if it is a version: some distributions write other values there.
func buildID(path string) string { return osReleaseField(path, "BUILD_ID") }

// osReleaseField is the first of the named fields of an os-release file that is a version.
func osReleaseField(path string, names ...string) string {
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
			if _, err := componentversion.ParseOS(v); err == nil {
				return v
			}
		}
	}
	return ""
}
