package bundlecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlewriter"
	"github.com/refit-dev/refit/internal/text"
)

const (
	// kubernetesPrefix begins a source that stands for an official release: the images of
	// kubeadm's list and the programs of the nodes.
	kubernetesPrefix = "kubernetes:"
	// releaseServer has the programs if the command line names no other place.
	releaseServer = "https://dl.k8s.io"
	// programCrictl is the payload with the command line of CRI.
	programCrictl = "crictl"
)

// releasePrograms must be there; optionalPrograms are taken where a place has them.
var (
	releasePrograms  = []string{bundle.PayloadKubeadm, bundle.PayloadKubelet, bundle.PayloadKubectl}
	optionalPrograms = []string{programCrictl, bundle.PayloadCNIPlugins}
)

// kubernetesSource replaces kubernetes:VERSION by plain sources.
type kubernetesSource struct {
	from, images []string
	// parts are those of the images of rke2:VERSION.
	parts []string
	// listed: the source cluster: used the flags.
	listed bool
}

func (k *kubernetesSource) add(fl *pflag.FlagSet) {
	fl.StringArrayVar(&k.from, "kubernetes-from", nil, "where kubernetes:VERSION gets its programs, cluster: its kubeadm, and k3s:, rke2: or k0s: all files: a directory, an archive or a URL, may be repeated (default "+releaseServer+", or GitHub)")
	fl.StringArrayVar(&k.images, "kubernetes-images", nil, "[PREFIX=]SOURCE has images of kubernetes:VERSION and cluster:, and those in no archive of k3s:, rke2: or k0s:VERSION: docker://HOST/PATH (a mirror), oci:DIR or oci-archive:FILE, may be repeated (default the registry in their names)")
	k.addParts(fl)
}

func (k *kubernetesSource) addParts(fl *pflag.FlagSet) {
	fl.StringSliceVar(&k.parts, "rke2-parts", nil, "parts of the images of rke2:VERSION, for example core,cilium (default those that the directory has, else core,canal)")
}

// expand replaces the source; out gets notes and progress. Without platforms in the options
// it sets that of this computer.
func (k *kubernetesSource) expand(ctx context.Context, sources []string, o *bundlewriter.Options, out io.Writer) ([]string, error) {
	if err := k.check(sources); err != nil {
		return nil, err
	}
	var expanded []string
	for _, s := range sources {
		more, err := k.expandOne(ctx, s, o, out)
		if err != nil {
			return nil, err
		}
		expanded = append(expanded, more...)
	}
	return expanded, nil
}

func (k *kubernetesSource) expandOne(ctx context.Context, source string, o *bundlewriter.Options, out io.Writer) ([]string, error) {
	if release, ok := strings.CutPrefix(source, kubernetesPrefix); ok {
		return k.expandRelease(ctx, release, o, out)
	}
	if layout, release, ok := cutDistribution(source); ok {
		return k.expandDistribution(ctx, layout, release, o, out)
	}
	return []string{source}, nil
}

// check refuses two releases, and flags without their source.
func (k *kubernetesSource) check(sources []string) error {
	var releases []string
	for _, s := range sources {
		if _, ok := releaseOf(s); ok {
			releases = append(releases, s)
		}
	}
	switch {
	case len(releases) > 1:
		return console.UsageErrorf("a bundle has one release, not %s: make a bundle for each", strings.Join(releases, ", "))
	case len(releases) == 0 && !k.listed && len(k.from)+len(k.images) > 0:
		return console.UsageErrorf("--kubernetes-from and --kubernetes-images belong to the sources kubernetes:VERSION and cluster:, and to k3s:VERSION, rke2:VERSION and k0s:VERSION: name one, for example kubernetes:v1.36.3")
	}
	return k.checkParts(sources)
}

// checkParts refuses --rke2-parts without its source.
func (k *kubernetesSource) checkParts(sources []string) error {
	if len(k.parts) > 0 && !slices.ContainsFunc(sources, func(s string) bool { return strings.HasPrefix(s, distribution.RKE2+":") }) {
		return console.UsageErrorf("--rke2-parts belongs to the source rke2:VERSION: name it")
	}
	return nil
}

// releaseOf is the version of a source that stands for an official release.
func releaseOf(source string) (version string, ok bool) {
	if version, ok = strings.CutPrefix(source, kubernetesPrefix); ok {
		return version, true
	}
	_, version, ok = cutDistribution(source)
	return version, ok
}

