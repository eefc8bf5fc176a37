package docs

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// notTyped is the comment above a block of commands that no test types word by word.
var notTyped = regexp.MustCompile(`^<!-- not typed: (.+) -->$`)

// howToRow is a row of test/e2e/testdata/howtos.yaml.
type howToRow struct {
	Test   string           `json:"test"`
	Blocks []int            `json:"blocks"`
	Also   map[string][]int `json:"also"`
	Why    string           `json:"why"`
}

// TestHowToTable: test/e2e/testdata/howtos.yaml has a row for each page of docs/how-to, with a
// test that exists. On a page whose commands a test types, each block of commands is in the row,
// or has a comment in the page that says why it is not typed. That the test types the blocks of
// the row, the test itself compares.
func TestHowToTable(t *testing.T) {
	t.Parallel()
	rows := map[string]howToRow{}
	if err := yaml.UnmarshalStrict(readFile(t, filepath.Join(root, "test/e2e/testdata/howtos.yaml")), &rows); err != nil {
		t.Fatal(err)
	}
	tests := declaredTests(t, filepath.Join(root, "test"), filepath.Join(root, "internal"), filepath.Join(root, "providers"))
	files, err := filepath.Glob(filepath.Join(root, "docs/how-to/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		page := filepath.Base(file)
		row, ok := rows[page]
		delete(rows, page)
		if !ok {
			t.Errorf("%s has no row in test/e2e/testdata/howtos.yaml", page)
			continue
		}
		for _, name := range append(slices.Collect(maps.Keys(row.Also)), row.Test) {
			if !tests[name] {
				t.Errorf("%s: there is no test %q", page, name)
			}
		}
		if len(row.Blocks) == 0 {
			if row.Why == "" {
				t.Errorf("%s is not typed, and the table does not say why", page)
			}
			continue
		}
		checkTyped(t, page, row, shellMarks(t, file))
	}
	for page := range rows {
		t.Errorf("the table has a row for %s, and there is no such page", page)
	}
}

// checkTyped compares the typed blocks of a page with its comments.
func checkTyped(t *testing.T, page string, row howToRow, marks []string) {
	t.Helper()
	if row.Test == "" {
		t.Errorf("%s: the table has typed blocks and no test", page)
	}
	all := slices.Concat(append(slices.Collect(maps.Values(row.Also)), row.Blocks)...)
	for i, reason := range marks {
		switch typed := slices.Contains(all, i+1); {
		case typed && reason != "":
			t.Errorf("%s: block %d is typed, and its comment says that it is not", page, i+1)
		case !typed && reason == "":
			t.Errorf("%s: block %d is not typed; type it in %s, or write above it <!-- not typed: REASON -->", page, i+1, row.Test)
		}
	}
	if last := slices.Max(all); last > len(marks) {
		t.Errorf("%s has %d blocks of commands, the table block %d", page, len(marks), last)
	}
}

// shellMarks are the blocks of commands of a page: the reason why one is not typed, or "".
func shellMarks(t *testing.T, page string) []string {
	t.Helper()
	var marks []string
	before, inside := "", false
	for line := range strings.SplitSeq(string(readFile(t, page)), "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			if inside = !inside; inside && line == "```sh" {
				reason := ""
				if m := notTyped.FindStringSubmatch(before); m != nil {
					reason = m[1]
				}
				marks = append(marks, reason)
			}
		}
		before = line
	}
	return marks
}

// declaredTests are the names of the tests in directories and below.
func declaredTests(t *testing.T, dirs ...string) map[string]bool {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	names := map[string]bool{}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			for _, m := range declared.FindAllStringSubmatch(string(readFile(t, path)), -1) {
				names[m[1]] = true
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}
