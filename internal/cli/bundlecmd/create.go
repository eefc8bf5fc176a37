package bundlecmd

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundledelta"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlewriter"
	"github.com/refit-dev/refit/internal/render"
	"github.com/refit-dev/refit/internal/text"
)

// createGC is the percentage by which the heap may grow before garbage is collected.
const createGC = 20

const createLong = `Create a bundle of images and node binaries, and print its digest.

SOURCE is one of
  oci:DIR[:TAG]               an OCI image layout in a directory; without TAG every image in its index
  oci-archive:FILE[:TAG]      the same in a tar
  docker-archive:FILE[:TAG]   what docker save and podman save write, also with gzip or zstd, as k3s and RKE2 publish it; layers stay as they are
  docker://REF                an image in a registry, by tag, digest or both
  list:FILE                   image references or sources, one per line, # begins a comment
  bundle:FILE                 everything of another bundle
  payload:NAME[@VERSION]=FILE a file for the nodes: kubelet, kubeadm, kubectl, refit-agent, refit, containerd, runc, cni-plugins (a tar),
                              refit-chart (refit-VERSION.tgz of the release; nodes do not store it), k3s, rke2, k0s, file.NAME for a NodeConfig, or your own
  tracks:[FILE]               approved images of the cluster's ImageTracks, or of a file (kubectl get imagetracks -o yaml)
  os-image:NAME               the images of an OSImage of the cluster for its pools, or the image of an OSBuild
  kubernetes:VERSION          an official release for kubeadm clusters: the images of kubeadm's own list (CoreDNS, etcd and pause too),
                              kubelet, kubeadm and kubectl, and from places that have them crictl and the CNI plugins
  k3s:VERSION, rke2:VERSION, k0s:VERSION
                              an official release of that distribution: its program, and the images of its list
  manifests:PATH              the images of manifests: a file, a directory or - for standard input
  kustomize:DIR               the images of a kustomization
  chart:REF                   the images of a Helm chart: a directory, an archive, oci://HOST/PATH:VERSION or https://HOST/PATH/NAME:VERSION
  cluster:[CONTEXT]           the images that a running cluster uses, of the kubeconfig or of a context in it
  resources:PATH              manifests, a file or a directory: the controller applies them, before or after the nodes
  boot-images:FILE            the stream of boot images of the release (BootImageStream with spec.bundle)
  boot-image:FILE             a boot image file (OVA, qcow2, ISO, ...), found in the stream by its SHA-256; nodes do not
                              store it: extract it for its upload with refit bundle extract
NAME=SOURCE gives the one image of a source another name.

--manifests PATH checks manifests against the images (refit tags lint lists the rules). An error refuses the bundle before
a byte is copied; a warning is printed. With --strict a warning refuses it too.

refit bundle images SOURCE prints what manifests:, kustomize:, chart: and cluster: find, and by which rule. Text that only resembles a
reference is printed and left out; --exclude-image PATTERN leaves out others. The objects are checked with the same rules
as those of --manifests. Their findings are printed, and refuse the bundle with --strict only.

--from-tracks is the source tracks: of the cluster. The bundle must then contain every image of the tracks' workloads.
If images are missing, the command names them and writes nothing.

kubernetes:VERSION gets programs from --kubernetes-from, by default over the internet from https://dl.k8s.io:
  DIR      has NAME, linux/ARCH/NAME, bin/linux/ARCH/NAME, VERSION/bin/linux/ARCH/NAME or official archives
  ARCHIVE  kubernetes-server-linux-ARCH.tar.gz, kubernetes-node-linux-ARCH.tar.gz, crictl-VERSION-linux-ARCH.tar.gz or
           cni-plugins-linux-ARCH-VERSION.tgz
  URL      has VERSION/bin/linux/ARCH/NAME with NAME.sha256, or is that of an archive; https only

A program comes from the first place that has it. Checksums next to a file are verified: NAME.sha256, NAME.sha512,
SHA256SUMS or SHA512SUMS. Downloads must have one; they stay in ~/.cache/refit/kubernetes. The release's kubeadm runs on this
computer, to list its images. They come from the registries in their names, or from --kubernetes-images, and keep their names.
Without --platform the bundle is for the platform of this computer.

k3s:VERSION, rke2:VERSION and k0s:VERSION (v1.36.3+k3s1, v1.36.3+rke2r1, v1.36.3+k0s.2) get their files from --kubernetes-from. That
is a directory with the files of the release, or with VERSION/FILE, or a URL with VERSION/FILE. The default is GitHub.
  k3s   k3s or k3s-ARCH, k3s-images.txt, k3s-airgap-images-ARCH.tar.zst, sha256sum-ARCH.txt
  rke2  rke2.linux-ARCH.tar.gz, rke2-images-PART.linux-ARCH.txt and .tar.zst, sha256sum-ARCH.txt; --rke2-parts names the parts
  k0s   k0s-VERSION-ARCH, airgap-images-list.txt, k0s-airgap-bundle-VERSION-ARCH, sha256sums.txt

Every file must be in the release's list of checksums. A list of images without a checksum, as that of k3s, must have exactly the
images of the archives. Images that no archive has come from the registries in their names, or from --kubernetes-images.
No program of the release runs on this computer.

--verify POLICY refuses images whose signature by cosign (with a key) or notation is missing or wrong, before a byte is
copied. The policy is a file of kind ImageProofPolicy with rules for repositories. --with-proofs carries the signatures,
SBOMs and provenance of the images, which registries and layouts have, in the payload image-proofs. --verify includes it.
Nodes do not store that payload.

cluster: lists workloads, pods, known custom resources and nodes, and changes nothing. A tag means the image that containers run, also
if it names another one in the registry now; --cluster-tags registry takes that one. Its images come from their registries, or
from --kubernetes-images. kubeadm's list is that of the cluster's release (--kubernetes-from has its kubeadm), or that of kubernetes:VERSION.

Images must have a tag or a digest. Groups are inferred (control-plane, node, refit, workload) or set with --group.
--constraint says for which nodes the bundle is made. refit approve compares it with the nodes, and so their platforms and the step
between the Kubernetes versions.

The next run with the same sources continues an interrupted one.

--base OLD writes a delta: a small file for sites that have the bundle OLD. There refit bundle restore makes the full bundle of
both, bit by bit as without --base. The digest and the signature are those of the full bundle. Nodes take only full bundles.
The command makes the full bundle in FILE` + fullSuffix + ` first, and removes it when the delta is complete. Of a bundle that you have,
the source bundle:FILE makes the same bundle again, if its name, version, groups, constraints and key are given again.

--have INVENTORY writes a delta too, without the old bundle at hand: it leaves out blobs that the site has, by a file of
refit inventory. Of the bundles in it the command takes the one with the most bytes, and prints what it leaves out. The site
restores with that bundle as OLD. Other blobs are whole, so --base makes a smaller delta. --pub verifies the inventory.`

