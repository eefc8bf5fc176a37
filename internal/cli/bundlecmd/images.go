package bundlecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/imagetag/imagerefs"
	"github.com/refit-dev/refit/internal/render"
	"github.com/refit-dev/refit/internal/text"
)

// imagesView is what `refit bundle images -o json` prints.
type imagesView struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Images are the distinct references that refit bundle create would include, in full.
	Images []string `json:"images"`
	// References are all that were found, in the order of the sources.
	References []referenceView `json:"references"`
	// Denied are resources of a cluster that the account must not list.
	Denied []string `json:"denied,omitempty"`
}

type referenceView struct {
	// Image as the source has it; Name in full, with registry, tag and digest.
	Image string `json:"image"`
	Name  string `json:"name,omitempty"`
	// Maybe: the text only resembles a reference, so it is not included.
	Maybe bool `json:"maybe,omitempty"`
	// Excluded by --exclude-image.
	Excluded bool `json:"excluded,omitempty"`
	// Problem is why a bundle cannot have it.
	Problem string `json:"problem,omitempty"`
	// Running are the digests that containers of a cluster run under this name, the most used first.
	Running []string `json:"running,omitempty"`
	// Rule that found it: container, image-volume, custom-resource-field, annotation, argument,
	// variable, image-like or text-like; of a cluster also kubeadm-list, sandbox-image or node-status;
	// of a release release-list.
	Rule   string `json:"rule"`
	Source string `json:"source"`
	// File is the path of a manifest, or of a template in a chart. Line is that of a manifest.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	// Object as kind/namespace/name, and the path of the field in it.
	Object string `json:"object,omitempty"`
	Path   string `json:"path,omitempty"`
}

const imagesLong = `Print every image reference in Kubernetes objects or in the list of a release, and its place. No image is fetched. Only
cluster: asks a cluster; k3s:, rke2: and k0s: fetch lists from release servers, unless --kubernetes-from names a directory.

SOURCE is one of
  manifests:PATH  YAML or JSON: a file, the .yaml, .yml and .json files of a directory, or - for standard input
  kustomize:DIR   a kustomization, built as kustomize build does, without network and plugins
  chart:REF       a Helm chart, rendered as helm template does, with hooks, CRDs and subcharts: a directory, an archive,
                  oci://HOST/PATH:VERSION or https://HOST/PATH/NAME:VERSION
  resources:PATH  manifests that the controller applies
  cluster:[CONTEXT]  what a running cluster uses: workloads, pods, known custom resources, kubeadm's list for its release
  k3s:VERSION, rke2:VERSION, k0s:VERSION  the list of a release, for the platform of this computer

A reference is found by one of these rules:
  container              containers, init containers and ephemeral containers, also in custom resources
  image-volume           images that a pod mounts
  custom-resource-field  fields of known custom resources, for example of Prometheus, CloudNativePG, Tekton, Argo Workflows, KubeVirt
  annotation             annotations that select an image
  argument, variable     an argument or variable whose name says that it is an image, with a whole reference
  kubeadm-list           the list of the cluster's kubeadm
  sandbox-image          the sandbox (pause) image that nodes report
  release-list           the list of a release of k3s, RKE2 or k0s
The rule node-status finds images that only the status of nodes has: they may be unused, so they are candidates. -o json has the digests
that containers run.
The rules image-like and text-like find candidates: text with the form of a reference. refit bundle create prints them and
leaves them out. An image that an operator has in its own program is in no object: no rule finds it.`

func newImages(a *inputs.Access) *cobra.Command {
	s := imagesCall{cluster: clusterSource{access: a}}
	c := &cobra.Command{
		Use: "images SOURCE...", Short: "Print the image references in manifests, kustomizations, charts, clusters and releases",
		Long:    imagesLong,
		Example: "  refit bundle images chart:./my-chart --chart-set replicas=3\n  kubectl get deployments,daemonsets -A -o yaml | refit bundle images manifests:- -o json\n  refit bundle images cluster: --exclude-namespace 'test-*'",
		Args:    console.Args(cobra.MinimumNArgs(1)),
	}
	format := console.OutputFlag(c)
	s.add(c.Flags())
	s.cluster.add(c.Flags())
	c.Flags().StringArrayVar(&s.kubernetes.from, "kubernetes-from", nil, "where the kubeadm of the cluster's release is, or the list of k3s:, rke2: or k0s:: a directory, an archive or a URL, may be repeated (default "+releaseServer+", or GitHub)")
	s.kubernetes.addParts(c.Flags())
	c.RunE = func(c *cobra.Command, sources []string) error {
		if err := console.CheckOutput(*format); err != nil {
			return err
		}
		s.stdin, s.out = c.InOrStdin(), c.ErrOrStderr()
		v, err := s.view(c.Context(), sources)
		if err != nil {
			return withExitCode(err)
		}
		if console.IsTable(*format) {
			err = v.table(c.OutOrStdout(), *format == render.Wide)
		} else {
			err = render.Value(c.OutOrStdout(), *format, v)
		}
		if err == nil && len(v.Denied) > 0 && !s.cluster.partial {
			err = deniedError("cluster:", v.Denied)
		}
		return err
	}
	return c
}

