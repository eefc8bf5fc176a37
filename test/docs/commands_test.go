package docs

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli"
	"github.com/refit-dev/refit/internal/lab/labcmd"
)

// programs whose command trees the docs are compared with.
var programs = map[string]func() *cobra.Command{
	"refit":     func() *cobra.Command { return cli.New("refit") },
	"refit-lab": labcmd.New,
}

// TestShownCommandsExist: every call of refit, refit-lab or make in a code block of a
// page exists, with the flags and the number of arguments that it takes. The
// stories in test/story and test/e2e run them.
func TestShownCommandsExist(t *testing.T) {
	t.Parallel()
	found := 0
	for _, page := range pages(t) {
		for _, call := range calls(t, page) {
			found++
			if err := checkCall(t, call[0], call[1:]); err != nil {
				t.Errorf("%s: %q: %v", page, strings.Join(call, " "), err)
			}
		}
	}
	if found < 60 {
		t.Errorf("only %d commands found in the docs: the test reads the wrong lines", found)
	}
}

func checkCall(t *testing.T, program string, args []string) error {
	t.Helper()
	if program == "make" {
		return checkTarget(t, args)
	}
	top := programs[program]()
	cmd, rest, err := top.Find(args)
	if err != nil {
		return err
	}
	if cmd == top {
		return os.ErrNotExist
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// checkTarget wants a rule of the Makefile for each target.
func checkTarget(t *testing.T, targets []string) error {
	t.Helper()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range targets {
		if !strings.Contains(target, "=") && !strings.Contains("\n"+string(makefile), "\n"+target+":") {
			return fmt.Errorf("the Makefile has no target %s", target)
		}
	}
	return nil
}

// word is one word of a shell line, or a quoted phrase; $(...) counts as one word.
var word = regexp.MustCompile(`"[^"]*"|'[^']*'|\$\([^)]*\)|\S+`)

// inner is a command in a command: $(refit-lab kubeconfig).
var inner = regexp.MustCompile(`\$\(([^)]*)\)`)

// calls are the calls of refit, refit-lab and make in a page's code blocks, program first.
func calls(t *testing.T, page string) [][]string {
	t.Helper()
	blocks, _ := splitPage(t, page)
	var out [][]string
	for _, b := range blocks {
		if !slices.Contains([]string{"", "sh", "console"}, b.lang) {
			continue
		}
		joined := strings.ReplaceAll(strings.Join(b.lines, "\n"), "\\\n", " ")
		for line := range strings.SplitSeq(joined, "\n") {
			line, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(line), "$ "), "sudo "), "  #")
			parts := []string{line}
			for _, m := range inner.FindAllStringSubmatch(line, -1) {
				parts = append(parts, m[1])
			}
			for _, part := range parts {
				part, _, _ = strings.Cut(part, " | ")
				words := word.FindAllString(part, -1)
				for i := range words {
					words[i] = strings.Trim(words[i], `"'`)
				}
				if len(words) == 0 {
					continue
				}
				words[0] = path.Base(words[0])
				if words[0] == "make" || programs[words[0]] != nil {
					out = append(out, words)
				}
			}
		}
	}
	return out
}
