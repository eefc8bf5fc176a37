package bundlecmd

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

func newExtract() *cobra.Command {
	var out, platform string
	c := &cobra.Command{
		Use: "extract FILE PAYLOAD --output OUT", Short: "Extract one payload from a bundle, verified by its digest",
		Long: `Extract a payload (a boot image, a program, refit's Helm chart, manifests; refit bundle inspect lists them) from a bundle file or device.
The command verifies every byte against the bundle's header and leaves no file if one differs. It does not verify the
bundle itself: use refit bundle verify.
` + mediaHelp,
		Example: "  refit bundle extract k8s.bundle boot-image.vsphere.amd64.ova --output rhcos.ova\n" +
			"  refit bundle extract k8s.bundle refit-chart --output refit-1.2.3.tgz",
		Args: console.Args(cobra.ExactArgs(2)),
		RunE: func(c *cobra.Command, a []string) error {
			if out == "" {
				return console.UsageErrorf("--output OUT is missing: name the file to write")
			}
			return extract(c, a[0], a[1], platform, out)
		},
	}
	c.Flags().StringVar(&out, "output", "", "file to write; it must not exist")
	c.Flags().StringVar(&platform, "platform", "", "platform of the payload, for example linux/amd64, if there are several")
	return c
}

func extract(c *cobra.Command, path, name, platform, out string) error {
	f, err := openBundle(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h := f.Header()
	p, err := payloadOf(h, name, platform)
	if err != nil {
		return console.UsageError(fmt.Errorf("%s: %w", path, err))
	}
	bar := newProgress(c.ErrOrStderr(), "extracting")
	err = writeChecked(c.Context(), f.Blob(p.Blob), p, out, bar.set)
	bar.finish(err == nil)
	if err != nil {
		return withExitCode(fmt.Errorf("%s: payload %s: %w", path, name, err))
	}
	fmt.Fprintf(c.ErrOrStderr(), "%s: %s of %s %s, %s\n", out, p.Name, h.Metadata.Name, h.Metadata.Version, explain.Bytes(p.Size))
	if p.Name == bundle.PayloadRefitChart {
		fmt.Fprintf(c.ErrOrStderr(), "next: helm install refit %s --namespace kube-system%s\n", out, chartValues(h))
	}
	return printf(c, "%s\n", p.Digest)
}

// chartValues are the values with which refit's chart starts the image of a bundle.
func chartValues(h *bundle.Header) string {
	for i := range h.Metadata.Images {
		image := &h.Metadata.Images[i]
		if repository := oci.Repository(image.Name); image.Group == bundle.GroupRefit && repository != oci.SelfImage.Repository {
			return " --set image.repository=" + repository
		}
	}
	return ""
}

// payloadOf a bundle; one of several platforms must be named.
func payloadOf(h *bundle.Header, name, platform string) (*bundle.Payload, error) {
	var hits []*bundle.Payload
	names := map[string]bool{}
	for i := range h.Metadata.Payloads {
		p := &h.Metadata.Payloads[i]
		names[p.Name] = true
		if p.Name == name && (platform == "" || p.Platform == platform) {
			hits = append(hits, p)
		}
	}
	switch {
	case len(hits) == 1:
		return hits[0], nil
	case len(hits) > 1:
		return nil, fmt.Errorf("payload %s has several platforms: choose one with --platform", name)
	}
	var have []string
	for n := range names {
		have = append(have, n)
	}
	sort.Strings(have)
	return nil, fmt.Errorf("bundle %s %s has no payload %s; it has: %s", h.Metadata.Name, h.Metadata.Version, strings.TrimSpace(name+" "+platform), orNone(have))
}

// writeChecked writes a new file, which gets its name when all of it is verified.
func writeChecked(ctx context.Context, r io.Reader, p *bundle.Payload, out string, progress func(done, total int64)) (err error) {
	if _, err := os.Lstat(out); err == nil {
		return console.UsageErrorf("%s exists already", out)
	}
	f, err := os.CreateTemp(filepath.Dir(out), "."+filepath.Base(out)+".*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), ignoreGone(os.Remove(f.Name()))) }()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), &counted{ctx: ctx, r: r, total: p.Size, progress: progress})
	if err != nil {
		return err
	}
	if got := bundle.FormatDigest([bundle.HashSize]byte(sum.Sum(nil))); n != p.Size || got != p.Digest {
		return console.WithExit(console.ExitVerification, fmt.Errorf("it has %d bytes with digest %s, the bundle's header has %d with %s", n, got, p.Size, p.Digest))
	}
	if err := errors.Join(f.Chmod(os.FileMode(p.Mode)), f.Sync()); err != nil {
		return err
	}
	return os.Rename(f.Name(), out)
}

func ignoreGone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// counted reports the progress of a copy, and ends it with the context.
type counted struct {
	ctx         context.Context
	r           io.Reader
	done, total int64
	progress    func(done, total int64)
}

func (c *counted) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(p)
	c.done += int64(n)
	c.progress(c.done, c.total)
	return n, err
}
