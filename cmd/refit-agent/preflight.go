package main

import (
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/service"
)

// preflightCommand is what refit-preflight.service and the kubelet's unit run.
func preflightCommand(load func() agentconfig.Config) *cobra.Command {
	var stopping bool
	var patience time.Duration
	c := &cobra.Command{
		Use: "preflight", Short: "see to it that this node's images are whole, before its kubelet starts", Args: cobra.NoArgs,
		Long: `Compare every image that this node holds with what it must be, and put back
what is torn or missing from the node's own copy, without network. Sizes are
compared at every start of the machine, contents when its last end was no orderly
one. It ends when the kubelet may start, and prints what it found and did; a boot
that was looked at is not looked at again.

An image that is torn or missing and of which this node has no copy is waited for
(--patience): the agent gets it from peers or a medium if it can. After that
a torn one is taken out of the runtime, and the node comes up without.

Errors of the check itself (a runtime that does not answer, a full or read-only
disk, damaged records) hold up the kubelet for a minute at most; the log, the
report and the status of the NodeUpdate say so. refit.preflight=off on the kernel
command line, or the file /etc/refit/preflight.off, switches the check off.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf := load()
			if stopping {
				return service.NoteEnd(cmd.Context(), conf)
			}
			r, err := service.Preflight(cmd.Context(), conf, patience, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
			if err != nil {
				return err
			}
			return printJSON(cmd.OutOrStdout(), r)
		},
	}
	c.Flags().BoolVar(&stopping, "stopping", false, "the unit stops: note an orderly end if the machine goes down")
	c.Flags().DurationVar(&patience, "patience", 90*time.Second, "how long images without a copy are waited for")
	return c
}
