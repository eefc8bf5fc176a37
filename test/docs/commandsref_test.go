package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/refit-dev/refit/internal/cli/console"
)

// TestCommandsPage: docs/reference/commands.md is made from the command trees.
// cobra/doc would add two modules to go.mod for what pflag prints already.
func TestCommandsPage(t *testing.T) {
	// A page must not depend on whose machine writes it.
	t.Setenv("REFIT_LAB", "")
	var b strings.Builder
	b.WriteString("# Commands\n\nMade from the programs by `go test ./test/docs -update`. [Output, exit codes and JSON](cli.md) has what all commands\nshare.\n")
	b.WriteString("\n| exit code | meaning |\n| --- | --- |\n")
	for _, c := range []struct {
		code    int
		meaning string
	}{
		{console.ExitOK, "done"},
		{console.ExitInternal, "internal error, or a system could not be reached"},
		{console.ExitUsage, "wrong command line"},
		{console.ExitBlocked, "blocked: a person must act"},
		{console.ExitInProgress, "still in progress, or `--timeout` ended the wait"},
		{console.ExitFailed, "failed and halted"},
		{console.ExitVerification, "verification failed: a byte, digest or signature is wrong"},
		{console.ExitNothingToDo, "nothing to do (only with `--fail-if-noop`)"},
		{console.ExitInterrupted, "interrupted; work in the cluster continues"},
	} {
		fmt.Fprintf(&b, "| %d | %s |\n", c.code, c.meaning)
	}
	for _, name := range []string{"refit", "refit-lab"} {
		top := programs[name]()
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", name, escapeProse(sentence(top.Short)))
		writeFlags(&b, "Flags of every command", top.PersistentFlags())
		writeCommands(&b, top)
	}
	comparePage(t, "docs/reference/commands.md", withoutHome(t, b.String()))
}

// writeCommands writes the commands below a command, in the order of their names.
func writeCommands(b *strings.Builder, parent *cobra.Command) {
	for _, c := range parent.Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		fmt.Fprintf(b, "\n### %s\n\n%s\n", c.CommandPath(), escapeProse(sentence(c.Short)))
		if c.Runnable() {
			fmt.Fprintf(b, "\n```text\n%s\n```\n", strings.TrimSuffix(c.UseLine(), " [flags]"))
		}
		if c.Long != "" {
			writeProse(b, c.Long)
		}
		if c.Example != "" {
			fmt.Fprintf(b, "\n```sh\n%s\n```\n", strings.TrimSpace(c.Example))
		}
		writeFlags(b, "Flags", c.NonInheritedFlags())
		writeCommands(b, c)
	}
}

func writeFlags(b *strings.Builder, title string, flags *pflag.FlagSet) {
	if flags.HasAvailableFlags() {
		fmt.Fprintf(b, "\n%s:\n```text\n%s\n```\n", title, strings.TrimRight(flags.FlagUsages(), "\n"))
	}
}

// writeProse writes paragraphs; one with indented lines keeps its lines.
func writeProse(b *strings.Builder, text string) {
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if strings.Contains("\n"+paragraph, "\n  ") {
			fmt.Fprintf(b, "\n```text\n%s\n```\n", strings.Trim(paragraph, "\n"))
			continue
		}
		fmt.Fprintf(b, "\n%s\n", escapeProse(paragraph))
	}
}

// sentence ends a text with a full stop.
func sentence(s string) string {
	if strings.HasSuffix(s, ".") || strings.HasSuffix(s, "?") {
		return s
	}
	return s + "."
}

// escapeProse keeps <words> from being read as HTML.
func escapeProse(s string) string { return strings.ReplaceAll(s, "<", `\<`) }

// withoutHome replaces the directories of this machine's user.
func withoutHome(t *testing.T, s string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(filepath.Clean(cache), "~/.cache", filepath.Clean(home), "~").Replace(s)
}
