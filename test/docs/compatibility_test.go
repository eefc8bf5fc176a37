package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCompatibilityPage: docs/reference/compatibility.md names the versions with which the lab runs,
// and the oldest API server that the chart accepts.
func TestCompatibilityPage(t *testing.T) {
	t.Parallel()
	page := string(readFile(t, filepath.Join(root, "docs/reference/compatibility.md")))
	found := 0
	for file, expression := range map[string]string{
		"internal/lab/components/versions.go":   `(?:\{version: |containerdVersion += |crioVersion += )"(.+?)"`,
		"internal/lab/components/clusterapi.go": `clusterAPIVersion = "(.+?)"`,
		"charts/refit/Chart.yaml":               `kubeVersion: ">=(\d+\.\d+)\.0-0"`,
	} {
		for _, m := range regexp.MustCompile(expression).FindAllStringSubmatch(string(readFile(t, filepath.Join(root, file))), -1) {
			found++
			if !strings.Contains(page, m[1]) {
				t.Errorf("the page does not name %s of %s", m[1], file)
			}
		}
	}
	if found < 7 {
		t.Errorf("only %d versions found", found)
	}
}
