package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/render"
)

// versionView is what `refit version -o json` prints.
type versionView struct {
	APIVersion    string `json:"apiVersion"`
	Kind          string `json:"kind"`
	Version       string `json:"version"`
	Commit        string `json:"commit"`
	BundleFormat  int    `json:"bundleFormat"`
	BundleFormats []int  `json:"bundleFormatsRead"`
}

func newVersion(o *options) *cobra.Command {
	c := &cobra.Command{
		Use: "version", Short: "Print the version and the supported bundle formats", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := o.checkOutput(); err != nil {
				return err
			}
			v := versionView{"refit.dev/version/v1", "Version", componentversion.Refit(), componentversion.Commit(), bundle.FormatVersion, []int{bundle.FormatVersion}}
			if o.output == render.JSON || o.output == render.YAML {
				return render.Value(o.Out, o.output, v)
			}
			_, err := fmt.Fprintf(o.Out, "refit %s (bundle format %d, commit %s)\n", v.Version, v.BundleFormat, v.Commit)
			return err
		},
	}
	o.outputFlag(c)
	return c
}

func newSelfImage(o *options) *cobra.Command {
	var output, dir string
	c := &cobra.Command{
		Use: "self-image --output DIR", Short: "Build refit's own container image as an OCI layout, reproducibly", Args: cobra.NoArgs, Hidden: true,
		RunE: func(*cobra.Command, []string) error {
			name, digest, err := oci.SelfImage.Write(dir, output, componentversion.Refit())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(o.Out, "%s %s\n", name, digest)
			return err
		},
	}
	c.Flags().StringVar(&output, "output", "", "directory of the OCI layout")
	c.Flags().StringVar(&dir, "binaries", "", "directory with refit, refit-controller and refit-agent (default: the directory of this program)")
	_ = c.MarkFlagRequired("output")
	return c
}