type createFlags struct {
	output, key, format string
	unsigned            bool
	groups, constraints []string
	base, have          string
	pubs                []string
	policy              string
	lint                lintFlags
	tracks              trackSources
	fromTracks          bool
	osImages            []string
	kubernetes          kubernetesSource
	objects             objectSources
	cluster             clusterSource
	opts                bundlewriter.Options
}

func newCreate(a *inputs.Access) *cobra.Command {
	f := createFlags{tracks: trackSources{access: a}, cluster: clusterSource{access: a}}
	c := &cobra.Command{
		Use:   "create --output FILE --key KEY SOURCE...",
		Short: "Create a bundle from image layouts, archives, registries, manifests and charts",
		Long:  createLong,
		Example: "  refit bundle create --output k8s.bundle --key refit.key kubernetes:v1.36.3 --kubernetes-from release --kubernetes-images docker://mirror.example/k8s\n" +
			"  refit bundle create --output k8s.bundle --key refit.key oci:images payload:kubelet=bin/kubelet payload:kubeadm=bin/kubeadm\n" +
			"  refit bundle create --base old.bundle --output k8s.delta --key refit.key kubernetes:v1.36.3\n" +
			"  refit bundle create --have site.inventory --output k8s.delta --key refit.key kubernetes:v1.36.3",
		RunE: func(c *cobra.Command, sources []string) error { return f.run(c, sources) },
	}
	fl := c.Flags()
	fl.StringVar(&f.output, "output", "", "file to write")
	fl.StringVar(&f.key, "key", "", "private key that signs the bundle (refit keys generate)")
	fl.BoolVar(&f.unsigned, "unsigned", false, "leave the bundle unsigned: it must be approved by digest")
	fl.StringVar(&f.opts.Name, "name", "", "name of the bundle (default kubernetes if it has a kubelet, k3s, rke2 or k0s if it has that program, else images)")
	fl.StringVar(&f.opts.Version, "version", "", "semantic version of the bundle (default that of the kubelet, or of k3s, rke2 or k0s)")
	fl.StringVar(&f.opts.MinRefit, "min-refit", "", "oldest refit that may load it (default 0.1.0)")
	fl.StringArrayVar(&f.constraints, "constraint", nil, "what nodes must have before they load it: kubernetes>=VERSION (before the update), kubernetes<=VERSION, containerd>=VERSION or cri-o>=VERSION; may be repeated")
	fl.StringSliceVar(&f.opts.Platforms, "platform", nil, "platforms to include, for example linux/amd64 (default all of the sources; with a release that of this computer)")
	fl.StringArrayVar(&f.groups, "group", nil, "GROUP=PATTERN puts images into a group, for example infra=registry.example/storage/*")
	fl.StringVarP(&f.format, "format", "o", render.Table, "what to print: table (the digest), json or yaml")
	fl.StringArrayVar(&f.osImages, "os-image", nil, "include the images of an OSImage or an OSBuild of the cluster (the source os-image:NAME), or the output of refit image build (oci:DIR:TAG)")
	fl.BoolVar(&f.opts.CheckLayers, "check-layers", false, "unpack every layer, to refuse one that a node could not unpack")
	fl.BoolVar(&f.fromTracks, "from-tracks", false, "include approved images of the cluster's ImageTracks (the source tracks:)")
	fl.BoolVar(&f.tracks.rollback, "with-rollback", false, "include the rollback image of each track too")
	fl.StringVar(&f.policy, "verify", "", "policy that the signatures of the images must meet (kind ImageProofPolicy)")
	fl.BoolVar(&f.opts.Proofs, "with-proofs", false, "carry the signatures, SBOMs, provenance and release records of the images")
	f.kubernetes.add(fl)
	f.objects.add(fl)
	f.cluster.add(fl)
	f.cluster.addTags(fl)
	f.lint.add(fl)
	fl.StringVar(&f.base, "base", "", "bundle that the site has: write a delta, of which refit bundle restore makes the full bundle there")
	fl.StringVar(&f.have, "have", "", "inventory of the site (refit inventory): write a delta without the blobs that the site has")
	fl.StringArrayVar(&f.pubs, "pub", nil, "public key (refit.pub) of which the inventory must have a signature; may be repeated, one is enough")
	return c
}

