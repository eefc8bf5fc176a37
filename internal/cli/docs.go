package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/refit-dev/refit/docs"
	"github.com/refit-dev/refit/internal/cli/console"
)

// maxHits is how many pages a search prints; maxExcerpt how many characters of a line.
const maxHits, maxExcerpt = 20, 160

func newDocs(o *options) *cobra.Command {
	var search string
	c := &cobra.Command{
		Use:   "docs [TOPIC]",
		Short: "Print the documentation, without a network",
		Long: `Print the documentation of this version. It is in the program: no network is needed.

Without an argument, list the topics. With TOPIC, print its page: its name, or its name
with the section (how-to/support). --search lists the pages with all the words.`,
		Example: `  refit docs
  refit docs update-from-a-stick | less
  refit docs --search "disk full"`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: completeTopics,
		RunE: func(_ *cobra.Command, args []string) error {
			pages, err := docs.All()
			switch {
			case err != nil:
				return err
			case len(args) > 0 && search != "":
				return console.UsageErrorf("give a topic or --search, not both")
			case search != "":
				return o.searchDocs(pages, search)
			case len(args) > 0:
				return o.printTopic(pages, args[0])
			}
			return o.listTopics()
		},
	}
	c.Flags().StringVar(&search, "search", "", "list the pages that have all these words")
	return c
}

func completeTopics(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	pages, err := docs.All()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	out := make([]string, 0, len(pages))
	for _, p := range pages {
		out = append(out, p.Topic)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

func (o *options) listTopics() error {
	for _, s := range docs.Sections {
		pages, err := docs.Pages(s)
		if err != nil {
			return err
		}
		fmt.Fprintf(o.Out, "%s\n", s.Title)
		for _, p := range pages {
			fmt.Fprintf(o.Out, "  %-36s %s\n", p.Topic, p.Title)
		}
		fmt.Fprintln(o.Out)
	}
	_, err := fmt.Fprintln(o.Out, "refit docs TOPIC prints a page, refit docs --search WORDS finds pages.")
	return err
}

func (o *options) printTopic(pages []docs.Page, topic string) error {
	p, near := docs.Find(pages, topic)
	if p != nil {
		if len(near) > 0 {
			o.Note("this is %s; pages of the same name: %s", p.Topic, strings.Join(near, ", "))
		}
		_, err := fmt.Fprint(o.Out, docs.Text(p, o.textWidth()))
		return err
	}
	if len(near) > 0 {
		return console.UsageErrorf("there is no topic %q; near it: %s", topic, strings.Join(near, ", "))
	}
	return console.UsageErrorf("there is no topic %q; refit docs lists them, refit docs --search %q finds pages", topic, topic)
}

func (o *options) searchDocs(pages []docs.Page, words string) error {
	hits := docs.Search(pages, strings.Fields(words))
	if len(hits) == 0 {
		return fmt.Errorf("no page has all of %q: try fewer words", words)
	}
	for _, h := range hits[:min(len(hits), maxHits)] {
		line := []rune(h.Line)
		if len(line) > maxExcerpt {
			line = append(line[:maxExcerpt], []rune(" ...")...)
		}
		fmt.Fprintf(o.Out, "%s: %s\n    %s\n", h.Topic, h.Title, string(line))
	}
	if more := len(hits) - maxHits; more > 0 {
		fmt.Fprintf(o.Out, "%d more; add a word to see fewer.\n", more)
	}
	return nil
}

// textWidth is the width of the terminal, bounded as help is.
func (o *options) textWidth() int {
	if f, ok := o.Out.(interface{ Fd() uintptr }); ok && term.IsTerminal(int(f.Fd())) {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width >= 40 {
			return min(width, widest)
		}
	}
	return widest
}
