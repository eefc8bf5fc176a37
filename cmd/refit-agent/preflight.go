package main

import (
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/service"
)

// preflightCommand is the command of refit-preflight.service, refit-import.service and the kubelet's
// unit.
func preflightCommand(load func() agentconfig.Config) *cobra.Command {
	var stopping, beforeUnit bool
	var patience time.Duration
	c := &cobra.Command{
		Use: "preflight", Short: "Check and restore this node's pinned images, before its kubelet starts", Args: cobra.NoArgs,
		Long: `Verify every pinned image of this node, and restore corrupt and missing ones from the
local copy, without network. The command compares sizes at every boot, and contents
after an unclean shutdown. It ends when the kubelet may start, and prints its
findings and repairs. It checks a boot once.

For a corrupt or missing image without a local copy it waits (--patience), while the
agent copies the image from peers or a medium. Then it removes a corrupt image from
the runtime, and the node starts without it.

Errors of the check itself (a runtime that does not answer, a full or read-only
disk, damaged records) delay the kubelet for a minute at most. The log, the report
and the status of the NodeUpdate show them. To disable the check, add
refit.preflight=off to the kernel command line, or create the file
/etc/refit/preflight.off.

On k3s, RKE2 and k0s one unit starts both container runtime and kubelet. Before that
unit, --before-unit looks whether the runtime has lost its store. If so, it writes the
pinned images into the directory from which the distribution imports images.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf := load()
			if stopping {
				return service.NoteEnd(cmd.Context(), conf)
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			if beforeUnit {
				names, err := service.FillImportFolder(cmd.Context(), conf, log)
				if err != nil {
					return err
				}
				return printJSON(cmd.OutOrStdout(), map[string][]string{"images": names})
			}
			r, err := service.Preflight(cmd.Context(), conf, patience, log)
			if err != nil {
				return err
			}
			return printJSON(cmd.OutOrStdout(), r)
		},
	}
	c.Flags().BoolVar(&beforeUnit, "before-unit", false, "the unit that starts runtime and kubelet has not started yet: write images into its directory if the runtime lost them")
	c.Flags().BoolVar(&stopping, "stopping", false, "the unit stops: record a clean shutdown if the machine goes down")
	c.Flags().DurationVar(&patience, "patience", 90*time.Second, "how long to wait for images without a local copy")
	return c
}