func (f *createFlags) run(c *cobra.Command, sources []string) error {
	err := f.check()
	if err != nil {
		return err
	}
	var have *bundledelta.SignedInventory
	if f.have != "" {
		if have, err = readInventory(f.have, f.pubs, c.ErrOrStderr()); err != nil {
			return err
		}
	}
	if f.opts.Sources, err = f.expand(c, sources); err != nil {
		return withExitCode(err)
	}
	f.opts.Groups = append(f.opts.Groups, f.objects.groups()...)
	f.opts.Warn = func(s string) { fmt.Fprintln(c.ErrOrStderr(), "warning: "+s) }
	if err := f.lint.read(c); err != nil {
		return err
	}
	f.opts.Accept = func(m *bundle.Metadata) error {
		return errors.Join(f.tracks.accept(m), f.lint.accept(m), f.lint.acceptSources(m, f.objects.objects))
	}
	// What is copied is not on the heap: to collect often costs little and keeps refit small.
	defer debug.SetGCPercent(debug.SetGCPercent(createGC))
	if f.base != "" || have != nil {
		return f.delta(c, have)
	}
	h, err := f.write(c, f.output)
	if err != nil {
		return err
	}
	if console.IsTable(f.format) {
		return printf(c, "%s\n", h.Digest)
	}
	return render.Value(c.OutOrStdout(), f.format, viewOf(h))
}