// list returns kubeadm's images of a version, for the source cluster:.
func (k *kubernetesSource) list(ctx context.Context, release, repository string, out io.Writer) ([]string, error) {
	version, err := parseRelease(release)
	if err != nil {
		return nil, err
	}
	r := &releaseReader{version: version, cache: &programCache{}, out: out}
	defer r.cache.close()
	if r.places, err = r.openPlaces(k.from); err != nil {
		return nil, err
	}
	kubeadm, err := r.kubeadmFor(ctx, nil, hostPlatform(runtime.GOOS, runtime.GOARCH))
	if err != nil {
		return nil, err
	}
	return kubeadmImages(ctx, kubeadm, version, repository)
}

func (k *kubernetesSource) expandRelease(ctx context.Context, release string, o *bundlewriter.Options, out io.Writer) ([]string, error) {
	version, err := parseRelease(release)
	if err != nil {
		return nil, err
	}
	images, err := parseImagePlaces(k.images)
	if err != nil {
		return nil, err
	}
	host := hostPlatform(runtime.GOOS, runtime.GOARCH)
	arches, err := releasePlatforms(o, "kubernetes "+version, out)
	if err != nil {
		return nil, err
	}
	r := &releaseReader{version: version, cache: &programCache{}, out: out}
	defer r.cache.close()
	if r.places, err = r.openPlaces(k.from); err != nil {
		return nil, err
	}
	programs, list, err := r.read(ctx, arches, host)
	if err != nil {
		return nil, err
	}
	sources, err := images.sources(ctx, list)
	if err != nil {
		return nil, err
	}
	for _, p := range programs {
		fmt.Fprintf(out, "kubernetes %s: %s for linux/%s from %s (%s)\n", version, p.name, p.arch, p.origin, p.check)
		sources = append(sources, p.source())
	}
	return sources, nil
}

// movingNames are versions of the release server that name another release tomorrow.
var movingNames = regexp.MustCompile(`^(release/|ci/)?(latest|stable)`)

// parseRelease reads the VERSION of kubernetes:VERSION.
func parseRelease(s string) (version string, err error) {
	version = "v" + strings.TrimPrefix(s, "v")
	switch {
	case movingNames.MatchString(s):
		return "", console.UsageErrorf("source kubernetes:%s: a bundle must say what is in it, and %s names another release tomorrow. Name the release, for example kubernetes:v1.36.3", s, s)
	case !bundle.ValidVersion(version):
		return "", console.UsageErrorf("source kubernetes:%s: %q is not the version of a release. Write all three numbers, for example kubernetes:v1.36.3", s, s)
	}
	return version, nil
}

// hostPlatform is the platform for which kubeadm must be built to run on this computer, ""
// if there is no such kubeadm.
func hostPlatform(system, arch string) string {
	if system != "linux" {
		return ""
	}
	return system + "/" + arch
}

// releasePlatforms are the architectures of a bundle with a release; without --platform that of
// this computer.
func releasePlatforms(o *bundlewriter.Options, release string, out io.Writer) ([]string, error) {
	if host := hostPlatform(runtime.GOOS, runtime.GOARCH); len(o.Platforms) == 0 && host != "" {
		o.Platforms = []string{host}
		fmt.Fprintf(out, "%s: the bundle is for %s, as this computer; --platform names others\n", release, host)
	}
	return architectures(o.Platforms)
}

var linuxPlatform = regexp.MustCompile(`^linux/([a-z0-9]+)$`)

// architectures are those of the platforms of a bundle with a release.
func architectures(platforms []string) ([]string, error) {
	var out []string
	for _, p := range platforms {
		m := linuxPlatform.FindStringSubmatch(p)
		if m == nil {
			return nil, console.UsageErrorf("--platform %s: the programs of a Kubernetes node are for linux/ARCH, for example linux/arm64", p)
		}
		if !slices.Contains(out, m[1]) {
			out = append(out, m[1])
		}
	}
	if len(out) == 0 {
		return nil, console.UsageErrorf("--platform is missing: this computer does not run Linux, so name the platform of the nodes, for example linux/amd64")
	}
	return out, nil
}

// releaseProgram is one file of a release for the nodes.
type releaseProgram struct {
	name, arch string
	// version of a program with versions of its own; "" if the file itself says it.
	version string
	path    string
	// origin and check are for people: where it is from and how it was verified.
	origin, check string
}

