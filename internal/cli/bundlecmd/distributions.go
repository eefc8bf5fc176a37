package bundlecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlewriter"
	"github.com/refit-dev/refit/internal/text"
)

// releaseLayout has the names of the files in a release of k3s, RKE2 or k0s. Where it has
// several names for one file, the first that a place has counts.
type releaseLayout struct {
	// name of the distribution, of its source and of its program; title is for people.
	name, title string
	// server is the default place: SERVER/VERSION/FILE. example is a version, for messages.
	server, example string
	// program is the file with the program, sums the list of checksums.
	program func(version, arch string) []string
	sums    func(arch string) string
	// list has the names of images, archives the images. part is "" for a release in one part.
	list     func(arch, part string) string
	archives func(version, arch, part string) []string
	// parts are the default ones; nil for a release in one part.
	parts []string
	// mark is what an image of every release ends with; "" if no image has the version.
	mark func(version string) string
	// makeList is a command that writes the list; "" if there is none.
	makeList string
}

// releaseLayouts: k3s-io/k3s .github/workflows/release.yml and install.sh; rancher/rke2
// scripts/package-images, package-bundle, checksum and build-images; k0sproject/k0s
// .github/workflows/release.yml and Makefile. k3s publishes no checksum of its list.
func releaseLayouts() []releaseLayout {
	archSums := func(arch string) string { return "sha256sum-" + arch + ".txt" }
	return []releaseLayout{{
		name: distribution.K3s, server: "https://github.com/k3s-io/k3s/releases/download", example: "v1.36.3+k3s1",
		program:  func(_, arch string) []string { return []string{k3sProgram(arch)} },
		sums:     archSums,
		list:     func(_, _ string) string { return "k3s-images.txt" },
		archives: func(_, arch, _ string) []string { return packed("k3s-airgap-images-" + arch) },
	}, {
		name: distribution.RKE2, server: "https://github.com/rancher/rke2/releases/download", example: "v1.36.3+rke2r1",
		program: func(_, arch string) []string {
			return []string{"rke2.linux-" + arch, "rke2.linux-" + arch + ".tar.gz"}
		},
		sums:     archSums,
		list:     func(arch, part string) string { return rke2Part(arch, part) + ".txt" },
		archives: func(_, arch, part string) []string { return packed(rke2Part(arch, part)) },
		parts:    []string{"core", "canal"},
		mark:     func(version string) string { return "/rke2-runtime:" + strings.ReplaceAll(version, "+", "-") },
	}, {
		name: distribution.K0s, server: "https://github.com/k0sproject/k0s/releases/download", example: "v1.36.3+k0s.0",
		program:  func(version, arch string) []string { return []string{"k0s-" + version + "-" + arch} },
		sums:     func(string) string { return "sha256sums.txt" },
		list:     func(_, _ string) string { return "airgap-images-list.txt" },
		archives: func(version, arch, _ string) []string { return []string{"k0s-airgap-bundle-" + version + "-" + arch} },
		makeList: "k0s airgap list-images --all",
	}}
}

// k3sProgram is the file with k3s for an architecture.
func k3sProgram(arch string) string {
	switch arch {
	case "amd64":
		return distribution.K3s
	case "arm":
		return distribution.K3s + "-armhf"
	}
	return distribution.K3s + "-" + arch
}

// rke2Part is the beginning of the names of a part's files. Old archives of core and canal
// together have no part in their names.
func rke2Part(arch, part string) string {
	if part != "" && part != rke2Whole {
		part = "-" + part
	} else {
		part = ""
	}
	return "rke2-images" + part + ".linux-" + arch
}

// rke2Whole is the part of RKE2 that has core and canal together, rke2AllLists a list of all.
const (
	rke2Whole    = "default"
	rke2AllLists = "all"
)

// packed are the names of an archive with the compressions that releases have.
func packed(name string) []string {
	return []string{name + ".tar.zst", name + ".tar.gz", name + ".tar"}
}

// cutDistribution splits a source k3s:VERSION, rke2:VERSION or k0s:VERSION.
func cutDistribution(source string) (layout releaseLayout, version string, ok bool) {
	kind, version, ok := strings.Cut(source, ":")
	if !ok {
		return layout, "", false
	}
	for _, l := range releaseLayouts() {
		if l.name == kind {
			row, _ := distribution.ByName(kind)
			l.title = row.Title
			return l, version, true
		}
	}
	return layout, "", false
}

// parse reads the VERSION of a source. A release of k0s has a number that its kubelet does not
// report.
func (l releaseLayout) parse(s string) (version string, err error) {
	version = "v" + strings.TrimPrefix(s, "v")
	if b := distribution.SplitVersion(version); !bundle.ValidVersion(version) || b.Distribution != l.name || b.Number == "" {
		return "", console.UsageErrorf("source %s:%s: %q is not the version of a release of %s. Write all of it, for example %s:%s", l.name, s, s, l.title, l.name, l.example)
	}
	return version, nil
}

// distributionReader reads one release of a distribution from places.
type distributionReader struct {
	layout  releaseLayout
	version string
	// asked are the parts of --rke2-parts.
	asked  []string
	places []releasePlace
	cache  *programCache
	out    io.Writer
}

func (r *distributionReader) String() string { return r.layout.name + " " + r.version }

