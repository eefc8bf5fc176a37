package bundlecmd

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/render"
	"github.com/refit-dev/refit/internal/text"
)

// removalView is what `refit bundle remove -o json` prints.
type removalView struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Bundle     string `json:"bundle"`
	Digest     string `json:"digest"`
	Version    string `json:"version,omitempty"`
	// Use is what the bundle is on the nodes for, and Message the reason.
	Use     string `json:"use"`
	Message string `json:"message,omitempty"`
	// Images is the number of images that no other held bundle has.
	Images int32 `json:"images"`
	// FreesBytes is at most what each of the nodes frees, in bytes.
	FreesBytes int64         `json:"freesBytes"`
	Nodes      []removalNode `json:"nodes"`
	// Removed is false after --dry-run.
	Removed bool `json:"removed"`
}

// removalNode is a node that has the bundle.
type removalNode struct {
	Node string `json:"node"`
	// FreesBytes is at most what the node frees, FreeBytes what is free now for images
	// above the kubelet's thresholds, -1 if unknown.
	FreesBytes int64 `json:"freesBytes"`
	FreeBytes  int64 `json:"freeBytes"`
}

type removeCall struct {
	*inputs.Access
	yes, dryRun bool
	output      *string
}

func newRemove(a *inputs.Access) *cobra.Command {
	r := &removeCall{Access: a}
	c := &cobra.Command{
		Use: "remove BUNDLE|VERSION|DIGEST", Short: "Withdraw the approval of a bundle and remove it from the nodes",
		Long: `Withdraw the approval of a bundle and remove it from the nodes. The command first shows
how many bytes each node frees. Then nodes unpin and remove the images and node
binaries that no other bundle has. They keep images that containers use, that
another component pinned, or that refit did not load.

The command refuses a bundle that the cluster runs, that an unfinished update or a
rollback needs, or that an administrator holds, with the next step.

On a terminal the command asks; use --yes in scripts, and --dry-run to remove nothing.

Exit codes: 0 removed, 3 refused.`,
		Example: "  refit bundle remove edge-1.36.1 --dry-run",
		Args:    console.Args(cobra.ExactArgs(1)),
	}
	r.output = console.OutputFlag(c)
	c.Flags().BoolVarP(&r.yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&r.dryRun, "dry-run", false, "show what it frees and remove nothing")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := console.CheckOutput(*r.output); err != nil {
			return err
		}
		cl, err := r.Client()
		if err != nil {
			return err
		}
		return r.run(c.Context(), cl, c.OutOrStdout(), args[0])
	}
	return c
}

func (r *removeCall) run(ctx context.Context, cl client.Client, out io.Writer, name string) error {
	b, err := findBundle(ctx, cl, name)
	if err != nil {
		return err
	}
	if err := refuseRemoval(b); err != nil {
		return console.WithExit(console.ExitBlocked, err)
	}
	v, err := removalOf(ctx, cl, b)
	if err != nil {
		return err
	}
	if !r.dryRun {
		if err := r.confirm(ctx, &v); err != nil {
			return err
		}
		if err := deleteBundle(ctx, cl, b); err != nil {
			return err
		}
		v.Removed = true
	}
	if !console.IsTable(*r.output) {
		return render.Value(out, *r.output, v)
	}
	if r.dryRun || r.yes {
		v.table(out)
	}
	if v.Removed {
		fmt.Fprintf(out, "removed Bundle %s: nodes remove its images within minutes\n", text.CleanLine(b.Name))
		return r.noteFirstUpdate(ctx, cl)
	}
	return nil
}

// deleteBundle deletes a Bundle whose use did not change since it was read.
func deleteBundle(ctx context.Context, cl client.Client, b *v1alpha1.Bundle) error {
	err := cl.Delete(ctx, b, client.Preconditions{UID: &b.UID, ResourceVersion: &b.ResourceVersion})
	if apierrors.IsConflict(err) {
		return console.WithExit(console.ExitBlocked, fmt.Errorf("bundle %s has changed meanwhile: run the command again", b.Name))
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot delete Bundle %s: %w", b.Name, err)
	}
	return nil
}

