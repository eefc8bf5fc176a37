package bundlecmd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/refit-dev/refit/internal/text"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/cmdutil"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/render"
)

func newInspect() *cobra.Command {
	c := &cobra.Command{
		Use: "inspect FILE", Short: "Show the content of a bundle, from its header only",
		Long: "Show the content of a bundle file or device. The command reads and checks only the header. It lists signatures and does not verify them; refit bundle verify verifies signatures and blobs.",
		Args: cmdutil.Args(cobra.ExactArgs(1)),
	}
	format := cmdutil.OutputFlag(c)
	c.RunE = func(c *cobra.Command, a []string) error {
		if err := cmdutil.CheckOutput(*format); err != nil {
			return err
		}
		h, _, err := bundlereader.SummaryPath(a[0])
		if err != nil {
			return coded(err)
		}
		v := viewOf(h)
		if cmdutil.IsTable(*format) {
			return v.table(c.OutOrStdout(), *format == render.Wide)
		}
		return render.Value(c.OutOrStdout(), *format, v)
	}
	return c
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

func newList() *cobra.Command {
	c := &cobra.Command{
		Use: "list DIR", Short: "List the bundles in a directory, from their headers only",
		Args: cmdutil.Args(cobra.ExactArgs(1)),
	}
	format := cmdutil.OutputFlag(c)
	c.RunE = func(c *cobra.Command, a []string) error {
		if err := cmdutil.CheckOutput(*format); err != nil {
			return err
		}
		v, err := list(a[0])
		if err != nil {
			return coded(err)
		}
		if !cmdutil.IsTable(*format) {
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

// list reads every file of a directory and skips files that are not bundles.
func list(dir string) (listView, error) {
	v := listView{APIVersion: "refit.dev/bundlelist/v1", Kind: "BundleList", Bundles: []listEntry{}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return v, fmt.Errorf("list bundles: %w", err)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		entry, err := listFile(filepath.Join(dir, e.Name()))
		switch {
		case errors.Is(err, bundle.ErrNotBundle):
			continue
		case err != nil:
			entry.Error = text.CleanLine(err.Error())
		}
		entry.File = text.CleanLine(e.Name())
		v.Bundles = append(v.Bundles, entry)
	}
	return v, nil
}

func listFile(path string) (listEntry, error) {
	h, wrongSize, err := bundlereader.SummaryPath(path)
	if err != nil {
		return listEntry{}, err
	}
	v := viewOf(h)
	return listEntry{Digest: v.Digest, Name: v.Name, Version: v.Version, KubernetesVersion: v.KubernetesVersion, Size: v.Size, SignedBy: v.keyIDs()}, wrongSize
}
