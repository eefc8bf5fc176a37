package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// hop is a row of a walk: its number, the linked file and the function in it.
var hop = regexp.MustCompile("(?m)^\\| (\\d+) \\| \\[[^\\]]+\\]\\(([^)]+)\\) \\| `(\\w+)` \\|")

// maxWalkPackages is how many packages a reader visits for one value.
const maxWalkPackages = 14

// TestWalksNameTheirFunctions: every hop of a walk links a file that has the function, and
// a walk visits at most 14 packages.
func TestWalksNameTheirFunctions(t *testing.T) {
	t.Parallel()
	page := filepath.Join(root, "docs/explanation/walks.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	walks := strings.Split(string(text), "\n## ")[1:]
	if len(walks) != 2 {
		t.Fatalf("%s has %d walks, want 2", page, len(walks))
	}
	for _, walk := range walks {
		title, _, _ := strings.Cut(walk, "\n")
		hops, packages := hop.FindAllStringSubmatch(walk, -1), map[string]bool{}
		if rows := strings.Count(walk, "\n| ") - 2; len(hops) != rows {
			t.Errorf("%s: %d of %d rows are hops with a file and a function", title, len(hops), rows)
		}
		for _, h := range hops {
			packages[filepath.Dir(h[2])] = true
			source, err := os.ReadFile(filepath.Join(filepath.Dir(page), h[2]))
			if err != nil {
				t.Errorf("%s, hop %s: %v", title, h[1], err)
				continue
			}
			declared := regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + h[3] + `\(`)
			if !declared.Match(source) {
				t.Errorf("%s, hop %s: %s has no function %s", title, h[1], h[2], h[3])
			}
		}
		if len(packages) > maxWalkPackages {
			t.Errorf("%s visits %d packages, at most %d", title, len(packages), maxWalkPackages)
		}
	}
}
