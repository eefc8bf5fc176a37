package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// header is a row of column names.
var header = regexp.MustCompile(`^([A-Z/]+ ){3,}[A-Z/]+$`)

// TestShownOutputs: what the README shows of a plan and of a status has the columns and labels of the
// demo as it was recorded. Values are those of another run.
func TestShownOutputs(t *testing.T) {
	t.Parallel()
	recorded := joined(string(readFile(t, filepath.Join(root, "docs/tutorial/demo.md"))))
	// The demo waits for nothing, so it shows no next step.
	written := string(readFile(t, filepath.Join(root, "internal/render/status.go")))
	blocks, _ := splitPage(t, filepath.Join(root, "README.md"))
	compared := 0
	for _, b := range blocks {
		if b.lang != "" {
			continue
		}
		for _, line := range b.lines {
			line = joined(line)
			label, _, isLabel := strings.Cut(line, ":")
			if header.MatchString(line) {
				label, isLabel = line, true
			}
			if !isLabel {
				continue
			}
			compared++
			if !strings.Contains(recorded, label) && !strings.Contains(written, `"`+label+": ") {
				t.Errorf("README.md shows %q, and the recorded demo does not", label)
			}
		}
	}
	if compared < 15 {
		t.Errorf("only %d lines compared", compared)
	}
}

// joined has single blanks between words.
func joined(line string) string { return strings.Join(strings.Fields(line), " ") }

// TestHowToOutputs: a test on nodes compares each sample output of a how-to page with the command's.
func TestHowToOutputs(t *testing.T) {
	t.Parallel()
	tests, err := filepath.Glob(filepath.Join(root, "test/e2e/howtos*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	sources := ""
	for _, file := range tests {
		sources += string(readFile(t, file))
	}
	files, err := filepath.Glob(filepath.Join(root, "docs/how-to/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, file := range files {
		blocks, _ := splitPage(t, file)
		for _, b := range blocks {
			if b.lang != "console" {
				continue
			}
			compared++
			if page := filepath.Base(file); !strings.Contains(sources, `compareLabels(t, "`+page+`"`) {
				t.Errorf("%s shows an output, and no test compares it with the command's (compareLabels)", page)
			}
		}
	}
	if compared == 0 {
		t.Error("no how-to page shows an output")
	}
}