// noteFirstUpdate says that nodes keep the images while no update was complete: the cluster
// may run the bundle that it was installed from.
func (r *removeCall) noteFirstUpdate(ctx context.Context, cl client.Client) error {
	var list v1alpha1.ClusterUpdateList
	if err := cl.List(ctx, &list); err != nil {
		return inputs.ListError(err)
	}
	if !slices.ContainsFunc(list.Items, func(u v1alpha1.ClusterUpdate) bool {
		return u.Spec.Bundle != "" && len(u.Spec.Nodes) == 0 && u.Status.Phase == v1alpha1.PhaseDone
	}) {
		r.Note("no update of this cluster is complete yet, so it may run this bundle: its images stay pinned until one is")
	}
	return nil
}

func (r *removeCall) confirm(ctx context.Context, v *removalView) error {
	if r.yes {
		return nil
	}
	if err := console.RequireTerminal(os.Stdin, "refit bundle remove asks before it removes a bundle"); err != nil {
		return err
	}
	v.table(r.Err)
	return console.Confirm(ctx, os.Stdin, r.Err, "Remove this bundle from the nodes?")
}

// findBundle finds a Bundle object by its name, digest or version.
func findBundle(ctx context.Context, cl client.Client, name string) (*v1alpha1.Bundle, error) {
	var list v1alpha1.BundleList
	if err := cl.List(ctx, &list); err != nil {
		return nil, inputs.ListError(err)
	}
	var found []*v1alpha1.Bundle
	var known []string
	for i := range list.Items {
		b := &list.Items[i]
		known = append(known, fmt.Sprintf("%s (%s)", b.Name, orDash(b.Status.Version)))
		if b.Name == name || b.Spec.Digest == name || b.Status.Digest == name || b.Status.Version == name {
			found = append(found, b)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, console.UsageError(fmt.Errorf("%q is neither the name, the digest nor the version of a Bundle in this cluster; known: %s", name, orNone(known)))
	}
	return nil, console.UsageError(fmt.Errorf("%q matches %d Bundles: use the name of one", name, len(found)))
}

// refuseRemoval returns why a Bundle must stay, with the next step.
func refuseRemoval(b *v1alpha1.Bundle) error {
	r := b.Status.Retention
	switch {
	case b.Spec.Digest == "" && r == nil:
		return fmt.Errorf("bundle %s is not approved, so nodes hold nothing of it: unplug its medium, and refit deletes the Bundle", b.Name)
	case b.Spec.Digest == "":
		return fmt.Errorf("bundle %s is approved by the keys that signed it, and would be loaded again: add its digest %s to revokedDigests of a TrustPolicy", b.Name, b.Status.Digest)
	case r == nil || b.Status.ObservedGeneration < b.Generation:
		return fmt.Errorf("the controller has not reported yet what Bundle %s is held for: run the command again in a minute, or check the controller with kubectl -n refit-system get pods", b.Name)
	}
	next := map[v1alpha1.BundleUse]string{
		v1alpha1.BundleRuns:     "update the cluster to another bundle first (refit plan --to BUNDLE)",
		v1alpha1.BundleUpdate:   "finish that update, or delete its ClusterUpdate first",
		v1alpha1.BundleRollback: "set keepReleases of every UpdatePool to a smaller number first, if no rollback is wanted",
		v1alpha1.BundleHeld:     "unset spec.keep, or delete the object that the reason names",
	}[r.Use]
	if next == "" {
		return nil
	}
	return fmt.Errorf("bundle %s is needed: %s. Next: %s", b.Name, r.Message, next)
}

// removalOf says what the removal of a Bundle frees.
func removalOf(ctx context.Context, cl client.Client, b *v1alpha1.Bundle) (removalView, error) {
	v := removalView{APIVersion: "refit.dev/bundleremoval/v1", Kind: "BundleRemoval", Bundle: b.Name, Digest: b.Spec.Digest, Version: b.Status.Version,
		Use: string(b.Status.Retention.Use), Message: b.Status.Retention.Message, Images: b.Status.Retention.OwnImages, FreesBytes: b.Status.Retention.FreesBytes, Nodes: []removalNode{}}
	var nodes v1alpha1.NodeUpdateList
	if err := cl.List(ctx, &nodes, client.InNamespace(v1alpha1.NodesNamespace)); err != nil {
		return v, inputs.ListError(err)
	}
	for i := range nodes.Items {
		nu := &nodes.Items[i]
		if !slices.Contains(nu.Status.Bundles, b.Spec.Digest) {
			continue
		}
		n := removalNode{Node: nu.Name, FreesBytes: v.FreesBytes, FreeBytes: -1}
		for _, fs := range nu.Status.FileSystems {
			if fs.Name == "images" || fs.Name == "state" && n.FreeBytes < 0 {
				n.FreeBytes = fs.FreeBytes
			}
		}
		v.Nodes = append(v.Nodes, n)
	}
	slices.SortFunc(v.Nodes, func(a, b removalNode) int { return strings.Compare(a.Node, b.Node) })
	return v, nil
}

func (v *removalView) table(w io.Writer) {
	fmt.Fprintf(w, "Bundle %s %s: %s of its own\n", text.CleanLine(v.Bundle), orDash(v.Version), text.Count(int(v.Images), "image"))
	if len(v.Nodes) == 0 {
		fmt.Fprintln(w, "No node has it.")
		return
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "NODE\tFREES UP TO\tFREE NOW")
	for _, n := range v.Nodes {
		free := "-"
		if n.FreeBytes >= 0 {
			free = explain.Bytes(n.FreeBytes)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\n", text.CleanLine(n.Node), explain.Bytes(n.FreesBytes), free)
	}
	_ = tw.Flush()
}

// clusterBundle is a Bundle of the cluster in `refit bundle list`.
type clusterBundle struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Digest  string `json:"digest,omitempty"`
	// Use is what nodes hold it for, empty for a bundle that is not approved.
	Use        string `json:"use,omitempty"`
	Nodes      string `json:"nodes,omitempty"`
	FreesBytes int64  `json:"freesBytes,omitempty"`
	Message    string `json:"message,omitempty"`
}

// clusterListView is what `refit bundle list -o json` prints without a path.
type clusterListView struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Bundles    []clusterBundle `json:"bundles"`
}

