package installcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/areas"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

// installer does the work with access to a cluster.
type installer struct{ *inputs.Access }

type installFlags struct {
	from string
	ssh  []string
	rsh  string
	// imagePolicy is a file with rules for signatures of images.
	imagePolicy string
	timeout     time.Duration
	// daemonSet installs the agents from pods, where the image can be pulled.
	daemonSet bool
	// without has the areas to leave out, areas the same after parsing.
	without []string
	areas   areas.Set
	// ifNotPresent is nil without the flag.
	ifNotPresent *bool
}

// New is the command `refit install`.
func New(a *inputs.Access) *cobra.Command {
	var f installFlags
	c := &cobra.Command{
		Use:   "install --from BUNDLE [--ssh HOST[:DEVICE],...]",
		Short: "Install refit into the cluster and onto its nodes, from a bundle, without a registry",
		Long: `Install refit into the cluster and onto its nodes, from a bundle, without a registry.

The command applies kinds, permissions and the controller. With --ssh it copies the
agent from the bundle to each host and installs it as a host service. A host given
as HOST:DEVICE has the stick: the command loads the controller's image from it.
Without --ssh, run refit-agent install --from DEVICE on the node with the stick, and
refit-agent install on the others.

With --image-policy each HOST:DEVICE verifies the signatures of refit's own images
by the rules of a file, before it loads them. The command copies the rules and their
keys to the host. A host that refuses an image ends the command, and has no agent.

--without leaves out areas that the site does not use, with their kinds, rights,
policies and controllers. Run the command again without the flag to add them. To
remove an installed area, add the flag later; kinds with objects stay, and the
command names them.

At the end the command lists nodes without the agent.`,
		Args: cobra.NoArgs,
	}
	local := false
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("if-not-present") {
			f.ifNotPresent = &local
		}
		out, err := areas.Parse(f.without)
		if err != nil {
			return console.UsageError(fmt.Errorf("--without: %w", err))
		}
		f.areas = out
		return installer{a}.install(cmd.Context(), f)
	}
	fl := c.Flags()
	fl.BoolVar(&local, "if-not-present", false, "start new pods that name images by digest from the images on the node, with any pull policy (by an admission policy of the API server; =false removes it)")
	fl.StringVar(&f.from, "from", "", "bundle with refit's image and agent: a file, a device, or an image or device with a file system (PATH#FILE if it has several bundles)")
	fl.StringSliceVar(&f.ssh, "ssh", nil, "hosts to install the agent on, each HOST or HOST:DEVICE if it has the stick")
	fl.StringVar(&f.rsh, "rsh", "ssh", "remote shell program with ssh's calling convention: PROGRAM HOST COMMAND")
	fl.StringVar(&f.imagePolicy, "image-policy", "", "file with rules for signatures (an ImageProofPolicy, as for refit bundle create --verify): each HOST:DEVICE loads no image that it refuses")
	fl.DurationVar(&f.timeout, "timeout", 3*time.Minute, "how long to wait for the controller and the agents")
	fl.BoolVar(&f.daemonSet, "daemonset", false, "install the agents with a DaemonSet: only if nodes have refit's image or can pull it")
	fl.StringSliceVar(&f.without, "without", nil, "areas to leave out, of "+strings.Join(areas.Names(), ", "))
	_ = c.MarkFlagRequired("from")
	return c
}

func (o installer) install(ctx context.Context, f installFlags) error {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	b, err := bundlereader.OpenPath(f.from)
	if err != nil {
		return inputs.BundleError(err)
	}
	defer b.Close()
	image, err := selfImageOf(b.Header())
	if err != nil {
		return err
	}
	o.Note("bundle %s %s (%s) has %s", b.Header().Metadata.Name, b.Header().Metadata.Version, b.Header().Digest, image.Name)
	hosts, err := parseHosts(f.ssh)
	if err != nil {
		return err
	}
	policy, err := readImagePolicy(f.imagePolicy, hosts)
	if err != nil {
		return err
	}
	for _, h := range hosts {
		if err := o.installHost(ctx, b, f.rsh, h, policy); err != nil {
			return err
		}
	}
	if err := o.installCluster(ctx, image.Name, hosts, f); err != nil || f.ifNotPresent == nil {
		return err
	}
	c, err := o.Client()
	if err != nil {
		return err
	}
	return setIfNotPresent(ctx, c, *f.ifNotPresent, takesEffect)
}

