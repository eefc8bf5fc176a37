package tagscmd

import (
	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/cluster"
	"github.com/refit-dev/refit/internal/cli/exit"
	"github.com/refit-dev/refit/internal/render"
	"github.com/refit-dev/refit/internal/tag"
)

// New is `refit tags`.
func New(a *cluster.Access) *cobra.Command {
	c := &cobra.Command{
		Use: "tags", Short: "Compare, plan and watch image tags",
		Long: `A tag is a pointer and may lie; a digest is the image. Follow the intermediate tag
(2.6.2-rev1), run the digest, name by the long tag (2.6.2-rev1-b5.1).`,
		Args: cobra.NoArgs,
	}
	c.AddCommand(newCompare(a), newSort(a), newPlan(a), newRetain(a), newLint(a), newCheck(a))
	return c
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

// schemeFlag adds --scheme and returns where its value will be.
func schemeFlag(c *cobra.Command) *string {
	s := c.Flags().String("scheme", "rev", "how the repository writes its tags: rev, dotted, dashed, release, distro-r, single, semver, date, floating;\nrev:alpine,slim with its variants; or regexp:EXPRESSION with the groups app, variant, rev, build")
	_ = c.RegisterFlagCompletionFunc("scheme", cobra.FixedCompletions(tag.Names(), cobra.ShellCompDirectiveNoFileComp))
	return s
}

func schemeOf(name string) (tag.Scheme, error) {
	s, err := tag.ByName(name)
	return s, exit.Usage(err)
}
