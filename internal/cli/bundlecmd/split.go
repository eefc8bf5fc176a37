package bundlecmd

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlewriter"
	"github.com/refit-dev/refit/internal/text"
)

// defaultPartSize fits FAT32, whose largest file has one byte less than 4 GiB.
const defaultPartSize = "4095Mi"

func newSplit() *cobra.Command {
	var size, output string
	c := &cobra.Command{
		Use: "split FILE --size N --output DIR", Short: "Split a bundle into parts for media with a file size limit",
		Long: `Split a bundle file or device into parts, read them back, and print their paths. FAT32 has no files of 4 GiB and more.
The names of the parts do not matter, nor their order. Commands that read a bundle take a directory or a medium with all
parts, one of the parts in a directory, or several places: /media/one,/media/two. refit bundle verify names a part that
is missing, doubled or damaged. refit bundle write DIR FILE makes one file of them again. Sign a bundle before you split it.
` + mediaHelp,
		Example: "  refit bundle split k8s.bundle --output parts\n  refit bundle verify parts --pub refit.pub",
		Args:    console.Args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, a []string) error {
			n, err := resource.ParseQuantity(size)
			if err != nil || n.Value() <= 0 {
				return console.UsageErrorf("--size %s: write bytes, or a number with Ki, Mi, Gi, K, M or G", size)
			}
			if output == "" {
				return console.UsageErrorf("--output DIR is missing: name a directory for the parts")
			}
			return split(c, a[0], output, n.Value())
		},
	}
	c.Flags().StringVar(&size, "size", defaultPartSize, "largest size of a part: bytes, or with Ki, Mi, Gi, K, M or G (the default is for FAT32, which 4Gi exceeds by one byte)")
	c.Flags().StringVar(&output, "output", "", "directory for the parts")
	return c
}

func split(c *cobra.Command, path, dir string, size int64) error {
	bar := newProgress(c.ErrOrStderr(), "splitting and reading back")
	parts, h, err := bundlewriter.Split(c.Context(), path, dir, size, bar.set)
	bar.finish(err == nil)
	if err != nil {
		return withExitCode(err)
	}
	fmt.Fprintf(c.ErrOrStderr(), "%s %s %s, %s, in %s\n", h.Metadata.Name, h.Metadata.Version, h.Digest, explain.Bytes(h.FileSize()), text.Count(len(parts), "part"))
	return printf(c, "%s\n", strings.Join(parts, "\n"))
}

// verifyParts checks parts of a bundle that cannot be opened, each on its own. opening is the
// error of opening them.
func verifyParts(c *cobra.Command, path string, opening error) error {
	var parts *bundle.PartsError
	if !errors.As(opening, &parts) {
		return opening
	}
	err := bundlereader.VerifyParts(c.Context(), path, func(p bundle.PartFile, err error) {
		state := "intact"
		if err != nil {
			state = "damaged"
		}
		fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", text.CleanLine(p.String()), state)
	})
	if err == nil {
		return opening
	}
	return withExitCode(fmt.Errorf("%s: %w", path, err))
}
