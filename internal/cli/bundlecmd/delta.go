package bundlecmd

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundledelta"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/render"
	"github.com/refit-dev/refit/internal/text"
)

// fullSuffix marks the full bundle of which a delta is made.
const fullSuffix = ".full"

// deltaView is what `refit bundle inspect -o json` prints of a delta. Sizes are bytes.
type deltaView struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Base is the digest of the bundle that is needed to restore the full one.
	Base string `json:"base"`
	// Size of the delta.
	Size int64 `json:"size"`
	// Target is the full bundle.
	Target bundleView `json:"target"`
	// Images and Payloads with what they cost in the delta. Blobs that several share count for each.
	Images   []deltaPart `json:"images"`
	Payloads []deltaPart `json:"payloads"`
}

type deltaPart struct {
	Name string `json:"name"`
	// Size in the full bundle, DeltaSize in the delta.
	Size      int64 `json:"size"`
	DeltaSize int64 `json:"deltaSize"`
	// Copied, Patched and New are numbers of blobs: in the base as they are, patches, and whole ones.
	Copied  int `json:"copied"`
	Patched int `json:"patched"`
	New     int `json:"new"`
}

func deltaViewOf(d *bundledelta.Delta) deltaView {
	h := d.Target()
	v := deltaView{APIVersion: "refit.dev/bundledelta/v1", Kind: "BundleDelta", Base: d.Base(), Size: d.Size(), Target: viewOf(h),
		Images: []deltaPart{}, Payloads: []deltaPart{}}
	for _, i := range h.Metadata.Images {
		v.Images = append(v.Images, deltaPartOf(d, i.Name, i.Blobs...))
	}
	for _, p := range h.Metadata.Payloads {
		v.Payloads = append(v.Payloads, deltaPartOf(d, strings.TrimSpace(p.Name+" "+p.Platform), p.Blob))
	}
	return v
}

func deltaPartOf(d *bundledelta.Delta, name string, blobs ...int) deltaPart {
	p := deltaPart{Name: name}
	for _, b := range blobs {
		cost, kind := d.Blob(b)
		p.Size += d.Target().Metadata.Blobs[b].Size
		p.DeltaSize += cost
		switch kind {
		case bundledelta.KindCopied:
			p.Copied++
		case bundledelta.KindPatched:
			p.Patched++
		default:
			p.New++
		}
	}
	return p
}

// share is how much a delta has of the full bundle's bytes.
func share(d *bundledelta.Delta) string {
	return fmt.Sprintf("%s, %.1f%% of the %s of the full bundle", explain.Bytes(d.Size()), 100*float64(d.Size())/float64(d.Target().FileSize()), explain.Bytes(d.Target().FileSize()))
}

func (v deltaView) table(w io.Writer, d *bundledelta.Delta) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	row := func(cells ...string) { fmt.Fprintln(tw, strings.Join(cells, "\t")) }
	row("Delta to:", v.Target.Name+" "+v.Target.Version)
	row("Digest:", v.Target.Digest)
	row("Needs base:", v.Base)
	row("Size:", share(d))
	row("Signed by key:", orNone(v.Target.keyIDs()))
	row("")
	row("IMAGE OR PAYLOAD", "SIZE", "IN DELTA", "BLOBS COPIED", "PATCHED", "NEW")
	for _, p := range append(v.Images, v.Payloads...) {
		row(p.Name, explain.Bytes(p.Size), explain.Bytes(p.DeltaSize), fmt.Sprint(p.Copied), fmt.Sprint(p.Patched), fmt.Sprint(p.New))
	}
	return tw.Flush()
}

func inspectDelta(c *cobra.Command, path, format string) error {
	d, err := openDelta(path)
	if err != nil {
		return err
	}
	defer d.Close()
	v := deltaViewOf(d)
	if console.IsTable(format) {
		return v.table(c.OutOrStdout(), d)
	}
	return render.Value(c.OutOrStdout(), format, v)
}

// verifyDelta checks the trust in the target, and that the delta is as it was written.
func verifyDelta(c *cobra.Command, path, digest string, keys map[string]ed25519.PublicKey) error {
	d, err := openDelta(path)
	if err != nil {
		return err
	}
	defer d.Close()
	h := d.Target()
	if err := checkTrust(h, digest, keys); err != nil {
		return console.WithExit(console.ExitVerification, fmt.Errorf("%s: %w", path, err))
	}
	bar := newProgress(c.ErrOrStderr(), "verifying")
	err = d.Verify(c.Context(), bar.set)
	bar.finish(err == nil)
	if err != nil {
		return withDeltaExit(fmt.Errorf("%s: %w", path, err))
	}
	return printf(c, "verified delta to %s %s %s: needs base %s, %d bytes\n", h.Metadata.Name, h.Metadata.Version, h.Digest, d.Base(), d.Size())
}

func openDelta(path string) (*bundledelta.Delta, error) {
	d, err := bundledelta.OpenPath(path)
	return d, withDeltaExit(err)
}

