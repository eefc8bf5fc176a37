package bundlecmd

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/pipeline/bundle"

	"github.com/refit-dev/refit/internal/pipeline/bundle/bundledelta"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlewriter"
	"github.com/refit-dev/refit/internal/text"
)

func newVerify() *cobra.Command {
	var pubs []string
	var digest string
	var blobs bool
	c := &cobra.Command{
		Use: "verify FILE (--pub KEY | --digest D)", Short: "Verify the digest or signature of a bundle, and every byte of it",
		Long: "Verify that the bundle file or device has digest D, or a signature of one of the keys. Then read it once and compare every byte with the chunk table that the digest covers.\nWith --blobs the command also compares each blob as a whole with its own digest, in about twice the processor time. Use it for a bundle of a tool that you do not trust to compute the table. Nodes do that anyway when they load an image.\nExit code 6 if a check fails; the message names the image and the blob, or the part of the archive, and the offset.\nOn a device, the command ignores bytes after the bundle's end.\nIf parts are missing, the command verifies those that are there and names the others.\nOf a delta, the command checks the digest or signature of the bundle that it makes, and that the delta is as it was written.\n" + mediaHelp,
		Args: console.Args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, a []string) error {
			if digest == "" && len(pubs) == 0 {
				return console.UsageErrorf("--digest D or --pub KEY is missing: name a digest or a key that you trust")
			}
			if digest != "" && !bundle.ValidDigest(digest) {
				return console.UsageErrorf("--digest %q: want sha256: and 64 lower-case hex digits", digest)
			}
			check := bundlereader.Verify
			if blobs {
				check = bundlereader.VerifyBlobs
			}
			return verify(c, a[0], digest, pubs, check)
		},
	}
	c.Flags().StringArrayVar(&pubs, "pub", nil, "public key (refit.pub); may be repeated, one valid signature is enough")
	c.Flags().StringVar(&digest, "digest", "", "digest of the bundle")
	c.Flags().BoolVar(&blobs, "blobs", false, "compare each blob as a whole with its digest too")
	return c
}

func verify(c *cobra.Command, path, digest string, pubs []string, check func(ctx context.Context, f *bundlereader.File, progress func(done, total int64)) error) error {
	keys, err := inputs.ReadPublicKeys(pubs)
	if err != nil {
		return err
	}
	if bundledelta.IsDelta(path) {
		return verifyDelta(c, path, digest, keys)
	}
	f, err := openBundle(path)
	if err != nil {
		return verifyParts(c, path, err)
	}
	defer f.Close()
	h := f.Header()
	if err := checkTrust(h, digest, keys); err != nil {
		return console.WithExit(console.ExitVerification, fmt.Errorf("%s: %w", path, err))
	}
	bar := newProgress(c.ErrOrStderr(), "verifying")
	err = check(c.Context(), f, bar.set)
	bar.finish(err == nil)
	if err != nil {
		return withExitCode(fmt.Errorf("%s: %w", path, err))
	}
	return printf(c, "verified %s %s %s: %s, %d bytes\n", h.Metadata.Name, h.Metadata.Version, h.Digest, text.Count(len(h.Metadata.Images), "image"), h.FileSize())
}

// checkTrust compares a header with the trusted digest or keys.
func checkTrust(h *bundle.Header, digest string, keys map[string]ed25519.PublicKey) error {
	found := fmt.Sprintf("%s %s (%s)", h.Metadata.Name, h.Metadata.Version, h.Digest)
	if digest != "" && h.Digest != digest {
		return fmt.Errorf("found bundle %s, expected %s", found, digest)
	}
	if len(keys) > 0 && len(h.SignedBy(keys)) == 0 {
		var want []string
		for _, k := range keys {
			want = append(want, bundle.KeyID(k))
		}
		return fmt.Errorf("found bundle %s, signed by key %s, expected a valid signature of key %s", found, orNone(viewOf(h).keyIDs()), strings.Join(want, " or "))
	}
	return nil
}

func newSign() *cobra.Command {
	var key string
	c := &cobra.Command{
		Use: "sign FILE --key KEY", Short: "Add a signature to a bundle, in place",
		Long: "Add a signature to a bundle file or device, and print the identifiers of all keys that signed it. Only the signature slot changes, so the digest stays the same.",
		Args: console.Args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, a []string) error {
			if key == "" {
				return console.UsageErrorf("--key KEY is missing")
			}
			k, err := inputs.ReadPrivateKey(key)
			if err != nil {
				return err
			}
			h, err := bundlewriter.Sign(a[0], k)
			if err != nil {
				return withExitCode(err)
			}
			return printf(c, "%s\n", strings.Join(viewOf(h).keyIDs(), "\n"))
		},
	}
	c.Flags().StringVar(&key, "key", "", "private key (refit.key)")
	return c
}

