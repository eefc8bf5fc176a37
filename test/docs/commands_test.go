package story

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/cli"
	"github.com/refit-dev/refit/internal/lab/labcmd"
)

// TestDocsCommandsExist: every refit command in a code block of the docs is one
// that exists, with flags and arguments it takes. What they do is run by the
// stories here and in test/e2e.
func TestDocsCommandsExist(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	guides, err := filepath.Glob("../../docs/how-to/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(append(pages, guides...), "../../README.md", "../../CONTRIBUTING.md")
	found := 0
	for _, page := range pages {
		for _, line := range commands(t, page) {
			found++
			if err := check(line[0], line[1:]); err != nil {
				t.Errorf("%s: %q: %v", filepath.Base(page), strings.Join(line, " "), err)
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d commands found in the docs: the test looks at the wrong lines", found)
	}
}

func check(program string, args []string) error {
	root := cli.New("refit")
	if program == "refit-lab" {
		root = labcmd.New()
	}
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if cmd == root {
		return os.ErrNotExist
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// word is one word of a shell line, or a quoted phrase.
var word = regexp.MustCompile(`"[^"]*"|\S+`)

// commands are the calls of refit and refit-lab in a page's code blocks, program first.
func commands(t *testing.T, page string) [][]string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	joined := strings.ReplaceAll(string(text), "\\\n", " ")
	var out [][]string
	inside := false
	for line := range strings.SplitSeq(joined, "\n") {
		if strings.HasPrefix(line, "```") {
			inside = !inside
			continue
		}
		line, _, _ = strings.Cut(line, "  #")
		words := word.FindAllString(line, -1)
		for i := range words {
			words[i] = strings.Trim(words[i], `"`)
		}
		if !inside || len(words) == 0 || !slices.Contains([]string{"refit", "refit-lab"}, path.Base(words[0])) {
			continue
		}
		words[0] = path.Base(words[0])
		out = append(out, words)
	}
	return out
}
