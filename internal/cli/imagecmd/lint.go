package imagecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/osimage"
	"github.com/refit-dev/refit/internal/osimage/contents"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlewriter"
	"github.com/refit-dev/refit/internal/render"
	"github.com/refit-dev/refit/internal/text"
)

// Linted is the result of refit image lint.
type Linted struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Refused counts findings that keep nodes from booting an image, Warnings the others.
	Refused  int `json:"refused"`
	Warnings int `json:"warnings"`
	// Read bytes of layers.
	Read   int64         `json:"read"`
	Images []LintedImage `json:"images"`
}

// LintedImage is one of the images.
type LintedImage struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
	// Platforms has what refit read of each.
	Platforms []osimage.ImageFacts `json:"platforms"`
	Findings  []osimage.Finding    `json:"findings"`
}

type lintOptions struct {
	images, platforms     []string
	driver, server        string
	boot, sysroot, policy string
	strict, selinux       bool
	output                *string
}

// drivers of hosts that boot images.
var drivers = []string{"bootc", "rpm-ostree", "ostree", "sysext"}

func newLint(a *inputs.Access) *cobra.Command {
	o := &lintOptions{}
	c := &cobra.Command{
		Use: "lint IMAGE", Short: "Check whether nodes can boot an OS image", Args: console.Args(cobra.ExactArgs(1)),
		Long: `Check an OS image before any node boots it: its platforms and labels, kernel and
initramfs, systemd, kubelet, container runtime, refit's agent, and their units. With
facts of the nodes, check also the skew of the kubelet, free space, and the SELinux and
signature policies of the hosts. The gate of an update checks the same (os-images-fit).

IMAGE is docker://REF (or REF), oci:DIR[:TAG], oci-archive:FILE[:TAG], or a bundle. Of a
bundle, the images with a label of bootable images are checked, or those of --image.
The command reads configurations and the tables of layers. It writes nothing to disk,
and reads of an uncompressed layer on disk the headers only.

Exit codes: 0 nodes can boot it (with --strict: and there are no warnings),
2 unreadable source, 3 refused.`,
		Example: "  refit image lint registry.example/os/edge:9 --platform linux/arm64 --kubernetes v1.36.3\n  refit image lint oci:built:edge -o json\n  refit image lint site.bundle",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := console.CheckOutput(*o.output); err != nil {
				return err
			}
			pool, err := o.pool()
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), a, args[0], pool)
		},
	}
	fl := c.Flags()
	fl.StringArrayVar(&o.images, "image", nil, "image of the bundle to check, by its name")
	fl.StringSliceVar(&o.platforms, "platform", nil, "platforms of the nodes (default: all of the image)")
	fl.StringVar(&o.driver, "driver", "", "what boots images on the nodes: "+strings.Join(drivers, ", ")+" (default bootc)")
	fl.StringVar(&o.server, "kubernetes", "", "version of the API server")
	fl.StringVar(&o.boot, "boot-free", "", "free bytes of /boot on the nodes, for example 300Mi")
	fl.StringVar(&o.sysroot, "sysroot-free", "", "free bytes of /sysroot on the nodes, for example 20Gi")
	fl.StringVar(&o.policy, "policy", "", "signature policy of the nodes (their /etc/containers/policy.json)")
	fl.BoolVar(&o.selinux, "selinux", false, "the nodes enforce an SELinux policy")
	fl.BoolVar(&o.strict, "strict", false, "warnings count as refusals")
	o.output = console.OutputFlag(c)
	return c
}

// pool returns what the flags say of the nodes, without the signature policy.
func (o *lintOptions) pool() (osimage.PoolFacts, error) {
	p := osimage.PoolFacts{Platforms: o.platforms, APIServer: o.server}
	if o.driver != "" {
		if !slices.Contains(drivers, o.driver) {
			return p, console.UsageErrorf("--driver %s is not known: %s", o.driver, strings.Join(drivers, ", "))
		}
		p.Drivers = []string{o.driver}
	}
	if o.selinux {
		p.Enforcing = []string{cmp.Or(o.driver, drivers[0])}
	}
	for _, q := range []struct {
		flag, text string
		to         *int64
	}{{"boot-free", o.boot, &p.BootFree}, {"sysroot-free", o.sysroot, &p.SysrootFree}} {
		if q.text == "" {
			continue
		}
		n, err := resource.ParseQuantity(q.text)
		if err != nil || n.Value() <= 0 {
			return p, console.UsageErrorf("--%s %s is not a number of bytes: write for example 300Mi", q.flag, q.text)
		}
		*q.to = n.Value()
	}
	return p, nil
}

func (o *lintOptions) run(ctx context.Context, a *inputs.Access, at string, pool osimage.PoolFacts) error {
	roots, done, err := o.open(ctx, at)
	if err != nil {
		return err
	}
	defer done()
	v := Linted{APIVersion: "refit.dev/oslint/v1", Kind: "OSLint", Images: []LintedImage{}}
	keep := &contents.Tables{}
	for _, root := range roots {
		img, err := o.lint(ctx, root, pool, keep)
		if err != nil {
			return err
		}
		for _, f := range img.Platforms {
			v.Read += f.Read
		}
		for _, f := range img.Findings {
			if f.Warning {
				v.Warnings++
			} else {
				v.Refused++
			}
		}
		v.Images = append(v.Images, img)
	}
	if err := v.print(a.Out, *o.output); err != nil {
		return err
	}
	if v.Refused > 0 || o.strict && v.Warnings > 0 {
		return console.SilentExit(console.ExitBlocked)
	}
	return nil
}

