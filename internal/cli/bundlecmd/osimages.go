package bundlecmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/model"
)

// osImagePrefix begins a source that stands for the images of an OSImage for its pools, or
// the image of an OSBuild.
const osImagePrefix = "os-image:"

// osImageSource of an OS image: the name of one in the cluster, or an output of refit image
// build.
func osImageSource(name string) string {
	for _, elsewhere := range []string{"oci:", "oci-archive:", "docker://"} {
		if strings.HasPrefix(name, elsewhere) {
			return name
		}
	}
	return osImagePrefix + name
}

// expandOSImages replaces those sources by the images, each by digest and under the name by
// which nodes fetch it.
func expandOSImages(ctx context.Context, a *inputs.Access, sources []string) ([]string, error) {
	if !slices.ContainsFunc(sources, func(s string) bool { return strings.HasPrefix(s, osImagePrefix) }) {
		return sources, nil
	}
	c, err := a.Client()
	if err != nil {
		return nil, err
	}
	var images v1alpha1.OSImageList
	var builds v1alpha1.OSBuildList
	if err := errors.Join(c.List(ctx, &images), c.List(ctx, &builds)); err != nil {
		return nil, inputs.ListError(err)
	}
	var out []string
	for _, s := range sources {
		name, ok := strings.CutPrefix(s, osImagePrefix)
		if !ok {
			out = append(out, s)
			continue
		}
		more, err := imageSources(name, images.Items, builds.Items)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

// imageSources returns the images of an OSImage, or an OSBuild, of this name.
func imageSources(name string, images []v1alpha1.OSImage, builds []v1alpha1.OSBuild) ([]string, error) {
	if i := slices.IndexFunc(builds, func(b v1alpha1.OSBuild) bool { return b.Name == name }); i >= 0 {
		return buildSource(&builds[i])
	}
	i := slices.IndexFunc(images, func(o v1alpha1.OSImage) bool { return o.Name == name })
	if i < 0 {
		return nil, console.WithExit(console.ExitBlocked, fmt.Errorf("the cluster has neither an OSImage nor an OSBuild %s (kubectl get osimages,osbuilds)", name))
	}
	var out []string
	for _, p := range images[i].Status.Pools {
		repository, digest, ok := strings.Cut(p.Image, "@")
		if !ok {
			return nil, console.WithExit(console.ExitBlocked, fmt.Errorf("OSImage %s has no image for pool %s yet: %s", name, p.Name, p.Message))
		}
		if strings.HasPrefix(repository, model.NoRegistry+"/") {
			return nil, notInRegistry("OSImage " + name)
		}
		tag := p.Build
		if tag == "" { // a finished image
			tag = "refit-" + strings.TrimPrefix(digest, "sha256:")[:12]
		}
		if s := joinSource(repository, tag, digest); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil, console.WithExit(console.ExitBlocked, fmt.Errorf("no pool names OSImage %s, so it has no image: set spec.osImage of an UpdatePool", name))
	}
	return out, nil
}

// buildSource returns the image of a build.
func buildSource(b *v1alpha1.OSBuild) ([]string, error) {
	switch {
	case b.Status.Phase != v1alpha1.BuildSucceeded:
		return nil, console.WithExit(console.ExitBlocked, fmt.Errorf("OSBuild %s has no image: its phase is %q (kubectl describe osbuild %s)", b.Name, b.Status.Phase, b.Name))
	case b.Spec.Output == v1alpha1.OutputNodes:
		return nil, notInRegistry("OSBuild " + b.Name)
	}
	return []string{joinSource(b.Spec.Repository, b.Name, b.Status.Digest)}, nil
}

// notInRegistry returns the error for an image that only the nodes assemble.
func notInRegistry(what string) error {
	return console.WithExit(console.ExitBlocked, fmt.Errorf("the image of %s is in no registry, because nodes assemble it (spec.output: Nodes): for other sites build it with `refit image build --output oci:DIR:TAG`, and include it with --os-image oci:DIR:TAG", what))
}

func joinSource(repository, tag, digest string) string {
	return repository + ":" + tag + "=docker://" + repository + "@" + digest
}
