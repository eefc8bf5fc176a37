package bundlecmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/imagetag/imagerefs"
	"github.com/refit-dev/refit/internal/imagetag/lint"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlewriter"
	"github.com/refit-dev/refit/internal/text"
)

// Sources that stand for the images in Kubernetes objects.
const (
	manifestsKind = "manifests"
	kustomizeKind = "kustomize"
	chartKind     = "chart"
)

// objectSources finds the images in manifests, kustomizations and charts.
type objectSources struct {
	chart   inputs.ChartOptions
	exclude []string
	stdin   io.Reader
	// release is the Kubernetes version of the bundle, "" if it has none.
	release string
	// used are the names of the rendered charts; objects what the lint checks.
	used    []string
	objects []lint.Object
	// found are the images of all sources.
	found expansion
}

func (s *objectSources) add(fl *pflag.FlagSet) {
	fl.StringArrayVar(&s.chart.Values, "chart-values", nil, "[CHART:]FILE has values for charts, or for the chart of that name; may be repeated, later ones win")
	fl.StringArrayVar(&s.chart.Sets, "chart-set", nil, "[CHART:]KEY=VALUE sets a value of charts, or of the chart of that name; may be repeated")
	fl.StringVar(&s.chart.KubeVersion, "chart-kube-version", "", "Kubernetes version that charts see (default that of the release, else v1.36.0)")
	fl.StringSliceVar(&s.chart.APIVersions, "chart-api-versions", nil, "further APIs that charts see, for example monitoring.coreos.com/v1")
	fl.StringArrayVar(&s.exclude, "exclude-image", nil, "leave out images of manifests, kustomizations and charts whose reference matches PATTERN, for example */test/*; may be repeated")
}

// isObjects reports whether a source has Kubernetes objects, and where.
func isObjects(source string) (kind, rest string, ok bool) {
	kind, rest, ok = strings.Cut(source, ":")
	return kind, rest, ok && slices.Contains([]string{manifestsKind, kustomizeKind, chartKind}, kind)
}

// each calls f for all manifests of a source.
func (s *objectSources) each(ctx context.Context, kind, rest string, f func(inputs.Manifest) error) error {
	if rest == "" {
		return console.UsageErrorf("source %s: is not complete: write %s:PATH", kind, kind)
	}
	switch kind {
	case kustomizeKind:
		m, err := inputs.Kustomize(ctx, rest)
		if err != nil {
			return err
		}
		return f(m)
	case chartKind:
		o := s.chart
		o.KubeVersion = cmp.Or(o.KubeVersion, s.release)
		all, name, err := inputs.Chart(ctx, rest, o)
		if err != nil {
			return err
		}
		s.used = append(s.used, name)
		for _, m := range all {
			if err := f(m); err != nil {
				return err
			}
		}
		return nil
	}
	return inputs.EachManifest(s.stdin, rest, f)
}

// find returns the references of a source.
func (s *objectSources) find(ctx context.Context, kind, rest string) ([]imagerefs.Ref, error) {
	var out []imagerefs.Ref
	err := s.each(ctx, kind, rest, func(m inputs.Manifest) error {
		refs, err := imagerefs.Find(m.File, m.Data)
		if err != nil {
			return console.UsageError(err)
		}
		objects, err := lint.Parse(m.File, m.Data)
		if err != nil {
			return console.UsageError(err)
		}
		if m.Rendered {
			for i := range refs {
				refs[i].Line = 0
			}
		}
		s.objects = append(s.objects, objects...)
		out = append(out, refs...)
		return nil
	})
	return out, err
}

// checkFlags refuses options for charts that no chart used.
func (s *objectSources) checkFlags() error {
	o := s.chart
	if len(s.used) == 0 && len(o.Values)+len(o.Sets)+len(o.APIVersions) > 0 || len(s.used) == 0 && o.KubeVersion != "" {
		return console.UsageErrorf("--chart-values, --chart-set, --chart-kube-version and --chart-api-versions belong to the source chart:REF: name it, for example chart:./my-chart")
	}
	for _, v := range slices.Concat(o.Values, o.Sets) {
		if name, _ := inputs.ChartOf(v); name != "" && !slices.Contains(s.used, name) {
			return console.UsageErrorf("%s is for the chart %s, which is no source. The charts are %s", v, name, strings.Join(s.used, ", "))
		}
	}
	return nil
}

