// Package birth reads from which image a node's disk was made.
//
// Promise: what the node itself recorded when its disk was made, never what it
// runs now: a live update changes the one and not the other. What nothing
// recorded is empty.
//
// Sources, the first that says something counts: the aleph files of CoreOS and
// bootc, then BUILD_ID of os-release where it is a version.
//
// Input: a root directory. Output: a version as text. Caller: the agent.
package birth

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

// longest text that is taken.
const longest = 128

// Version of the image below root, empty if nothing says it.
func Version(root string) string {
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
			if v != "" && len(v) <= longest {
				return v
			}
		}
	}
	return buildID(filepath.Join(root, "etc/os-release"))
}

// buildID counts only if it is a version: some write other things there.
func buildID(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		v, ok := strings.CutPrefix(lines.Text(), "BUILD_ID=")
		v = strings.Trim(v, `"'`)
		if _, err := osversion.Parse(v); ok && err == nil {
			return v
		}
	}
	return ""
}
