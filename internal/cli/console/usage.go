package console

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/render"
)

// Args is cobra's check of arguments with the exit code of usage errors.
func Args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, a []string) error { return UsageError(check(c, a)) }
}

// OutputFlag adds -o and returns its value.
func OutputFlag(c *cobra.Command) *string {
	o := c.Flags().StringP("output", "o", render.Table, "table, wide, json or yaml")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{render.Table, render.Wide, render.JSON, render.YAML}, cobra.ShellCompDirectiveNoFileComp))
	return o
}

// CheckOutput refuses a format that is not one of OutputFlag's.
func CheckOutput(format string) error {
	if !render.Known(format) {
		return UsageErrorf("-o %s is not known: use table, wide, json or yaml", format)
	}
	return nil
}

// IsTable reports whether a format is for people.
func IsTable(format string) bool { return format == render.Table || format == render.Wide }

// Execute runs a command, prints its error on the root's standard error and returns the
// exit code. interrupted is printed if ctx ended it.
func Execute(ctx context.Context, root *cobra.Command, args []string, interrupted string) int {
	root.SetArgs(args)
	called, err := root.ExecuteContextC(ctx)
	words := root.ErrOrStderr()
	if err == nil {
		return ExitOK
	}
	if ctx.Err() != nil && ExitCode(err) != ExitInterrupted { // such an error has its own message
		fmt.Fprintln(words, interrupted)
		return ExitInterrupted
	}
	if msg := err.Error(); msg != "" {
		fmt.Fprintln(words, "error: "+strings.ReplaceAll(msg, "\n", "\n  ")) // a quoted text must not begin a line
	}
	if isUsage(err) {
		fmt.Fprintln(words, "see: "+called.CommandPath()+" --help")
		return ExitUsage
	}
	return ExitCode(err)
}

// isUsage reports whether cobra itself refused the arguments.
func isUsage(err error) bool {
	var coded *ExitError
	if errors.As(err, &coded) {
		return coded.Code == ExitUsage
	}
	for _, p := range []string{"unknown command", "unknown flag", "accepts ", "requires ", "required flag", "invalid argument"} {
		if strings.HasPrefix(err.Error(), p) {
			return true
		}
	}
	return false
}