// listCluster lists the Bundles of a cluster with what nodes hold them for.
func listCluster(ctx context.Context, cl client.Client, out io.Writer, format string) error {
	var list v1alpha1.BundleList
	if err := cl.List(ctx, &list); err != nil {
		return inputs.ListError(err)
	}
	v := clusterListView{APIVersion: "refit.dev/clusterbundles/v1", Kind: "ClusterBundles", Bundles: []clusterBundle{}}
	for i := range list.Items {
		b := &list.Items[i]
		one := clusterBundle{Name: b.Name, Version: b.Status.Version, Digest: b.Spec.Digest, Nodes: b.Status.Loaded}
		if one.Digest == "" {
			one.Digest = b.Status.Digest
		}
		if r := b.Status.Retention; r != nil {
			one.Use, one.FreesBytes, one.Message = string(r.Use), r.FreesBytes, r.Message
		}
		v.Bundles = append(v.Bundles, one)
	}
	slices.SortFunc(v.Bundles, func(a, b clusterBundle) int { return strings.Compare(a.Name, b.Name) })
	if !console.IsTable(format) {
		return render.Value(out, format, v)
	}
	tw := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "NAME\tVERSION\tUSE\tNODES\tREMOVAL FREES\tDIGEST\tREASON")
	for _, b := range v.Bundles {
		digest := text.CleanLine(b.Digest)
		if format != render.Wide {
			digest = text.ShortDigest(digest)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", text.CleanLine(b.Name), orDash(b.Version), orDash(b.Use), orDash(b.Nodes), explain.Bytes(b.FreesBytes), orDash(digest), orDash(b.Message))
	}
	return tw.Flush()
}
