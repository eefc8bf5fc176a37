package structure

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	// leastLines of code of a package that has only one importer: a smaller one is
	// part of its importer.
	leastLines = 150
	// maxLines of a package; a larger one gives the reason in its doc.go, in a line that
	// begins with "Size:".
	maxLines = 2500
	// maxPackages with code. It shrinks; only a new product area raises it, and 150 is the limit.
	maxPackages = 150
)

func TestPackageSize(t *testing.T) {
	t.Parallel()
	all := packages(t)
	importers := map[string][]string{}
	withCode := 0
	for _, p := range all {
		for _, i := range p.Imports {
			importers[i] = append(importers[i], p.ImportPath)
		}
	}
	for _, p := range all {
		code, total := 0, 0
		for _, f := range p.GoFiles {
			if strings.HasPrefix(f, "zz_generated") {
				continue
			}
			c, n := lines(t, filepath.Join(p.Dir, f))
			code, total = code+c, total+n
		}
		if code > len(p.GoFiles) { // more than package clauses: the others hold tests only
			withCode++
		}
		if from := importers[p.ImportPath]; code < leastLines && len(from) == 1 {
			t.Errorf("%s has %d lines of code (at least %d) and one importer: make it part of %s", p.ImportPath, code, leastLines, from[0])
		}
		if total <= maxLines {
			continue
		}
		doc, err := os.ReadFile(filepath.Join(p.Dir, "doc.go"))
		if err != nil || !strings.Contains(string(doc), "// Size:") {
			t.Errorf("%s has %d lines (limit %d): split it, or give the reason in doc.go in a line that begins with \"Size:\"", p.ImportPath, total, maxLines)
		}
	}
	if withCode > maxPackages {
		t.Errorf("%d packages have code (limit %d): merge one instead of adding one", withCode, maxPackages)
	}
}

// lines counts the lines of a file; code are those that are neither empty nor a comment.
func lines(t *testing.T, path string) (code, all int) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		all++
		if l := strings.TrimSpace(s.Text()); l != "" && !strings.HasPrefix(l, "//") {
			code++
		}
	}
	return code, all
}
