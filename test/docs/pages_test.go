package docs

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the generated pages of docs/reference")

// root of the repository, from this package.
const root = "../.."

// pages returns every Markdown file of the repository that people read.
func pages(t *testing.T) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == "bin" || strings.HasPrefix(d.Name(), ".") && path != root) {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".md") {
			out = append(out, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 30 {
		t.Fatalf("only %d pages found below %s", len(out), root)
	}
	return out
}

// A block is a fenced block of a page.
type block struct {
	lang  string
	lines []string
}

// splitPage returns the fenced blocks of a page and its text without them.
func splitPage(t *testing.T, page string) (blocks []block, prose string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	var open *block
	for line := range strings.SplitSeq(string(text), "\n") {
		lang, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && open == nil:
			open = &block{lang: lang}
		case fence:
			blocks = append(blocks, *open)
			open = nil
		case open != nil:
			open.lines = append(open.lines, line)
		default:
			out.WriteString(line + "\n")
		}
	}
	if open != nil {
		t.Errorf("%s: a fenced block is not closed", page)
	}
	return blocks, out.String()
}

// comparePage compares a generated page with its file, or writes it with -update.
func comparePage(t *testing.T, page, want string) {
	t.Helper()
	page = filepath.Join(root, page)
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if string(got) == want {
		return
	}
	gotLines, wantLines := strings.Split(string(got), "\n"), strings.Split(want, "\n")
	for i := range min(len(gotLines), len(wantLines)) {
		if gotLines[i] != wantLines[i] {
			t.Fatalf("%s:%d: has %q, the program gives %q; run go test ./test/docs -update", page, i+1, gotLines[i], wantLines[i])
		}
	}
	t.Fatalf("%s: has %d lines, the program gives %d; run go test ./test/docs -update", page, len(gotLines), len(wantLines))
}
