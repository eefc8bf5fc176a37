package labcmd

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/lab/components"
)

// newComponents prints a release as sources of a bundle.
func newComponents() *cobra.Command {
	versions := components.Versions()
	var version string
	c := &cobra.Command{
		Use:   "components",
		Short: "Print a Kubernetes release that the lab builds, as sources for refit bundle create",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			release, err := components.Release(cmd.Context(), version, func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) })
			if err != nil {
				return err
			}
			for _, image := range release.Images {
				fmt.Fprintln(cmd.OutOrStdout(), "oci-archive:"+image.Archive)
			}
			for _, name := range []string{"kubelet", "kubeadm", "kubectl"} {
				fmt.Fprintln(cmd.OutOrStdout(), "payload:"+name+"="+filepath.Join(release.BinDir, name))
			}
			return nil
		},
	}
	c.Flags().StringVar(&version, "version", versions[len(versions)-1], "Kubernetes version: "+strings.Join(versions, ", "))
	return c
}