func newWrite() *cobra.Command {
	var kind string
	var yes bool
	var readme bundlewriter.Readme
	c := &cobra.Command{
		Use: "write FILE DEVICE", Short: "Write a bundle to a USB device (or a file), and read it back",
		Long: `Write a bundle to a block device, and verify the bytes on the device. THE DEVICE LOSES ALL ITS DATA. The command writes nothing to
a device that is in use (mounted, swap, part of a volume) or too small. It names what else than a bundle the device has, and asks
before it erases that; --yes answers for scripts.

Without --filesystem the bundle is written raw: nodes read it, other computers do not. With --filesystem fat32 or exfat the device
gets a partition with that file system. It has the bundle as a file, and README.TXT for the technician: what to do, and the SHA-256
of the file. Add lines about whom to call with --contact. FAT32 has no files of 4 GiB or more; a larger bundle is written in parts.
exFAT has it as one file. A device on which writing was interrupted has no bundle.`,
		Args: console.Args(cobra.ExactArgs(2)),
		RunE: func(c *cobra.Command, a []string) error {
			write, err := mediumWriter(kind, readme)
			if err != nil {
				return err
			}
			if err := confirmErase(c, a[1], yes); err != nil {
				return err
			}
			bar := newProgress(c.ErrOrStderr(), "writing and reading back")
			h, err := write(c.Context(), a[0], a[1], bar.set)
			bar.finish(err == nil)
			var corrupt *bundle.CorruptError
			if errors.As(err, &corrupt) {
				return console.WithExit(console.ExitVerification, err)
			}
			if err != nil {
				return withExitCode(err)
			}
			fmt.Fprintf(c.ErrOrStderr(), "%s contains %s %s, %s\n", a[1], h.Metadata.Name, h.Metadata.Version, explain.Bytes(h.FileSize()))
			return printf(c, "%s\n", h.Digest)
		},
	}
	c.Flags().StringVar(&kind, "filesystem", "", "file system of the device: fat32 or exfat (default: none, the bundle is written raw)")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask before data on the device is erased")
	c.Flags().StringArrayVar(&readme.Contacts, "contact", nil, "line of README.TXT about whom to call; may be repeated")
	return c
}

// mediumWriter is the writer for a value of --filesystem.
func mediumWriter(kind string, readme bundlewriter.Readme) (func(ctx context.Context, src, dst string, progress func(done, total int64)) (*bundle.Header, error), error) {
	format := bundlewriter.FAT32()
	switch {
	case kind == "" && len(readme.Contacts) > 0:
		return nil, console.UsageErrorf("--contact is for --filesystem fat32 or exfat: a raw device has no README.TXT")
	case kind == "":
		return bundlewriter.WriteMedium, nil
	case kind == "exfat":
		format = bundlewriter.ExFAT()
	case kind != "fat32":
		return nil, console.UsageErrorf("--filesystem %s: write fat32 or exfat, or leave it out for a raw device; refit reads ext4 too, format it with the tools of your system and copy the file", kind)
	}
	return func(ctx context.Context, src, dst string, progress func(done, total int64)) (*bundle.Header, error) {
		return bundlewriter.WriteVolume(ctx, format, src, dst, readme, progress)
	}, nil
}

// confirmErase asks before a device loses anything but a bundle.
func confirmErase(c *cobra.Command, device string, yes bool) error {
	if yes {
		return nil
	}
	lost, err := bundlewriter.ReadDeviceContents(device)
	if err != nil {
		return withExitCode(err)
	}
	if lost.What == "" {
		return nil
	}
	what := fmt.Sprintf("%s (%s): %s", device, strings.TrimPrefix(lost.Name+", "+explain.Bytes(lost.Size), ", "), lost.What)
	if err := console.RequireTerminal(os.Stdin, "refit bundle write asks before it erases "+what); err != nil {
		return err
	}
	return console.Confirm(c.Context(), os.Stdin, c.ErrOrStderr(), "Erase "+what+"?")
}