// selfImageOf finds refit's own image in a bundle.
func selfImageOf(h *bundle.Header) (*bundle.Image, error) {
	for i := range h.Metadata.Images {
		if h.Metadata.Images[i].Group == bundle.GroupRefit {
			return &h.Metadata.Images[i], nil
		}
	}
	return nil, console.WithExit(console.ExitBlocked, fmt.Errorf("bundle %s does not contain refit's own image: create it with refit's image among its sources (make image; refit bundle create ... oci:bin/image)", h.Metadata.Name))
}

// host is one machine to install the agent on.
type host struct{ name, device string }

func parseHosts(args []string) ([]host, error) {
	var out []host
	for _, a := range args {
		name, device, _ := strings.Cut(a, ":")
		if name == "" || strings.HasPrefix(name, "-") {
			return nil, console.UsageError(fmt.Errorf("--ssh %q: want HOST or HOST:DEVICE", a))
		}
		if device != "" && !strings.HasPrefix(device, "/") {
			return nil, console.UsageError(fmt.Errorf("--ssh %q: the device must be an absolute path, for example %s:/dev/sdb", a, name))
		}
		out = append(out, host{name, device})
	}
	return out, nil
}

// goArch maps `uname -m` to Go's names.
var goArch = map[string]string{"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "ppc64le": "ppc64le", "s390x": "s390x", "riscv64": "riscv64"}

// remoteAgent is the path of the copied agent before it installs itself, remotePolicy that of the rules
// for signatures.
const (
	remoteAgent  = "/var/tmp/refit-agent.install"
	remotePolicy = "/var/tmp/refit-image-policy.install"
)

// installHost copies the agent from the bundle to a host and lets it install itself.
// It verifies every byte against the bundle while it reads, and again on the host. policy has the rules for
// signatures, nil for none.
func (o installer) installHost(ctx context.Context, b *bundlereader.File, rsh string, h host, policy []byte) error {
	sh := remote{program: rsh, host: h.name}
	machine, err := sh.output(ctx, nil, "uname -m")
	if err != nil {
		return fmt.Errorf("host %s: %w", h.name, err)
	}
	arch, ok := goArch[strings.TrimSpace(machine)]
	if !ok {
		return console.WithExit(console.ExitBlocked, fmt.Errorf("host %s: machine %q is not known", h.name, strings.TrimSpace(machine)))
	}
	p := b.Header().PayloadByName(bundle.PayloadRefitAgent, "linux/"+arch)
	if p == nil {
		return console.WithExit(console.ExitBlocked, fmt.Errorf("host %s: the bundle has no refit-agent for linux/%s; add payload:refit-agent=FILE when creating it", h.name, arch))
	}
	if err := sh.copyFile(ctx, b.Blob(p.Blob), remoteAgent, "755", p.Digest); err != nil {
		return fmt.Errorf("copy the agent to host %s: %w", h.name, err)
	}
	cmd := remoteAgent + " install"
	if h.device != "" {
		cmd += " --from " + shellQuote(h.device)
	}
	if h.device != "" && policy != nil {
		if err := sh.copyFile(ctx, bytes.NewReader(policy), remotePolicy, "644", bundle.DigestOf(policy)); err != nil {
			return fmt.Errorf("copy the image policy to host %s: %w", h.name, err)
		}
		cmd += " --image-policy " + remotePolicy
	}
	if _, err := sh.output(ctx, nil, cmd+" && rm -f "+remoteAgent+" "+remotePolicy); err != nil {
		return fmt.Errorf("install the agent on host %s: %w", h.name, err)
	}
	o.Note("%s: agent installed", h.name)
	return nil
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

var errNoImage = errors.New("no node has refit's own image yet, so the controller cannot start: on the node with the stick run refit-agent install --from DEVICE, or name it here with --ssh HOST:DEVICE")
