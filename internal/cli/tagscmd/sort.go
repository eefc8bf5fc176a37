package tagscmd

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/render"
)

// sortView is what `refit tags sort -o json` prints.
type sortView struct {
	APIVersion      string `json:"apiVersion"`
	Kind            string `json:"kind"`
	Scheme          string `json:"scheme"`
	imagetag.Sorted `json:",inline"`
}

func newSort(a *inputs.Access) *cobra.Command {
	var scheme, output *string
	c := &cobra.Command{
		Use: "sort [TAG...]", Short: "Sort tags of one repository, the oldest first",
		Long: `Sort tags, the oldest first: arguments, or the lines of standard input. An empty line
separates groups of tags that cannot be compared. Standard error lists floating tags and
tags that the scheme cannot parse.`,
		Example: "  refit tags sort 2.6.2-rev10-b1 2.6.2-rev9-b1\n  crane ls registry.example/app | refit tags sort",
		RunE: func(cmd *cobra.Command, argv []string) error {
			if err := console.CheckOutput(*output); err != nil {
				return err
			}
			s, err := schemeOf(*scheme)
			if err != nil {
				return err
			}
			tags := argv
			if len(tags) == 0 {
				if tags, err = linesOf(cmd.InOrStdin()); err != nil {
					return err
				}
			}
			v := sortView{APIVersion: "refit.dev/tagsort/v1", Kind: "TagSort", Scheme: s.Name(), Sorted: s.Sort(tags)}
			if !console.IsTable(*output) {
				return render.Value(cmd.OutOrStdout(), *output, v)
			}
			printSorted(cmd.OutOrStdout(), a, v.Sorted)
			if !cmd.Flags().Changed("scheme") && len(v.Lines) == 0 {
				hint(a, tags, s)
			}
			return nil
		},
	}
	scheme, output = schemeFlag(c), console.OutputFlag(c)
	return c
}

func linesOf(r io.Reader) ([]string, error) {
	var out []string
	s := bufio.NewScanner(r)
	for s.Scan() {
		if t := strings.TrimSpace(s.Text()); t != "" {
			out = append(out, t)
		}
	}
	if err := s.Err(); err != nil {
		return nil, console.UsageError(fmt.Errorf("standard input: %w", err))
	}
	return out, nil
}

func printSorted(w io.Writer, a *inputs.Access, s imagetag.Sorted) {
	for i, l := range s.Lines {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, strings.Join(l.Tags, "\n"))
	}
	if len(s.Pointers) > 0 {
		a.Note("floating tags, which have no order: %s", strings.Join(s.Pointers, " "))
	}
	for _, r := range s.Refused {
		a.Note("%s", r.Why)
	}
}