func (p *releaseProgram) source() string {
	name := p.name
	if p.version != "" {
		name += "@" + p.version
	}
	return "payload:" + name + "=" + p.path
}

// missingError says that a place does not have a program, and why.
type missingError struct{ why string }

func (e *missingError) Error() string { return e.why }

func missingf(format string, a ...any) error { return &missingError{fmt.Sprintf(format, a...)} }

// programPlace has programs of a release.
type programPlace interface {
	// find returns a program for an architecture, verified where the place has a
	// checksum; *missingError if the place does not have it.
	find(ctx context.Context, name, arch string) (*releaseProgram, error)
}

// releaseReader reads one release from places.
type releaseReader struct {
	version string
	places  []programPlace
	cache   *programCache
	out     io.Writer
}

// read returns the programs for the architectures and kubeadm's list of images.
func (r *releaseReader) read(ctx context.Context, arches []string, host string) (programs []*releaseProgram, images []string, err error) {
	if programs, err = r.findAll(ctx, arches); err != nil {
		return nil, nil, err
	}
	kubeadm, err := r.kubeadmFor(ctx, programs, host)
	if err != nil {
		return nil, nil, err
	}
	if images, err = kubeadmImages(ctx, kubeadm, r.version, ""); err != nil {
		return nil, nil, err
	}
	for _, p := range programs {
		if err := p.checkVersion(r.version); err != nil {
			return nil, nil, err
		}
	}
	return programs, images, nil
}

// findAll finds every program for every architecture, or names all that are missing.
func (r *releaseReader) findAll(ctx context.Context, arches []string) (programs []*releaseProgram, err error) {
	var missing []string
	var why []error
	for _, arch := range arches {
		for _, name := range slices.Concat(releasePrograms, optionalPrograms) {
			p, err := r.find(ctx, name, arch)
			var none *missingError
			switch {
			case err == nil:
				programs = append(programs, p)
			case !errors.As(err, &none):
				return nil, err
			case slices.Contains(releasePrograms, name):
				missing, why = append(missing, name+" for linux/"+arch), append(why, err)
			}
		}
	}
	if len(missing) > 0 {
		return nil, console.UsageErrorf("kubernetes %s: %s missing: %s (%s). Name a directory, an official archive or a URL that has it with --kubernetes-from",
			r.version, text.Count(len(missing), "program"), strings.Join(missing, ", "), joinReasons(why))
	}
	return programs, nil
}

// find takes a program from the first place that has it.
func (r *releaseReader) find(ctx context.Context, name, arch string) (*releaseProgram, error) {
	var why []error
	for _, place := range r.places {
		p, err := place.find(ctx, name, arch)
		var none *missingError
		if err == nil && slices.Contains(releasePrograms, name) {
			p.version = r.version
		}
		if err == nil || !errors.As(err, &none) {
			return p, err
		}
		why = append(why, err)
	}
	return nil, &missingError{joinReasons(why)}
}

// joinReasons puts reasons in one line, each once.
func joinReasons(all []error) string {
	var out []string
	for _, err := range all {
		if s := err.Error(); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return strings.Join(out, "; ")
}

// kubeadmFor finds the kubeadm that runs on this computer, also if the bundle is for others.
func (r *releaseReader) kubeadmFor(ctx context.Context, programs []*releaseProgram, host string) (*releaseProgram, error) {
	const instead = "On another computer write the output of `kubeadm config images list --kubernetes-version %s` to a file, and use the sources list:FILE and payload:NAME=FILE instead"
	if host == "" {
		return nil, console.UsageErrorf("kubernetes %s: kubeadm, which has the list of images, runs on Linux only. "+instead, r.version, r.version)
	}
	arch := strings.TrimPrefix(host, "linux/")
	i := slices.IndexFunc(programs, func(p *releaseProgram) bool { return p.name == bundle.PayloadKubeadm && p.arch == arch })
	if i >= 0 {
		return programs[i], nil
	}
	p, err := r.find(ctx, bundle.PayloadKubeadm, arch)
	var none *missingError
	if errors.As(err, &none) {
		return nil, console.UsageErrorf("kubernetes %s: kubeadm has the list of images, and there is none for %s, the platform of this computer (%w). Add a place that has it with --kubernetes-from. "+instead,
			r.version, host, err, r.version)
	}
	return p, err
}
