package bundlecmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/pipeline/bundle"

	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlewriter"
)

// New is `refit bundle`. Only create with tracks: or cluster:, images with cluster:, inspect
// with --cluster, list without a path, and remove need a cluster.
func New(a *inputs.Access) *cobra.Command {
	c := &cobra.Command{
		Use: "bundle", Short: "Create, inspect, verify, sign, write, serve and remove bundles",
		Long: "A bundle is one file with everything for an update: images, node binaries, hashes and signatures.\nIts digest is the digest of its top manifest and covers every byte of the content.",
		Args: cobra.NoArgs,
	}
	c.AddCommand(newCreate(a), newImages(a), newInspect(a), newVerify(), newSign(), newList(a), newRemove(a), newDiff(), newWrite(), newRepair(), newSplit(), newRestore(), newExtract(), newServe(), newPush())
	return c
}

// mediaHelp explains how a path leads to a bundle.
const mediaHelp = `A device, a partition or an image file may also have a FAT, exFAT, ISO 9660 or ext4 file system. The bundle is then in its root
directory or in a directory below it. If there are several bundles, name one: PATH#FILE, or PATH#PARTITION:FILE.
The path of a directory means the bundle in its files, also one in parts (refit bundle split).`

// openBundle opens a bundle by a path from the command line.
func openBundle(path string) (*bundlereader.File, error) {
	f, err := bundlereader.OpenPath(path)
	return f, withExitCode(err)
}

// withExitCode gives an error of the bundle packages its exit code.
func withExitCode(err error) error {
	var (
		input   *bundlewriter.InputError
		space   *bundlewriter.SpaceError
		busy    *bundlewriter.BusyError
		corrupt *bundle.CorruptError
		tooNew  *bundle.TooNewError
		several *bundlereader.SeveralError
		parts   *bundle.PartsError
		refused *bundlewriter.RefusedError
		already *console.ExitError
	)
	switch {
	case err == nil || errors.As(err, &already):
		return err
	case errors.Is(err, context.Canceled):
		return console.WithExit(console.ExitInterrupted, err)
	case errors.As(err, &corrupt), errors.As(err, &parts), errors.As(err, &refused), errors.Is(err, bundle.ErrNotBundle):
		return console.WithExit(console.ExitVerification, err)
	case errors.As(err, &space), errors.As(err, &busy), errors.As(err, &tooNew):
		return console.WithExit(console.ExitBlocked, err)
	case errors.As(err, &input), errors.As(err, &several), errors.Is(err, fs.ErrNotExist):
		return console.UsageError(err)
	}
	return err
}

func printf(c *cobra.Command, format string, a ...any) error {
	_, err := fmt.Fprintf(c.OutOrStdout(), format, a...)
	return err
}
