package bundlecmd

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/exit"
	"github.com/refit-dev/refit/internal/cli/usage"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlemedium"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlewriter"
)

func newVerify() *cobra.Command {
	var pubs []string
	var digest string
	c := &cobra.Command{
		Use: "verify FILE (--pub KEY | --digest D)", Short: "Check the digest or signature of a bundle, and then every byte of it",
		Long: "Checks that the bundle in a file or on a device is the one with digest D, or is signed by one of the keys, and then reads it once and checks every byte.\nExit code 6 if not; the message names the image and the blob, or the part of the archive, and the offset.\nOn a device, bytes after the bundle's end are none of its business.",
		Args: usage.Args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, a []string) error {
			if digest == "" && len(pubs) == 0 {
				return exit.Usagef("give --digest D or --pub KEY: a bundle can only be verified against something that is trusted already")
			}
			if digest != "" && !bundle.ValidDigest(digest) {
				return exit.Usagef("--digest %q: want sha256: and 64 lower-case hex digits", digest)
			}
			return verify(c, a[0], digest, pubs)
		},
	}
	c.Flags().StringArrayVar(&pubs, "pub", nil, "public key (refit.pub); may be repeated, one of them must have signed")
	c.Flags().StringVar(&digest, "digest", "", "digest of the bundle")
	return c
}

func verify(c *cobra.Command, path, digest string, pubs []string) error {
	keys := map[string]ed25519.PublicKey{}
	for _, p := range pubs {
		k, err := readPublicKey(p)
		if err != nil {
			return err
		}
		keys[p] = k
	}
	f, err := openBundle(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h := f.Header()
	if err := trusted(h, digest, keys); err != nil {
		return exit.With(exit.Verification, fmt.Errorf("%s: %w", path, err))
	}
	bar := newProgress(c.ErrOrStderr(), "verifying")
	err = bundlereader.Verify(c.Context(), f, bar.set)
	bar.finish(err == nil)
	if err != nil {
		return coded(fmt.Errorf("%s: %w", path, err))
	}
	return printf(c, "verified %s %s %s: %d images, %d bytes\n", h.Metadata.Name, h.Metadata.Version, h.Digest, len(h.Metadata.Images), h.FileSize())
}

// trusted compares a header with what the caller trusts.
func trusted(h *bundle.Header, digest string, keys map[string]ed25519.PublicKey) error {
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
		Long: "Adds a signature to a bundle in a file or on a device and prints the identifiers of all keys that signed it. Nothing but the signature slot changes, so the digest stays.",
		Args: usage.Args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, a []string) error {
			if key == "" {
				return exit.Usagef("--key KEY is missing")
			}
			k, err := readPrivateKey(key)
			if err != nil {
				return err
			}
			h, err := bundlewriter.Sign(a[0], k)
			if err != nil {
				return coded(err)
			}
			return printf(c, "%s\n", strings.Join(viewOf(h).keyIDs(), "\n"))
		},
	}
	c.Flags().StringVar(&key, "key", "", "secret key (refit.key)")
	return c
}

func newWrite() *cobra.Command {
	return &cobra.Command{
		Use: "write FILE DEVICE", Short: "Write a bundle raw to a USB device (or a file) and read it back",
		Long: "Writes a bundle raw to a block device and verifies what the device then holds. WHATEVER IS ON THE DEVICE IS LOST. A device that is in use (mounted, swap, part of a volume) or too small is refused before anything is written.",
		Args: usage.Args(cobra.ExactArgs(2)),
		RunE: func(c *cobra.Command, a []string) error {
			bar := newProgress(c.ErrOrStderr(), "writing and reading back")
			h, err := bundlemedium.Write(c.Context(), a[0], a[1], bar.set)
			bar.finish(err == nil)
			var corrupt *bundle.CorruptError
			if errors.As(err, &corrupt) {
				return exit.With(exit.Verification, err)
			}
			if err != nil {
				return coded(err)
			}
			fmt.Fprintf(c.ErrOrStderr(), "%s holds %s %s, %s\n", a[1], h.Metadata.Name, h.Metadata.Version, explain.Bytes(h.FileSize()))
			return printf(c, "%s\n", h.Digest)
		},
	}
}
