package bundlecmd

import (
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/imagetag/imagerefs"
	"github.com/refit-dev/refit/internal/text"
)

// clusterPrefix begins a source that stands for the images of a running cluster; a context of
// the kubeconfig may follow.
const clusterPrefix = "cluster:"

// Choices for a tag that names another image in the registry than the one that runs.
const (
	tagsRunning  = "running"
	tagsRegistry = "registry"
)

// clusterSource finds the images of running clusters.
type clusterSource struct {
	access            *inputs.Access
	excludeNamespaces []string
	tags              string
	partial           bool
	nodeImages        bool
	withoutKubeadm    bool
	// used: a source was cluster:.
	used bool
}

func (s *clusterSource) add(fl *pflag.FlagSet) {
	fl.StringArrayVar(&s.excludeNamespaces, "exclude-namespace", nil, "leave out the objects of cluster: in namespaces that match PATTERN, for example test-*; may be repeated")
	fl.BoolVar(&s.partial, "cluster-partial", false, "go on without the kinds of cluster: that your account must not list; they are named")
	fl.BoolVar(&s.nodeImages, "cluster-node-images", false, "include images too that only the status of nodes has, also those that nothing uses any more")
	fl.BoolVar(&s.withoutKubeadm, "without-kubeadm-list", false, "do not ask kubeadm for the images of the cluster's release; its pods name all but the sandbox image")
}

func (s *clusterSource) addTags(fl *pflag.FlagSet) {
	fl.StringVar(&s.tags, "cluster-tags", tagsRunning, "which image of cluster: a tag means that moved since: running (the digest that containers run) or registry (what the tag has now)")
}

// check refuses flags without the source.
func (s *clusterSource) check(sources []string) error {
	s.used = slices.ContainsFunc(sources, func(x string) bool { return strings.HasPrefix(x, clusterPrefix) })
	if !s.used && s.hasFlags() {
		return console.UsageErrorf("--exclude-namespace, --cluster-partial, --cluster-node-images, --cluster-tags and --without-kubeadm-list belong to the source cluster: name it")
	}
	if s.tags != "" && s.tags != tagsRunning && s.tags != tagsRegistry {
		return console.UsageErrorf("--cluster-tags %s: write running or registry", s.tags)
	}
	for _, p := range s.excludeNamespaces {
		if _, err := path.Match(p, ""); err != nil {
			return console.UsageErrorf("--exclude-namespace %s: %w", p, err)
		}
	}
	return nil
}

// hasFlags reports whether a flag of the source differs from its default.
func (s *clusterSource) hasFlags() bool {
	return len(s.excludeNamespaces) > 0 || s.partial || s.nodeImages || s.withoutKubeadm || s.tags == tagsRegistry
}

// clusterFound are the references of a cluster.
type clusterFound struct {
	refs    []imagerefs.Ref
	running map[string][]inputs.RunningImage
	denied  []string
}

// read lists the images of a cluster. release: the bundle has the images of that Kubernetes
// release, so kubeadm is not asked for those of the old one.
func (s *clusterSource) read(ctx context.Context, source, release string, k *kubernetesSource, out io.Writer) (*clusterFound, error) {
	a := *s.access
	if name := strings.TrimPrefix(source, clusterPrefix); name != "" {
		a.Context = name
	}
	cfg, err := a.Config()
	if err != nil {
		return nil, err
	}
	images, err := inputs.ReadClusterImages(ctx, inputs.ClusterOptions{Config: cfg, ExcludeNamespaces: s.excludeNamespaces})
	if err != nil {
		return nil, fmt.Errorf("%s %w", source, err)
	}
	fmt.Fprintf(out, "%s read %s in %s from %s\n", source, text.Count(images.Objects, "object"), text.Count(images.Requests, "request"), cfg.Host)
	if images.Finished+images.Idle > 0 {
		fmt.Fprintf(out, "%s left out %s that ended, and %s without pods: they restart nothing\n", source, text.Count(images.Finished, "pod or Job"), text.Count(images.Idle, "ReplicaSet"))
	}
	own, err := s.ownRelease(ctx, images.Kubeadm, release, k, out)
	if err != nil {
		return nil, fmt.Errorf("%s %w", source, err)
	}
	found := &clusterFound{refs: slices.Concat(images.Refs, own), running: images.Running, denied: images.Denied}
	sandbox := slices.ContainsFunc(own, func(r imagerefs.Ref) bool { return path.Base(nameWithoutTag(r.Image)) == "pause" })
	for _, r := range images.Nodes {
		r.Maybe = r.Maybe && !s.nodeImages
		found.refs = append(found.refs, r)
		sandbox = sandbox || r.Rule == inputs.RuleSandbox
	}
	if !sandbox && release == "" {
		fmt.Fprintf(out, "%s no sandbox image is known: nodes report only their largest images, and kubeadm was not asked. Name it, for example docker://registry.k8s.io/pause:3.10.2; without it no pod starts offline\n", source)
	}
	return found, nil
}