// resourcesKind is the source of manifests that the controller applies.
const resourcesKind = "resources"

// imagesCall is a call of `refit bundle images`.
type imagesCall struct {
	objectSources
	cluster    clusterSource
	kubernetes kubernetesSource
	out        io.Writer
}

// view lists the references of all sources.
func (s *imagesCall) view(ctx context.Context, sources []string) (imagesView, error) {
	v := imagesView{APIVersion: "refit.dev/bundleimages/v1", Kind: "BundleImages", Images: []string{}, References: []referenceView{}}
	if err := errors.Join(s.checkPatterns(), s.cluster.check(sources), s.kubernetes.checkParts(sources)); err != nil {
		return v, err
	}
	have := map[string]bool{}
	for _, source := range sources {
		found, err := s.findIn(ctx, source)
		if err != nil {
			return v, err
		}
		v.Denied = append(v.Denied, found.denied...)
		for _, r := range found.refs {
			x := s.reference(source, r)
			for _, d := range found.running[x.Name] {
				x.Running = append(x.Running, d.Digest)
			}
			v.References = append(v.References, x)
			if !x.Maybe && !x.Excluded && x.Problem == "" && !have[x.Name] {
				have[x.Name] = true
				v.Images = append(v.Images, x.Name)
			}
		}
	}
	return v, s.checkFlags()
}

// findIn returns the references of one source.
func (s *imagesCall) findIn(ctx context.Context, source string) (*clusterFound, error) {
	if strings.HasPrefix(source, clusterPrefix) {
		return s.cluster.read(ctx, source, "", &s.kubernetes, s.out)
	}
	if layout, release, ok := cutDistribution(source); ok {
		return s.findRelease(ctx, layout, release)
	}
	kind, rest, ok := isObjects(source)
	if kind == resourcesKind {
		kind, ok = manifestsKind, true
	}
	if !ok {
		return nil, console.UsageErrorf("source %q has no Kubernetes objects; use manifests:PATH, kustomize:DIR, chart:REF, resources:PATH or cluster:, or k3s:VERSION, rke2:VERSION or k0s:VERSION", source)
	}
	refs, err := s.find(ctx, kind, rest)
	return &clusterFound{refs: refs}, err
}

// ruleRelease found a reference in the list of a release.
const ruleRelease = "release-list"

// findRelease returns the references in the lists of a release, for the platform of this
// computer.
func (s *imagesCall) findRelease(ctx context.Context, layout releaseLayout, release string) (*clusterFound, error) {
	platform := cmp.Or(hostPlatform(runtime.GOOS, runtime.GOARCH), "linux/amd64")
	lists, err := s.kubernetes.listDistribution(ctx, layout, release, strings.TrimPrefix(platform, "linux/"), s.out)
	found := &clusterFound{}
	for _, l := range lists {
		fmt.Fprintf(s.out, "%s:%s: images for %s of %s (%s)\n", layout.name, release, platform, l.origin, l.check)
		for _, image := range l.images {
			found.refs = append(found.refs, imagerefs.Ref{Image: image, Rule: ruleRelease, File: l.origin})
		}
	}
	return found, err
}

func (s *objectSources) reference(source string, r imagerefs.Ref) referenceView {
	name, problem := nameOf(r.Image)
	return referenceView{Image: text.CleanLine(r.Image), Name: name, Maybe: r.Maybe, Excluded: s.excluded(r.Image), Problem: text.CleanLine(problem), Rule: r.Rule,
		Source: text.CleanLine(source), File: text.CleanLine(r.File), Line: r.Line, Object: text.CleanLine(r.String()), Path: text.CleanLine(r.Path)}
}

// state of a reference in one word.
func (r *referenceView) state() string {
	switch {
	case r.Excluded:
		return "excluded"
	case r.Maybe:
		return "maybe"
	case r.Problem != "":
		return "problem"
	}
	return "included"
}

// table writes a view for people; wide has the source and the problem too.
func (v imagesView) table(w io.Writer, wide bool) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	row := func(short []string, long ...string) {
		if wide {
			short = append(short, long...)
		}
		fmt.Fprintln(tw, strings.Join(short, "\t"))
	}
	row([]string{"IMAGE", "STATE", "RULE", "FILE", "OBJECT", "FIELD"}, "SOURCE", "PROBLEM")
	for _, r := range v.References {
		file := r.File
		if r.Line > 0 {
			file = fmt.Sprintf("%s:%d", file, r.Line)
		}
		row([]string{r.Image, r.state(), r.Rule, file, r.Object, r.Path}, r.Source, orDash(r.Problem))
	}
	return tw.Flush()
}