func (s *objectSources) checkPatterns() error {
	for _, p := range s.exclude {
		if _, err := path.Match(p, ""); err != nil {
			return console.UsageErrorf("--exclude-image %s: %w", p, err)
		}
	}
	return nil
}

// excluded reports whether a pattern matches a reference, as it is written or in full.
func (s *objectSources) excluded(image string) bool {
	full := image
	if r, err := imagetag.ParseRef(image); err == nil {
		full = r.String()
	}
	return slices.ContainsFunc(s.exclude, func(p string) bool {
		short, _ := path.Match(p, image)
		long, _ := path.Match(p, full)
		return short || long
	})
}

// expand replaces the sources by the images in them, each once. Candidates are printed to
// note and left out. A reference that no bundle can have refuses all.
func (s *objectSources) expand(ctx context.Context, sources []string, note func(format string, a ...any)) ([]string, error) {
	if err := s.checkPatterns(); err != nil {
		return nil, err
	}
	s.found = expansion{note: note, have: map[string]bool{}}
	e := &s.found
	for _, source := range sources {
		if release, ok := releaseOf(source); ok {
			s.release = release
		}
	}
	for _, source := range sources {
		kind, rest, ok := isObjects(source)
		if !ok {
			e.sources = append(e.sources, source)
			continue
		}
		refs, err := s.find(ctx, kind, rest)
		if err != nil {
			return nil, err
		}
		images := 0
		for _, r := range refs {
			if !s.excluded(r.Image) && e.add(r) {
				images++
			}
		}
		note("%s: %s", source, text.Count(images, "reference"))
	}
	if len(e.bad) > 0 {
		return nil, console.WithExit(console.ExitBlocked, fmt.Errorf("%s cannot be in a bundle: %s. Correct them, or leave them out with --exclude-image PATTERN", text.Count(len(e.bad), "reference"), strings.Join(e.bad, "; ")))
	}
	return e.sources, s.checkFlags()
}

// groups puts images of objects that have the name of a part of the control plane into the
// group of workloads. Pods of a hosted control plane run on workers, which do not pin the group
// control-plane. Rules of --group come first.
func (s *objectSources) groups() []bundlewriter.GroupRule {
	var out []bundlewriter.GroupRule
	for _, name := range slices.Sorted(maps.Keys(s.found.have)) {
		name, _, _ = strings.Cut(name, "@")
		if bundlewriter.GroupOf(name) == bundle.GroupControlPlane {
			out = append(out, bundlewriter.GroupRule{Pattern: name, Group: bundle.GroupWorkload})
		}
	}
	return out
}

// expansion collects the sources that replace those with objects.
type expansion struct {
	note         func(format string, a ...any)
	have         map[string]bool
	sources, bad []string
}

// add adds the image of a reference, and reports whether it is more than a candidate.
func (e *expansion) add(r imagerefs.Ref) bool {
	if r.Maybe {
		e.note("%s: %s may be an image (%s). It is not included; add it with docker://%s", placeOf(r), r.Image, r.Rule, r.Image)
		return false
	}
	name, problem := nameOf(r.Image)
	if problem != "" {
		e.bad = append(e.bad, placeOf(r)+": "+problem)
	} else if !e.have[name] {
		e.have[name] = true
		e.sources = append(e.sources, "docker://"+name)
	}
	return true
}

// nameOf is the whole reference of an image with its tag and digest, or why a bundle cannot
// have it.
func nameOf(image string) (name, problem string) {
	name, digest, err := oci.ParseName(image)
	if err != nil {
		return "", err.Error()
	}
	if digest != "" && !strings.Contains(name, "@") {
		name += "@" + digest
	}
	return name, ""
}

// placeOf a reference for people.
func placeOf(r imagerefs.Ref) string {
	file := r.File
	if r.Line > 0 {
		file = fmt.Sprintf("%s:%d", file, r.Line)
	}
	return strings.TrimSpace(file + " " + r.String() + " " + r.Path)
}