// ownRelease are the images of kubeadm's list for the release of the cluster.
func (s *clusterSource) ownRelease(ctx context.Context, k *inputs.Kubeadm, release string, from *kubernetesSource, out io.Writer) ([]imagerefs.Ref, error) {
	switch {
	case k == nil:
		fmt.Fprintln(out, "cluster: has no settings of kubeadm: its own images are those that its pods name")
		return nil, nil
	case s.withoutKubeadm:
		return nil, nil
	case release != "":
		fmt.Fprintf(out, "cluster: kubeadm's list is that of %s%s, not of %s, which runs\n", kubernetesPrefix, release, k.Version)
		return nil, nil
	}
	from.listed = true
	list, err := from.list(ctx, k.Version, k.Repository, out)
	if err != nil {
		return nil, fmt.Errorf("kubeadm's list of images for %s: %w. Name a place with its kubeadm with --kubernetes-from, or use --without-kubeadm-list", k.Version, err)
	}
	return k.Refs(list), nil
}

// nameWithoutTag is a reference without tag and digest.
func nameWithoutTag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		image = image[:i]
	}
	return image
}

// deniedError names the kinds that an account must not list.
func deniedError(source string, denied []string) error {
	return console.WithExit(console.ExitBlocked, fmt.Errorf("%s your account must not list %s, so images may be missing. Ask for the verb list on them (docs/how-to/your-own-cluster.md has the role), or go on without them with --cluster-partial",
		source, strings.Join(denied, ", ")))
}

// clusterExpansion replaces cluster: by plain sources.
type clusterExpansion struct {
	*clusterSource
	objects    *objectSources
	kubernetes *kubernetesSource
	out        io.Writer
}

// expand resolves the images of the clusters, each under the name that pods have.
func (x *clusterExpansion) expand(ctx context.Context, sources []string) ([]string, error) {
	if err := x.check(sources); err != nil || !x.used {
		return sources, err
	}
	if err := x.objects.checkPatterns(); err != nil {
		return nil, err
	}
	release := ""
	for _, s := range sources {
		if v, ok := strings.CutPrefix(s, kubernetesPrefix); ok {
			release = v
		}
	}
	var out []string
	for _, s := range sources {
		if !strings.HasPrefix(s, clusterPrefix) {
			out = append(out, s)
			continue
		}
		more, err := x.expandOne(ctx, s, release)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

// expandOne returns the sources that replace one cluster.
func (x *clusterExpansion) expandOne(ctx context.Context, source, release string) ([]string, error) {
	found, err := x.read(ctx, source, release, x.kubernetes, x.out)
	if err != nil {
		return nil, err
	}
	if len(found.denied) > 0 && !x.partial {
		return nil, deniedError(source, found.denied)
	}
	for _, d := range found.denied {
		fmt.Fprintf(x.out, "%s without %s: your account must not list them\n", source, d)
	}
	return x.resolve(ctx, source, found)
}

// resolve finds the image behind every name, or names all problems.
func (x *clusterExpansion) resolve(ctx context.Context, source string, found *clusterFound) ([]string, error) {
	places, err := parseImagePlaces(x.kubernetes.images)
	if err != nil {
		return nil, err
	}
	x.kubernetes.listed = true
	want, bad := x.wanted(found)
	r, err := newTagResolver(places, x.tags)
	if err != nil {
		return nil, err
	}
	sources, notes, problems, err := r.resolveAll(ctx, want)
	if err != nil {
		return nil, fmt.Errorf("%s %w", source, err)
	}
	for _, n := range notes {
		fmt.Fprintf(x.out, "%s %s\n", source, n)
	}
	if bad = append(bad, problems...); len(bad) > 0 {
		return nil, console.WithExit(console.ExitBlocked, fmt.Errorf("%s %s cannot be in a bundle: %s. Correct them, or leave them out with --exclude-image PATTERN or --exclude-namespace PATTERN",
			source, text.Count(len(bad), "image"), strings.Join(bad, "; ")))
	}
	fmt.Fprintf(x.out, "%s %s\n", source, text.Count(len(sources), "image"))
	return sources, nil
}

// wanted are the different names of the references that are included, and the references that
// no bundle can have.
func (x *clusterExpansion) wanted(found *clusterFound) (want []wantedImage, bad []string) {
	have := map[string]bool{}
	for _, r := range found.refs {
		if x.objects.excluded(r.Image) {
			continue
		}
		if r.Maybe {
			fmt.Fprintf(x.out, "%s: %s may be an image (%s). It is not included; add it with docker://%s\n", placeOf(r), r.Image, r.Rule, r.Image)
			continue
		}
		name, problem := nameOf(r.Image)
		if problem != "" {
			bad = append(bad, placeOf(r)+": "+problem)
			continue
		}
		if !have[name] {
			have[name] = true
			want = append(want, wantedImage{name: name, at: placeOf(r), running: found.running[name]})
		}
	}
	return want, bad
}
