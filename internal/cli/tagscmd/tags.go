package tagscmd

import (
	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/imagetag"
)

// New is `refit tags`.
func New(a *inputs.Access) *cobra.Command {
	c := &cobra.Command{
		Use: "tags", Short: "Compare, plan and watch image tags",
		Long: `A tag may move; a digest names one image. Follow the intermediate tag (2.6.2-rev1), run
the digest, and refer to builds by the long tag (2.6.2-rev1-b5.1).`,
		Args: cobra.NoArgs,
	}
	c.AddCommand(newCompare(a), newSort(a), newPlan(a), newRetain(a), newLint(a), newCheck(a))
	c.AddCommand(newStatus(a), newApprove(a), newReject(a), newRollback(a), newRetry(a))
	return c
}

// schemeFlag adds --scheme and returns its value.
func schemeFlag(c *cobra.Command) *string {
	s := c.Flags().String("scheme", "rev", "tag scheme of the repository: rev, dotted, dashed, release, distro-r, single, semver, date, floating;\nrev:alpine,slim with its variants; or regexp:EXPRESSION with the groups app, variant, rev, build")
	_ = c.RegisterFlagCompletionFunc("scheme", cobra.FixedCompletions(imagetag.Names(), cobra.ShellCompDirectiveNoFileComp))
	return s
}

func schemeOf(name string) (imagetag.Scheme, error) {
	s, err := imagetag.ByName(name)
	return s, console.UsageError(err)
}
