// Package usage is what all groups of commands say alike: arguments and output.
//
// Promise: a wrong argument or format ends with the exit code of usage errors, and
// says which there are. Callers: the groups of internal/cli.
package usage

import (
	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/exit"
	"github.com/refit-dev/refit/internal/render"
)

// Args is cobra's check of arguments with the exit code of usage errors.
func Args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, a []string) error { return exit.Usage(check(c, a)) }
}

// OutputFlag adds -o and returns where its value will be.
func OutputFlag(c *cobra.Command) *string {
	o := c.Flags().StringP("output", "o", render.Table, "table, wide, json or yaml")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{render.Table, render.Wide, render.JSON, render.YAML}, cobra.ShellCompDirectiveNoFileComp))
	return o
}

// CheckOutput refuses a format that is not one of OutputFlag's.
func CheckOutput(format string) error {
	if !render.Known(format) {
		return exit.Usagef("-o %s is not known: use table, wide, json or yaml", format)
	}
	return nil
}

// IsTable reports whether a format is for people.
func IsTable(format string) bool { return format == render.Table || format == render.Wide }
