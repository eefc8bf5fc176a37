package bundlecmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
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

func newInspect(access *inputs.Access) *cobra.Command {
	f := inspectFlags{access: access}
	c := &cobra.Command{
		Use: "inspect FILE", Short: "Show the content of a bundle, from its header only",
		Long: `Show the content of a bundle file or device. The command reads and checks only the header, and signatures and documents of
images if the bundle carries them. It shows what a control-plane node and a worker store of it; of a bundle for several platforms
it reads the indexes of the images for that. It lists signatures of the bundle and does not verify them; refit bundle verify verifies
signatures and blobs. Of a delta, it shows its base, the bundle that it makes, and what each image costs.

--verify POLICY verifies the signatures of images that the bundle carries by a policy of yours, without a registry. Exit code 6
if the policy refuses an image. --cluster compares the bundle with the nodes of the cluster, as refit approve does. Exit code 3 if it does
not fit a node. --sbom prints the images and payloads with their digests as SPDX 2.3 in JSON.
` + mediaHelp,
		Args: console.Args(cobra.ExactArgs(1)),
	}
	f.format = console.OutputFlag(c)
	c.Flags().StringVar(&f.policy, "verify", "", "policy that the carried signatures of images must meet (kind ImageProofPolicy)")
	c.Flags().BoolVar(&f.cluster, "cluster", false, "compare its platforms, versions and constraints with the nodes, and its images with those on the nodes")
	c.Flags().BoolVar(&f.sbom, "sbom", false, "print an SPDX 2.3 document in JSON instead")
	c.RunE = func(c *cobra.Command, a []string) error { return f.run(c, a[0]) }
	return c
}

type inspectFlags struct {
	access        *inputs.Access
	format        *string
	policy        string
	sbom, cluster bool
}

func (f *inspectFlags) run(c *cobra.Command, path string) error {
	if err := f.check(c); err != nil {
		return err
	}
	if bundledelta.IsDelta(path) {
		if f.sbom || f.needsContent() {
			return console.UsageErrorf("%s is a delta: make the full bundle of it first (refit bundle restore), for --sbom, --verify and --cluster", path)
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
	v.Roles = rolesAt(path, h)
	refused := f.proofs(c, path, h, &v)
	if f.cluster {
		if err := f.fit(c, h, &v); err != nil {
			return err
		}
		refused = cmp.Or(refused, v.Fit.Err(h.Digest))
	}
	return cmp.Or(refused, f.print(c.OutOrStdout(), v))
}

func (f *inspectFlags) check(c *cobra.Command) error {
	if f.sbom && (f.needsContent() || c.Flags().Changed("output")) {
		return console.UsageErrorf("--sbom prints SPDX in JSON: leave out --output, --verify and --cluster")
	}
	return console.CheckOutput(*f.format)
}

// needsContent: what a delta alone does not have is asked for.
func (f *inspectFlags) needsContent() bool { return f.policy != "" || f.cluster }

func (f *inspectFlags) print(w io.Writer, v bundleView) error {
	if !console.IsTable(*f.format) {
		return render.Value(w, *f.format, v)
	}
	err := v.table(w, *f.format == render.Wide, f.policy != "")
	if v.Fit != nil {
		fmt.Fprintln(w)
		v.Fit.Print(w)
	}
	return err
}

// fit compares the bundle with the nodes.
func (f *inspectFlags) fit(c *cobra.Command, h *bundle.Header, v *bundleView) error {
	cl, err := f.access.Client()
	if err != nil {
		return err
	}
	v.Fit, err = FitBundle(c.Context(), cl, h, h.Digest)
	return err
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
	// Roles are what nodes of each role and platform store. With several platforms they are at
	// most that much: inspect reads it.
	Roles []roleView `json:"roles,omitempty"`
	// Error is the reason why the header of a damaged bundle cannot be read, or
	// that the file has another size than the bundle.
	Error string `json:"error,omitempty"`
}

func newList(access *inputs.Access) *cobra.Command {
	c := &cobra.Command{
		Use: "list [PATH]", Short: "List the bundles of the cluster, or those in a directory or on a medium",
		Long: "List the bundles of the cluster: what nodes hold each of them for, and how many bytes each node frees\nif it is removed. With PATH, list the bundles in a directory, on a device or in an image file. The\ncommand then reads and checks only their headers, and shows what the largest control-plane node and worker store.\n" + mediaHelp,
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
		fmt.Fprintln(tw, "FILE\tNAME\tVERSION\tKUBERNETES\tSIZE\tCONTROL PLANE\tWORKER\tSIGNED BY\tDIGEST\tPROBLEM")
		for _, e := range v.Bundles {
			digest := e.Digest
			if *format != render.Wide {
				digest = text.ShortDigest(digest)
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.File, orDash(e.Name), orDash(e.Version), orDash(e.KubernetesVersion), explain.Bytes(e.Size),
				explain.Bytes(largestOf(e.Roles, roleControlPlane)), explain.Bytes(largestOf(e.Roles, roleWorker)), orNone(e.SignedBy), orDash(digest), orDash(e.Error))
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
			e.Digest, e.Name, e.Version, e.KubernetesVersion, e.Size, e.SignedBy, e.Roles = v.Digest, v.Name, v.Version, v.KubernetesVersion, v.Size, v.keyIDs(), v.Roles
		}
		if f.Err != nil {
			e.Error = text.CleanLine(f.Err.Error())
		}
		entries = append(entries, e)
	}
	return entries, err
}
