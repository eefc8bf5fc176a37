package components

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A fresh machine gets what a lab needs from `make deps`, which demo, test, e2e and
// test-capi run first.
func TestMakefileInstallsWhatALabNeeds(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^DEBIAN := (.*)$`).FindSubmatch(text)
	if list == nil {
		t.Fatal("the Makefile has no list DEBIAN")
	}
	installed := strings.Fields(string(list[1]))
	for _, p := range slices.Concat(DebianPackages, crioPackages) {
		if !slices.Contains(installed, p.Name) {
			t.Errorf("make deps does not install %s", p.Name)
		}
	}
	for _, target := range []string{"demo", "test", "e2e", "test-capi"} {
		if !regexp.MustCompile(`(?m)^` + target + `: deps `).Match(text) {
			t.Errorf("make %s does not run deps first", target)
		}
	}
}
