package structure

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// maxLines is the size of a room: a package above it says why in its doc.go
// with a line that begins with "Size:".
const maxLines = 2500

func TestPackageSize(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		total := 0
		for _, f := range p.GoFiles {
			if strings.HasPrefix(f, "zz_generated") {
				continue
			}
			total += lines(t, filepath.Join(p.Dir, f))
		}
		if total <= maxLines {
			continue
		}
		doc, err := os.ReadFile(filepath.Join(p.Dir, "doc.go"))
		if err != nil || !strings.Contains(string(doc), "// Size:") {
			t.Errorf("%s has %d lines (limit %d): split it, or give the reason in doc.go in a line that begins with \"Size:\"", p.ImportPath, total, maxLines)
		}
	}
}

func lines(t *testing.T, path string) int {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		n++
	}
	return n
}
