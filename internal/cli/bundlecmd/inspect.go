package bundlecmd

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/refit-dev/refit/internal/text"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundledelta"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/render"
)

func newInspect() *cobra.Command {
	var f inspectFlags
	c := &cobra.Command{
		Use: "inspect FILE", Short: "Show the content of a bundle, from its header only",
		Long: `Show the content of a bundle file or device. The command reads and checks only the header, and signatures and documents of
images if the bundle carries them. It lists signatures of the bundle and does not verify them; refit bundle verify verifies
signatures and blobs. Of a delta, it shows its base, the bundle that it makes, and what each image costs.

--verify POLICY verifies the signatures of images that the bundle carries by a policy of yours, without a registry. Exit code 6
if the policy refuses an image. --sbom prints the images and payloads with their digests as SPDX 2.3 in JSON.
` + mediaHelp,
		Args: console.Args(cobra.ExactArgs(1)),
	}
	f.format = console.OutputFlag(c)
	c.Flags().StringVar(&f.policy, "verify", "", "policy that the carried signatures of images must meet (kind ImageProofPolicy)")
	c.Flags().BoolVar(&f.sbom, "sbom", false, "print an SPDX 2.3 document in JSON instead")
	c.RunE = func(c *cobra.Command, a []string) error { return f.run(c, a[0]) }
	return c
}

type inspectFlags struct {
	format *string
	policy string
	sbom   bool
}

func (f *inspectFlags) run(c *cobra.Command, path string) error {
	if err := console.CheckOutput(*f.format); err != nil {
		return err
	}
	if f.sbom && (f.policy != "" || c.Flags().Changed("output")) {
		return console.UsageErrorf("--sbom prints SPDX in JSON: leave out --output and --verify")
	}
	if bundledelta.IsDelta(path) {
		if f.sbom || f.policy != "" {
			return console.UsageErrorf("%s is a delta: make the full bundle of it first (refit bundle restore), for --sbom and --verify", path)
		}
		return inspectDelta(c, path, *f.format)
	}
	h, _, err := bundlereader.SummaryPath(path)
	if err != nil {
		return withExitCode(err)
	}
	if f.sbom {
		return writeSBOM(c.OutOrStdout(), h)
	}
	v := viewOf(h)
	refused := f.proofs(c, path, h, &v)
	if console.IsTable(*f.format) {
		err = v.table(c.OutOrStdout(), *f.format == render.Wide, f.policy != "")
	} else {
		err = render.Value(c.OutOrStdout(), *f.format, v)
	}
	return cmp.Or(refused, err)
}

// proofs adds the carried proofs to the view, which is printed with an error too. Without a
// policy an unreadable archive is a warning: the medium may have the header only.
func (f *inspectFlags) proofs(c *cobra.Command, path string, h *bundle.Header, v *bundleView) error {
	if f.policy == "" && !hasProofs(h) {
		return nil
	}
	if f.policy == "" {
		var err error
		if v.Proofs, err = inspectProofs(path, nil, time.Now()); err != nil {
			fmt.Fprintf(c.ErrOrStderr(), "warning: %v\n", err)
		}
		return nil
	}
	policy, err := readPolicy(f.policy)
	if err == nil {
		v.Proofs, err = inspectProofs(path, policy, time.Now())
	}
	return err
}

// listView is what `refit bundle list -o json` prints.
type listView struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Bundles    []listEntry `json:"bundles"`
}

type listEntry struct {
	File              string   `json:"file"`
	Digest            string   `json:"digest,omitempty"`
	Name              string   `json:"name,omitempty"`
	Version           string   `json:"version,omitempty"`
	KubernetesVersion string   `json:"kubernetesVersion,omitempty"`
	Size              int64    `json:"size,omitempty"`
	SignedBy          []string `json:"signedBy,omitempty"`
	// Error is the reason why the header of a damaged bundle cannot be read, or
	// that the file has another size than the bundle.
	Error string `json:"error,omitempty"`
}

func newList(access *inputs.Access) *cobra.Command {
	c := &cobra.Command{
		Use: "list [PATH]", Short: "List the bundles of the cluster, or those in a directory or on a medium",
		Long: "List the bundles of the cluster: what nodes hold each of them for, and how many bytes each node frees\nif it is removed. With PATH, list the bundles in a directory, on a device or in an image file. The\ncommand then reads and checks only their headers.\n" + mediaHelp,
		Args: console.Args(cobra.MaximumNArgs(1)),
	}
	format := console.OutputFlag(c)
	c.RunE = func(c *cobra.Command, a []string) error {
		if err := console.CheckOutput(*format); err != nil {
			return err
		}
		if len(a) == 0 {
			cl, err := access.Client()
			if err != nil {
				return err
			}
			return listCluster(c.Context(), cl, c.OutOrStdout(), *format)
		}
		v, err := list(a[0])
		if err != nil {
			return withExitCode(err)
		}
		if !console.IsTable(*format) {
			return render.Value(c.OutOrStdout(), *format, v)
		}
		tw := tabwriter.NewWriter(c.OutOrStdout(), 0, 8, 2, ' ', 0)
		fmt.Fprintln(tw, "FILE\tNAME\tVERSION\tKUBERNETES\tSIZE\tSIGNED BY\tDIGEST\tPROBLEM")
		for _, e := range v.Bundles {
			digest := e.Digest
			if *format != render.Wide {
				digest = text.ShortDigest(digest)
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.File, orDash(e.Name), orDash(e.Version), orDash(e.KubernetesVersion), explain.Bytes(e.Size), orNone(e.SignedBy), orDash(digest), orDash(e.Error))
		}
		return tw.Flush()
	}
	return c
}

// list returns the bundles in the files of a directory, or those of one file or device.
func list(path string) (listView, error) {
	v := listView{APIVersion: "refit.dev/bundlelist/v1", Kind: "BundleList", Bundles: []listEntry{}}
	entries, err := listPath(path)
	if st, e := os.Stat(path); e == nil && st.IsDir() {
		if errors.Is(err, bundle.ErrNotBundle) {
			err = nil // an empty list
		}
		for i := range entries {
			entries[i].File = strings.TrimPrefix(entries[i].File, filepath.Clean(path)+string(filepath.Separator))
		}
	}
	v.Bundles = append(v.Bundles, entries...)
	return v, err
}

// listPath returns the bundles at a path.
func listPath(path string) ([]listEntry, error) {
	found, err := bundlereader.ListPath(path)
	var entries []listEntry
	for _, f := range found {
		e := listEntry{File: text.CleanLine(f.Path)}
		if f.Header != nil {
			v := viewOf(f.Header)
			e.Digest, e.Name, e.Version, e.KubernetesVersion, e.Size, e.SignedBy = v.Digest, v.Name, v.Version, v.KubernetesVersion, v.Size, v.keyIDs()
		}
		if f.Err != nil {
			e.Error = text.CleanLine(f.Err.Error())
		}
		entries = append(entries, e)
	}
	return entries, err
}