func (o *lintOptions) lint(ctx context.Context, root oci.Root, pool osimage.PoolFacts, keep *contents.Tables) (LintedImage, error) {
	img := LintedImage{Name: root.Name, Digest: root.Desc.Digest.String(), Findings: []osimage.Finding{}}
	if o.policy != "" {
		raw, err := os.ReadFile(o.policy)
		if err != nil {
			return img, console.UsageError(err)
		}
		if pool.Policy, err = model.SignaturePolicy(raw, oci.Repository(root.Name)); err != nil {
			return img, console.UsageError(fmt.Errorf("--policy %s: %w", o.policy, err))
		}
	}
	var err error
	if img.Platforms, err = contents.ReadAllFacts(ctx, root, contents.FactsLimits(), keep); err != nil {
		return img, unreadable(err)
	}
	img.Findings = append(img.Findings, osimage.Admit(img.Platforms, pool)...)
	return img, nil
}

// unreadable: a source that does not answer is no verdict about an image.
func unreadable(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return console.UsageError(err)
}

// open finds the images to check; done closes what was opened.
func (o *lintOptions) open(ctx context.Context, at string) (roots []oci.Root, done func(), err error) {
	kind, _, _ := strings.Cut(at, ":")
	if st, err := os.Stat(at); err == nil && !st.IsDir() {
		return o.openBundle(ctx, at)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, console.UsageError(err)
	}
	if len(o.images) > 0 {
		return nil, nil, console.UsageErrorf("--image is for a bundle, and %s is not a file", at)
	}
	if !slices.Contains([]string{"oci", "oci-archive", "docker"}, kind) {
		at = "docker://" + at
	}
	root, done, err := openBase(ctx, at)
	if err != nil {
		return nil, nil, unreadable(err)
	}
	if root.Name == "" {
		root.Name = at
	}
	return []oci.Root{root}, done, nil
}

func (o *lintOptions) openBundle(ctx context.Context, path string) (roots []oci.Root, done func(), err error) {
	all, c, err := bundlewriter.OpenImages(path)
	if err != nil {
		return nil, nil, inputs.BundleError(fmt.Errorf("bundle %s: %w", path, err))
	}
	done = func() { _ = c.Close() }
	for _, root := range all {
		wanted := slices.Contains(o.images, root.Name)
		if len(o.images) == 0 {
			if wanted, err = isBootable(ctx, root); err != nil {
				done()
				return nil, nil, unreadable(err)
			}
		}
		if wanted {
			roots = append(roots, root)
		}
	}
	if len(roots) == 0 {
		done()
		if len(o.images) > 0 {
			return nil, nil, console.UsageErrorf("bundle %s has no image %s: `refit bundle inspect` lists them", path, strings.Join(o.images, ", "))
		}
		return nil, nil, console.UsageErrorf("bundle %s has no image with the label %s or %s: name one with --image", path, osimage.LabelBootc, osimage.LabelBootable)
	}
	return roots, done, nil
}

// isBootable reports whether a platform of an image has a label of bootable images.
func isBootable(ctx context.Context, root oci.Root) (bool, error) {
	images, err := contents.Open(ctx, root)
	if errors.Is(err, contents.ErrNoImage) {
		return false, nil // an artifact
	}
	return slices.ContainsFunc(images, func(i contents.Image) bool {
		var f osimage.ImageFacts
		f.ReadLabels(i.Labels)
		return f.Bootable
	}), err
}

// print writes the verdict of each image first, then what was read of it, then its findings.
func (v Linted) print(w io.Writer, format string) error {
	if !console.IsTable(format) {
		return render.Value(w, format, v)
	}
	for _, img := range v.Images {
		verdict := "nodes can boot it"
		if osimage.Refused(img.Findings) {
			verdict = "refused"
		}
		fmt.Fprintf(w, "%s@%s: %s\n", text.CleanLine(img.Name), text.ShortDigest(img.Digest), verdict)
		for _, f := range img.Platforms {
			fmt.Fprintf(w, "  %s: %s; read %s of %s\n", orNone(f.Platform), describe(f), explain.Bytes(f.Read), explain.Bytes(f.Packed))
		}
		for _, f := range img.Findings {
			severity := "refused"
			if f.Warning {
				severity = "warning"
			}
			fmt.Fprintf(w, "  %s %s (%s): %s\n    Fix: %s\n", severity, f.Reason, orNone(f.Platform), text.CleanLine(f.Message), f.Fix)
		}
	}
	return nil
}

func orNone(s string) string {
	if s = text.CleanLine(s); s == "" {
		return "no platform"
	}
	return s
}

// describe names what an image has.
func describe(f osimage.ImageFacts) string {
	var out []string
	add := func(what, value string) {
		if value != "" {
			out = append(out, strings.TrimSpace(what+" "+value))
		}
	}
	add("", f.OS)
	for _, k := range f.Kernels {
		add("kernel", k.Version)
	}
	add("kubelet", strings.TrimSpace(f.Kubelet+" "+f.KubeletVersion))
	add("runtime", f.Runtime)
	add("agent", f.Agent)
	if len(out) == 0 {
		return "nothing that refit knows"
	}
	return text.CleanLine(strings.Join(out, ", "))
}
