package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/explain"
)

func newExplain(o *options) *cobra.Command {
	words := make([]string, 0, len(explain.Reasons))
	for _, r := range explain.Reasons {
		words = append(words, r.Word)
	}
	c := &cobra.Command{
		Use: "explain REASON|node/NAME", Short: "Explain a reason word, or the drain of a node pod by pod",
		Long: `Print the meaning of a reason word and its fix. Without an argument, list all
words.

With node/NAME: list the node's pods with the effect of a drain on each (Evict,
Refused, Leaving, Skipped), the budget, since when, and the fix. This command
evicts nothing.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: o.completeExplain(words),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.checkOutput(); err != nil {
				return err
			}
			if len(args) == 0 {
				for _, w := range words {
					fmt.Fprintln(o.Out, w)
				}
				return nil
			}
			if node, ok := strings.CutPrefix(args[0], "node/"); ok {
				return o.explainNode(cmd.Context(), node)
			}
			r, ok := explain.Lookup(args[0])
			if !ok {
				return console.UsageError(fmt.Errorf("%q is not a reason word; refit explain lists them", args[0]))
			}
			_, err := fmt.Fprintf(o.Out, "%s\n  %s\nFix\n  %s\n", r.Word, r.Means, r.Fix)
			return err
		},
	}
	o.outputFlag(c)
	o.FromFlag(c.Flags())
	return c
}

// completeExplain completes reason words, and the nodes once node/ was typed.
func (o *options) completeExplain(words []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		node, ok := strings.CutPrefix(typed, "node/")
		if !ok {
			return append([]string{"node/"}, words...), cobra.ShellCompDirectiveNoFileComp
		}
		nodes := namesOf(cmd.Context(), &o.Access, "NODE", node)
		for i := range nodes {
			nodes[i] = "node/" + nodes[i]
		}
		return nodes, cobra.ShellCompDirectiveNoFileComp
	}
}
