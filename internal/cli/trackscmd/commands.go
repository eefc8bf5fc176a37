package trackscmd

import (
	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/cluster"
	"github.com/refit-dev/refit/internal/cli/exit"
	"github.com/refit-dev/refit/internal/render"
)

// New are the commands, for `refit tags`.
func New(a *cluster.Access) []*cobra.Command {
	return []*cobra.Command{newStatus(a), newApprove(a), newReject(a), newRollback(a)}
}

// args is cobra's check of arguments with the exit code of usage errors.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, a []string) error { return exit.Usage(check(c, a)) }
}

// outputFlag adds -o and returns where its value will be.
func outputFlag(c *cobra.Command) *string {
	o := c.Flags().StringP("output", "o", render.Table, "table, wide, json or yaml")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{render.Table, render.Wide, render.JSON, render.YAML}, cobra.ShellCompDirectiveNoFileComp))
	return o
}

func checkOutput(format string) error {
	if !render.Known(format) {
		return exit.Usagef("-o %s is not known: use table, wide, json or yaml", format)
	}
	return nil
}

func isTable(format string) bool { return format == render.Table || format == render.Wide }

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