// withDeltaExit gives an error of a delta its exit code.
func withDeltaExit(err error) error {
	var (
		bad     *bundledelta.DamagedError
		base    *bundledelta.BaseError
		missing *bundledelta.MissingError
		tooNew  *bundledelta.TooNewError
	)
	switch {
	case errors.As(err, &bad), errors.As(err, &base), errors.As(err, &missing):
		return console.WithExit(console.ExitVerification, err)
	case errors.As(err, &tooNew):
		return console.WithExit(console.ExitBlocked, err)
	}
	return withExitCode(err)
}

// createDelta writes the delta from the base to the full bundle at the path full.
func (f *createFlags) createDelta(c *cobra.Command, base *bundlereader.File, full string) error {
	target, err := openBundle(full)
	if err != nil {
		return err
	}
	defer target.Close()
	m := base.Header().Metadata
	return f.finishDelta(c, full, m.Name+" "+m.Version, func(progress func(done, total int64)) error {
		return bundledelta.Create(c.Context(), base, target, f.output, progress)
	})
}

// finishDelta writes a delta by create, removes the full bundle and prints the result.
func (f *createFlags) finishDelta(c *cobra.Command, full, needs string, create func(progress func(done, total int64)) error) error {
	bar := newProgress(c.ErrOrStderr(), "comparing")
	err := create(bar.set)
	bar.finish(err == nil)
	if err != nil {
		fmt.Fprintf(c.ErrOrStderr(), "the full bundle is in %s\n", full)
		return withDeltaExit(err)
	}
	if err := os.Remove(full); err != nil {
		return err
	}
	d, err := openDelta(f.output)
	if err != nil {
		return err
	}
	defer d.Close()
	fmt.Fprintf(c.ErrOrStderr(), "%s: delta to %s %s, %s; needs %s\n", f.output, d.Target().Metadata.Name, d.Target().Metadata.Version, share(d), needs)
	if console.IsTable(f.format) {
		return printf(c, "%s\n", d.Target().Digest)
	}
	return render.Value(c.OutOrStdout(), f.format, deltaViewOf(d))
}

func newRestore() *cobra.Command {
	var base, output, digest string
	var pubs []string
	c := &cobra.Command{
		Use: "restore --base OLD DELTA --output NEW", Short: "Make the full bundle from a delta and its base",
		Long: `Make the full bundle from a delta and the bundle that it was made for, and print its digest. The new file is the bundle that
refit bundle create --base compared, bit by bit, with its signatures. It gets its name when every byte of it is verified
and on disk. With --pub or --digest, the command first checks that the new bundle is trusted.

A delta of refit bundle create --have names its base by the inventory. If OLD does not have a blob that the delta leaves out,
the command names it and writes nothing.

The disk of NEW needs room for NEW, and for the largest unpacked blob that is patched.
OLD is a bundle file or device. ` + mediaHelp,
		Example: "  refit bundle restore --base k8s-1.36.2.bundle k8s-1.36.3.delta --output k8s-1.36.3.bundle --pub refit.pub",
		Args:    console.Args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, a []string) error {
			switch {
			case base == "":
				return console.UsageErrorf("--base OLD is missing: name the bundle that the delta was made for (refit bundle inspect DELTA prints its digest)")
			case output == "":
				return console.UsageErrorf("--output NEW is missing: name the file to write")
			case digest != "" && !bundle.ValidDigest(digest):
				return console.UsageErrorf("--digest %q: want sha256: and 64 lower-case hex digits", digest)
			}
			keys, err := inputs.ReadPublicKeys(pubs)
			if err != nil {
				return err
			}
			return restore(c, base, a[0], output, digest, keys)
		},
	}
	c.Flags().StringVar(&base, "base", "", "bundle that the delta was made for")
	c.Flags().StringVar(&output, "output", "", "file to write")
	c.Flags().StringArrayVar(&pubs, "pub", nil, "public key (refit.pub) of which the new bundle must have a signature; may be repeated, one is enough")
	c.Flags().StringVar(&digest, "digest", "", "digest that the new bundle must have")
	return c
}

func restore(c *cobra.Command, basePath, path, output, digest string, keys map[string]ed25519.PublicKey) error {
	d, err := openDelta(path)
	if err != nil {
		return err
	}
	defer d.Close()
	h := d.Target()
	if err := checkTrust(h, digest, keys); err != nil {
		return console.WithExit(console.ExitVerification, fmt.Errorf("%s: %w", path, err))
	}
	base, err := openBundle(basePath)
	if err != nil {
		return err
	}
	defer base.Close()
	bar := newProgress(c.ErrOrStderr(), "restoring")
	err = bundledelta.Restore(c.Context(), base, d, output, bar.set)
	bar.finish(err == nil)
	if err != nil {
		return withDeltaExit(err)
	}
	fmt.Fprintf(c.ErrOrStderr(), "%s: %s %s, %s, %s\n", output, h.Metadata.Name, h.Metadata.Version, text.Count(len(h.Metadata.Images), "image"), explain.Bytes(h.FileSize()))
	return printf(c, "%s\n", h.Digest)
}
