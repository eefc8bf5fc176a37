package cli

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// widest is the longest line of the help, on a terminal of any width.
const widest = 100

// leastColumn is the least width of a second column.
const leastColumn = 25

// fitHelp wraps the help of a command, and of its subcommands, to the width of the
// terminal. Output to a program or a file stays unchanged.
func fitHelp(root *cobra.Command) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		out := c.OutOrStdout()
		f, ok := out.(interface{ Fd() uintptr })
		if !ok || !term.IsTerminal(int(f.Fd())) {
			help(c, args)
			return
		}
		width, _, err := term.GetSize(int(f.Fd()))
		if err != nil || width < 40 {
			width = 80
		}
		var b bytes.Buffer
		c.SetOut(&b)
		help(c, args)
		c.SetOut(out)
		_, _ = io.WriteString(out, wrap(b.String(), min(width, widest)))
	})
}

// description matches up to the second column of a line.
var description = regexp.MustCompile(`^ +\S.*?\s{2,}`)

// wrap breaks lines at spaces. It fills paragraphs, which are not indented; the rest
// of an indented line goes below its second column.
func wrap(text string, width int) string {
	var b strings.Builder
	prose := ""
	flush := func() {
		if prose != "" {
			fill(&b, prose, 0, width)
			prose = ""
		}
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		switch {
		case line != "" && line[0] != ' ' && line[0] != '\t':
			prose = strings.TrimSpace(prose + " " + line)
			if !strings.HasSuffix(line, ":") {
				continue
			}
			flush() // a heading
		default:
			flush()
			indent := len(line) - len(strings.TrimLeft(line, " "))
			if at := utf8.RuneCountInString(description.FindString(line)); at > 0 && at <= width-leastColumn {
				indent = at
			}
			fill(&b, line, indent, width)
		}
	}
	flush()
	return b.String()
}

// fill writes one line as several; all but the first are indented.
func fill(b *strings.Builder, line string, indent, width int) {
	for utf8.RuneCountInString(line) > width {
		runes := []rune(line)
		at := breakAt(runes, indent, width)
		if at < 0 {
			break
		}
		b.WriteString(strings.TrimRight(string(runes[:at]), " ") + "\n")
		line = strings.Repeat(" ", indent) + strings.TrimLeft(string(runes[at:]), " ")
	}
	b.WriteString(line + "\n")
}

// breakAt returns the last space that fits, else the end of a long word, -1 for none.
func breakAt(line []rune, indent, width int) int {
	for at := width; at > indent; at-- {
		if line[at] == ' ' && strings.TrimSpace(string(line[:at])) != "" {
			return at
		}
	}
	for at := width; at < len(line); at++ {
		if line[at] == ' ' {
			return at
		}
	}
	return -1
}