// openDistribution opens the places of a release.
func (k *kubernetesSource) openDistribution(layout releaseLayout, release string, out io.Writer) (*distributionReader, error) {
	version, err := layout.parse(release)
	if err != nil {
		return nil, err
	}
	r := &distributionReader{layout: layout, version: version, asked: k.parts, cache: &programCache{}, out: out}
	return r, r.openPlaces(k.from)
}

// expandDistribution returns the sources of a release.
func (k *kubernetesSource) expandDistribution(ctx context.Context, layout releaseLayout, release string, o *bundlewriter.Options, out io.Writer) ([]string, error) {
	places, err := parseImagePlaces(k.images)
	if err != nil {
		return nil, err
	}
	r, err := k.openDistribution(layout, release, out)
	if err != nil {
		return nil, err
	}
	defer r.cache.close()
	arches, err := releasePlatforms(o, r.String(), out)
	if err != nil {
		return nil, err
	}
	programs, err := r.programs(ctx, arches)
	if err != nil {
		return nil, err
	}
	sources, err := r.images(ctx, arches, places)
	if err != nil {
		return nil, err
	}
	for _, p := range programs {
		fmt.Fprintf(out, "%s: %s for linux/%s from %s (%s)\n", r, p.name, p.arch, p.origin, p.check)
		sources = append(sources, p.source())
	}
	return sources, nil
}

// listDistribution returns the lists of a release, for refit bundle images.
func (k *kubernetesSource) listDistribution(ctx context.Context, layout releaseLayout, release, arch string, out io.Writer) ([]releaseList, error) {
	r, err := k.openDistribution(layout, release, out)
	if err != nil {
		return nil, err
	}
	defer r.cache.close()
	return r.lists(ctx, arch)
}

// programs finds the program for every architecture, or names all that are missing.
func (r *distributionReader) programs(ctx context.Context, arches []string) (programs []*releaseProgram, err error) {
	var missing []string
	var why []error
	for _, arch := range arches {
		p, err := r.program(ctx, arch)
		var none *missingError
		switch {
		case err == nil:
			programs = append(programs, p)
		case errors.As(err, &none):
			missing, why = append(missing, r.layout.name+" for linux/"+arch), append(why, err)
		default:
			return nil, err
		}
	}
	if len(missing) > 0 {
		return nil, console.UsageErrorf("%s: %s missing: %s (%s). Name a directory or a URL that has it with --kubernetes-from", r, text.Count(len(missing), "program"), strings.Join(missing, ", "), joinReasons(why))
	}
	return programs, nil
}

// program finds the program for an architecture, verified and of the version.
func (r *distributionReader) program(ctx context.Context, arch string) (*releaseProgram, error) {
	f, err := r.find(ctx, arch, r.layout.program(r.version, arch))
	if err != nil {
		return nil, err
	}
	p := &releaseProgram{name: r.layout.name, arch: arch, version: r.version, origin: f.origin, check: f.check}
	if p.path, err = r.runnable(ctx, f.path); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", r, f.origin, err)
	}
	is, err := platformOf(p.path)
	if err != nil {
		return nil, err
	}
	if is != "linux/"+arch {
		return nil, console.UsageErrorf("%s: %s is not a program for linux/%s, but %s. Name a place with the files of that release", r, f.origin, arch, cmp.Or(is, "another file"))
	}
	ok, err := p.hasVersion(r.version)
	if err == nil && !ok {
		err = console.UsageErrorf("%s: %s for linux/%s from %s is not %s. Name a place with the files of that release", r, p.name, arch, f.origin, r.version)
	}
	return p, err
}

// runnable is the program of a file: of an archive, or the file with the permission to run.
func (r *distributionReader) runnable(ctx context.Context, file string) (string, error) {
	if !isArchive(file) {
		return r.cache.executable(file)
	}
	a := archivePlace{name: filepath.Base(file), cache: r.cache}
	files, err := a.unpack(ctx, file, []string{r.layout.name})
	return files[r.layout.name], err
}

// find takes the first of the names that a place has. A file without a checksum is refused.
func (r *distributionReader) find(ctx context.Context, arch string, names []string) (*releaseFile, error) {
	var why []error
	for _, place := range r.places {
		for _, name := range names {
			f, err := place.file(ctx, name, r.layout.sums(arch))
			var none *missingError
			switch {
			case err == nil && f.check == notVerified:
				return nil, console.UsageErrorf("%s: %s has no checksum, and files without one are not used. Copy %s of the release next to it", r, f.origin, r.layout.sums(arch))
			case err == nil || !errors.As(err, &none):
				return f, err
			}
			why = append(why, err)
		}
	}
	return nil, &missingError{joinReasons(why)}
}

// partsFor are the parts of the images for an architecture: those asked for, those of the
// directories, or the default ones.
func (r *distributionReader) partsFor(arch string) []string {
	if r.layout.parts == nil {
		return []string{""}
	}
	parts := slices.Clone(r.asked)
	for _, p := range r.places {
		if len(r.asked) == 0 {
			parts = append(parts, p.parts(arch)...)
		}
	}
	if len(parts) == 0 {
		return r.layout.parts
	}
	slices.Sort(parts)
	return slices.Compact(parts)
}
