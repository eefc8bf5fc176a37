package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/exit"
	"github.com/refit-dev/refit/internal/explain"
)

func newExplain(o *options) *cobra.Command {
	words := make([]string, 0, len(explain.Reasons))
	for _, r := range explain.Reasons {
		words = append(words, r.Word)
	}
	return &cobra.Command{
		Use: "explain REASON", Short: "Say what a reason word means and what cures it", Args: cobra.MaximumNArgs(1), ValidArgs: words,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				for _, w := range words {
					fmt.Fprintln(o.Out, w)
				}
				return nil
			}
			r, ok := explain.Lookup(args[0])
			if !ok {
				return exit.Usage(fmt.Errorf("%q is not a reason word; refit explain lists them", args[0]))
			}
			_, err := fmt.Fprintf(o.Out, "%s\n  %s\nCure\n  %s\n", r.Word, r.Means, r.Cure)
			return err
		},
	}
}
