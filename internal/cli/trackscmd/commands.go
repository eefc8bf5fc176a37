package trackscmd

import (
	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/cmdutil"
)

// New returns the commands for `refit tags`.
func New(a *cmdutil.Access) []*cobra.Command {
	return []*cobra.Command{newStatus(a), newApprove(a), newReject(a), newRollback(a), newRetry(a)}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
