package cli

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// Users read the help of every command on consoles of 80 columns and less. No line is
// longer unless one word is, no word is lost, and every command has a description.
func TestHelpFitsAConsole(t *testing.T) {
	t.Parallel()
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		var b bytes.Buffer
		c.SetOut(&b)
		if err := c.Help(); err != nil {
			t.Fatal(err)
		}
		if c.Short == "" {
			t.Errorf("%s says nothing of itself", c.CommandPath())
		}
		for _, width := range []int{60, 80} {
			shown := wrap(b.String(), width)
			if got, want := strings.Join(strings.Fields(shown), " "), strings.Join(strings.Fields(b.String()), " "); got != want {
				t.Errorf("%s: the words are others at %d columns:\n%s", c.CommandPath(), width, shown)
			}
			for line := range strings.Lines(shown) {
				line = strings.TrimRight(line, "\n")
				if utf8.RuneCountInString(line) > width && len(strings.Fields(line)) > 1 {
					t.Errorf("%s: a line of more than %d columns: %s", c.CommandPath(), width, line)
				}
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(New("refit"))
}

func TestWrap(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"prose is filled again":         {"one two three four five six seven eight nine ten\neleven\n\ntwelve\n", "one two three four five six seven eight\nnine ten eleven\n\ntwelve\n"},
		"the second column stays one":   {"  --to s   one two three four five six seven eight\n", "  --to s   one two three four five six\n           seven eight\n"},
		"a narrow one is none":          {"  --a-long-flag string   one two three four five\n", "  --a-long-flag string   one two three\n  four five\n"},
		"an example keeps its lines":    {"  a b\n  c d\n", "  a b\n  c d\n"},
		"a heading stands alone":        {"Flags:\n  -y  do it now, or tomorrow, or never again\n", "Flags:\n  -y  do it now, or tomorrow, or never\n      again\n"},
		"a word that is long is whole":  {strings.Repeat("a", 50) + " b\n", strings.Repeat("a", 50) + "\nb\n"},
		"nothing to do, nothing is new": {"a\n\n\n  b\n", "a\n\n\n  b\n"},
	} {
		if got := wrap(c.in, 40); got != c.want {
			t.Errorf("%s:\n%q, want\n%q", name, got, c.want)
		}
	}
}
