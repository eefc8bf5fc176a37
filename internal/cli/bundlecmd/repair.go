package bundlecmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlewriter"
	"github.com/refit-dev/refit/internal/text"
)

func newRepair() *cobra.Command {
	var from, digest string
	c := &cobra.Command{
		Use: "repair FILE [--repair-from COPY]", Short: "Find the damaged chunks of a bundle, and replace them from another copy",
		Long: `Read a bundle file, or a device that a bundle was written to raw, and list every damaged chunk. With --repair-from, read only those
chunks from another copy of the same bundle, compare them with their digests, write them in place and read the result back.
The copy may be a file, a device, a medium with a file system, or a directory with the parts of the bundle.
If the header is damaged, name the digest of the bundle. Chunks that are damaged in both stay as they are: repair once more from a third copy.
Exit code 6 if damage is left.`,
		Example: "  refit bundle repair k8s.bundle\n  refit bundle repair /dev/sdb --repair-from k8s.bundle",
		Args:    console.Args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, a []string) error {
			if digest != "" && !bundle.ValidDigest(digest) {
				return console.UsageErrorf("--digest %q: want sha256: and 64 lower-case hex digits", digest)
			}
			return repair(c, a[0], from, digest)
		},
	}
	c.Flags().StringVar(&from, "repair-from", "", "another copy of the bundle: a file, a device, a medium or a directory of parts")
	c.Flags().StringVar(&digest, "digest", "", "digest of the bundle; needed if its header is damaged")
	return c
}

func repair(c *cobra.Command, path, from, digest string) error {
	bar := newProgress(c.ErrOrStderr(), "reading")
	report := func(d bundlereader.Damage, err error) {
		state := "repaired"
		if err != nil {
			state = "damaged"
		}
		fmt.Fprintf(c.ErrOrStderr(), "%s: %s at offset %d: %s\n", state, text.Count(int(d.Length), "byte"), d.Offset, text.CleanLine(d.Err.Error()))
	}
	r, err := bundlewriter.Repair(c.Context(), path, from, digest, report, bar.set)
	bar.finish(err == nil)
	var damaged *bundlewriter.DamagedHeaderError
	if errors.As(err, &damaged) {
		return console.WithExit(console.ExitVerification, err)
	}
	if err != nil {
		return withExitCode(err)
	}
	name := fmt.Sprintf("%s %s %s", r.Header.Metadata.Name, r.Header.Metadata.Version, r.Header.Digest)
	if left := len(r.Unrepaired); left > 0 {
		fix := "name another copy with --repair-from"
		if from != "" {
			fix = "repair it once more from a third copy"
		}
		return console.WithExit(console.ExitVerification, fmt.Errorf("%s: %s of %s damaged, the first one: %w. Fix: %s", path, text.Count(left, "range"), name, r.Unrepaired[0], fix))
	}
	if r.Ranges == 0 {
		return printf(c, "intact %s\n", name)
	}
	return printf(c, "repaired %s: %s, %s\n", name, text.Count(r.Ranges, "range"), explain.Bytes(r.Bytes))
}
