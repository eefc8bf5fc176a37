package bundlecmd

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundledelta"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/text"
)

// inventoryCall is `refit inventory`.
type inventoryCall struct {
	access      *inputs.Access
	output, key string
	bundles     []string
}

// NewInventory is `refit inventory`.
func NewInventory(a *inputs.Access) *cobra.Command {
	f := inventoryCall{access: a}
	c := &cobra.Command{
		Use: "inventory [--output FILE] [--key KEY] [--bundle FILE...]", Short: "List the bundles that a site has, for a delta",
		Long: `List the bundles that a site has, in a small file for the office. There refit bundle create --have makes a bundle without what
the site has, and refit bundle restore makes the full bundle on the site. The file has digests, sizes, names and versions of
bundles. It has no names of nodes or images, and no secrets. The same site gives the same file.

With --bundle FILE the command reads the headers of bundles at hand: files, media, directories. It then needs no cluster, and
all blobs are known. This is the best inventory.

Otherwise it reads the cluster, or with --from an archive of refit support. It lists the bundles from which every node has
pinned images. A cluster knows the digests of images and payloads, and not those of layers. So a delta leaves out images that
did not change, and has changed images whole. The command refuses while a node has not pinned all of its images.

--key signs the file; refit bundle create --have FILE --pub KEY then verifies it. Without --key the file is unsigned. A wrong
inventory can make a delta that refit bundle restore refuses, never a wrong bundle.

To restore, the site needs the bundle itself as a file or on a medium: nodes do not give it out.
` + mediaHelp + `

Exit codes: 0 done, 3 a node is not ready or no bundle is on every node, 6 a bundle or a pin list is damaged.`,
		Example: "  refit inventory --bundle /dev/sdX --key keys/refit.key --output site.inventory\n" +
			"  refit inventory --output site.inventory",
		Args: console.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	c.Flags().StringVar(&f.output, "output", "", "file to write (default standard output)")
	c.Flags().StringVar(&f.key, "key", "", "private key that signs the inventory (refit keys generate)")
	c.Flags().StringArrayVar(&f.bundles, "bundle", nil, "bundle that the site has; may be repeated, no cluster is read then")
	a.FromFlag(c.Flags())
	return c
}

func (f *inventoryCall) run(c *cobra.Command) error {
	if len(f.bundles) > 0 && f.access.From != "" {
		return console.UsageErrorf("--bundle and --from exclude each other: an inventory is of bundles at hand, or of a cluster")
	}
	var keys []ed25519.PrivateKey
	if f.key != "" {
		k, err := inputs.ReadPrivateKey(f.key)
		if err != nil {
			return err
		}
		keys = append(keys, k)
	}
	found, err := f.gather(c.Context(), c.ErrOrStderr())
	if err != nil {
		return err
	}
	v, err := bundledelta.NewInventory(found)
	if err != nil {
		return console.WithExit(console.ExitBlocked, err)
	}
	b, err := v.Marshal(keys...)
	if err != nil {
		return console.WithExit(console.ExitBlocked, err)
	}
	describeInventory(c.ErrOrStderr(), v)
	if len(keys) == 0 {
		fmt.Fprintln(c.ErrOrStderr(), "the inventory is unsigned; --key KEY signs it")
	}
	if f.output == "" {
		return printf(c, "%s", b)
	}
	if err := fsutil.WriteFile(f.output, b, 0o644); err != nil {
		return fmt.Errorf("write inventory: %w", err)
	}
	fmt.Fprintf(c.ErrOrStderr(), "%s: inventory of %s, %d bytes\n", f.output, text.Count(len(v.Bundles), "bundle"), len(b))
	return nil
}

// gather reads the bundles at hand, or the cluster.
func (f *inventoryCall) gather(ctx context.Context, note io.Writer) ([]bundledelta.InventoryBundle, error) {
	if len(f.bundles) == 0 {
		r, _, err := f.access.Reader()
		if err != nil {
			return nil, err
		}
		return clusterInventory(ctx, r, note)
	}
	var out []bundledelta.InventoryBundle
	for _, path := range f.bundles {
		h, wrongSize, err := bundlereader.SummaryPath(path)
		if err == nil && wrongSize != nil {
			err = fmt.Errorf("%s: %w", path, wrongSize)
		}
		if err != nil {
			return nil, withExitCode(err)
		}
		out = append(out, bundledelta.InventoryOf(h))
	}
	return out, nil
}

func describeInventory(w io.Writer, v *bundledelta.Inventory) {
	for i := range v.Bundles {
		b := &v.Bundles[i]
		known := text.Count(len(b.Blobs), "blob")
		if len(b.Blobs) == 0 {
			known = fmt.Sprintf("%s, %s", text.Count(len(b.Images), "image"), text.Count(len(b.Payloads), "payload"))
		}
		fmt.Fprintf(w, "%s %s %s: %s\n", b.Name, b.Version, b.Digest, known)
	}
}

// readInventory reads an inventory and verifies that one of the keys signed it, if there are any.
func readInventory(path string, pubs []string, note io.Writer) (*bundledelta.SignedInventory, error) {
	keys, err := inputs.ReadPublicKeys(pubs)
	if err != nil {
		return nil, err
	}
	b, err := fsutil.ReadSmall(path, bundledelta.MaxInventory)
	if err != nil {
		return nil, console.UsageError(fmt.Errorf("--have: %w", err))
	}
	v, err := bundledelta.ParseInventory(b)
	var damaged *bundledelta.DamagedInventoryError
	if errors.As(err, &damaged) {
		return nil, console.WithExit(console.ExitVerification, fmt.Errorf("%s: %w", path, err))
	}
	if err != nil {
		return nil, console.UsageError(fmt.Errorf("--have %s: %w", path, err))
	}
	if len(keys) == 0 {
		fmt.Fprintf(note, "the inventory is not verified: --pub KEY verifies its signature\n")
		return v, nil
	}
	if len(v.SignedBy(keys)) == 0 {
		var want []string
		for _, k := range keys {
			want = append(want, bundle.KeyID(k))
		}
		return nil, console.WithExit(console.ExitVerification, fmt.Errorf("%s: found an inventory signed by key %s, expected a valid signature of key %s", path, orNone(v.KeyIDs()), strings.Join(want, " or ")))
	}
	return v, nil
}

// createFromInventory writes the delta from a bundle of the inventory to the full bundle at the path full.
func (f *createFlags) createFromInventory(c *cobra.Command, v *bundledelta.SignedInventory, full string) error {
	target, err := openBundle(full)
	if err != nil {
		return err
	}
	defer target.Close()
	all, err := v.Savings(target)
	if err == nil && all[0].Blobs == 0 {
		err = console.WithExit(console.ExitBlocked, fmt.Errorf("no bundle of %s has a blob of the new bundle: take the full bundle", f.have))
	}
	if err != nil {
		fmt.Fprintf(c.ErrOrStderr(), "the full bundle is in %s\n", full)
		return withExitCode(err)
	}
	best := &all[0]
	f.describeSavings(c.ErrOrStderr(), all, target.Header())
	base := fmt.Sprintf("%s %s (%s)", best.Bundle.Name, best.Bundle.Version, best.Bundle.Digest)
	return f.finishDelta(c, full, base, func(progress func(done, total int64)) error {
		return bundledelta.CreateFrom(c.Context(), *best, target, f.output, progress)
	})
}

// describeSavings says what each bundle of the inventory has, and what the delta leaves out.
func (f *createFlags) describeSavings(w io.Writer, all []bundledelta.Saving, h *bundle.Header) {
	for i := range all {
		s := &all[i]
		fmt.Fprintf(w, "%s %s has %d of %s, %s\n", s.Bundle.Name, s.Bundle.Version, s.Blobs, text.Count(len(s.Has), "blob"), explain.Bytes(s.Bytes))
	}
	whole, partly := all[0].Parts(h)
	if len(whole) > 0 {
		fmt.Fprintf(w, "left out: %s\n", strings.Join(whole, ", "))
	}
	if len(partly) > 0 {
		fmt.Fprintf(w, "left out in part: %s\n", strings.Join(partly, ", "))
	}
}