// delta writes a delta from --base, or from a bundle of the inventory.
func (f *createFlags) delta(c *cobra.Command, have *bundledelta.SignedInventory) error {
	full := f.output + fullSuffix
	if have != nil {
		if _, err := f.write(c, full); err != nil {
			return err
		}
		return f.createFromInventory(c, have, full)
	}
	base, err := openBundle(f.base)
	if err != nil {
		return err
	}
	defer base.Close()
	if _, err := f.write(c, full); err != nil {
		return err
	}
	return f.createDelta(c, base, full)
}

// write writes the full bundle to a path.
func (f *createFlags) write(c *cobra.Command, path string) (*bundle.Header, error) {
	bar := newProgress(c.ErrOrStderr(), "creating")
	h, err := bundlewriter.Create(c.Context(), path, f.opts, bar.set)
	bar.finish(err == nil)
	if err != nil {
		if _, e := os.Stat(path + bundlewriter.PartialSuffix); e == nil {
			fmt.Fprintf(c.ErrOrStderr(), "copied data is in %s; the next run with the same sources continues\n", path+bundlewriter.PartialSuffix)
		}
		return nil, withExitCode(err)
	}
	fmt.Fprintf(c.ErrOrStderr(), "%s: %s %s, %s, %s, %s\n", path, h.Metadata.Name, h.Metadata.Version,
		text.Count(len(h.Metadata.Images), "image"), text.Count(len(h.Metadata.Payloads), "payload"), explain.Bytes(h.FileSize()))
	return h, nil
}

// expand replaces the sources that stand for others.
func (f *createFlags) expand(c *cobra.Command, sources []string) ([]string, error) {
	for _, name := range f.osImages {
		sources = append(sources, osImageSource(name))
	}
	if f.fromTracks {
		sources = append(sources, tracksPrefix)
	}
	if len(sources) == 0 {
		return nil, console.UsageErrorf("no source: name at least one, for example oci:DIR")
	}
	f.tracks.note = func(format string, a ...any) { fmt.Fprintf(c.ErrOrStderr(), format+"\n", a...) }
	sources, err := expandOSImages(c.Context(), f.tracks.access, sources)
	if err != nil {
		return nil, err
	}
	if sources, err = f.tracks.expand(c.Context(), sources); err != nil {
		return nil, err
	}
	x := clusterExpansion{clusterSource: &f.cluster, objects: &f.objects, kubernetes: &f.kubernetes, out: c.ErrOrStderr()}
	if sources, err = x.expand(c.Context(), sources); err != nil {
		return nil, err
	}
	f.objects.stdin = c.InOrStdin()
	if sources, err = f.objects.expand(c.Context(), sources, f.tracks.note); err != nil {
		return nil, err
	}
	return f.kubernetes.expand(c.Context(), sources, &f.opts, c.ErrOrStderr())
}

func (f *createFlags) check() error {
	switch {
	case f.output == "":
		return console.UsageErrorf("--output FILE is missing: name the file to write")
	case f.key == "" && !f.unsigned:
		return console.UsageErrorf("--key KEY is missing: create one with refit keys generate --out DIR, or use --unsigned")
	case f.key != "" && f.unsigned:
		return console.UsageErrorf("--key and --unsigned exclude each other")
	case f.base != "" && f.have != "":
		return console.UsageErrorf("--base and --have exclude each other: --base makes the smaller delta if you have the old bundle")
	case len(f.pubs) > 0 && f.have == "":
		return console.UsageErrorf("--pub is for --have INVENTORY: it names a key that signed the inventory")
	}
	if err := console.CheckOutput(f.format); err != nil {
		return err
	}
	return f.read()
}

// read turns flags into options.
func (f *createFlags) read() (err error) {
	for _, g := range f.groups {
		group, pattern, ok := strings.Cut(g, "=")
		if !ok {
			return console.UsageErrorf("--group %s: write GROUP=PATTERN", g)
		}
		f.opts.Groups = append(f.opts.Groups, bundlewriter.GroupRule{Pattern: pattern, Group: group})
	}
	if f.opts.Constraints, err = bundle.ParseConstraints(f.constraints); err != nil {
		return console.UsageError(fmt.Errorf("--constraint: %w", err))
	}
	if f.policy != "" {
		if f.opts.Policy, err = readPolicy(f.policy); err != nil {
			return err
		}
	}
	if f.key != "" {
		f.opts.Key, err = inputs.ReadPrivateKey(f.key)
	}
	return err
}
