package osbuild

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/google/go-containerregistry/pkg/authn"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"

	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/osimage"
	"github.com/refit-dev/refit/internal/osimage/imagebuild"
	"github.com/refit-dev/refit/internal/registry"
)

// materials of a build.
type materials struct {
	placed     osimage.Placement
	pull, push *registry.Keys
	given      Inputs
	// over is how registries are reached.
	over http.RoundTripper
}

// materials reads what a build is made of. What is missing is a user's fault.
func (r *Builds) materials(ctx context.Context, b *v1alpha1.OSBuild, o *v1alpha1.OSImage) (materials, result, error) {
	var m materials
	var c v1alpha1.Content
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: b.Spec.Content}, &c)
	if apierrors.IsNotFound(err) || err == nil && v1alpha1.ContentName(v1alpha1.ContentOSConfig, c.Data) != c.Name {
		return m, result{user: "the configuration " + b.Spec.Content + " is gone, or is not what its name says"}, nil
	}
	if err != nil {
		return m, result{}, err
	}
	config, err := osimage.OpenConfig([]byte(c.Data))
	if err != nil {
		return m, result{user: err.Error()}, nil //nolint:nilerr // it is the build's result
	}
	placed, vs := osimage.PlaceConfig(config)
	if len(vs) > 0 {
		return m, result{user: vs[0].Message}, nil
	}
	m.placed = placed
	got, err := r.access(ctx, o, &m)
	return m, got, err
}

// access reads with whose credentials, and over which way, registries are reached.
func (r *Builds) access(ctx context.Context, o *v1alpha1.OSImage, m *materials) (result, error) {
	for _, k := range []struct {
		of   *v1alpha1.PullSecret
		into **registry.Keys
	}{{PullSecret(&o.Spec), &m.pull}, {PushSecret(&o.Spec), &m.push}} {
		keys, problem, err := Keys(ctx, r.Live, k.of)
		if err != nil || problem != "" {
			return result{user: problem}, err
		}
		*k.into = keys
	}
	var err error
	m.given, err = ReadInputs(ctx, r.Live, o)
	m.over = m.given.Transport(r.Over)
	return result{user: m.given.Problem}, err
}

// anonymousKeychain has no credentials: the controller reads no credential files.
type anonymousKeychain struct{}

func (anonymousKeychain) Resolve(authn.Resource) (authn.Authenticator, error) {
	return authn.Anonymous, nil
}

// registryReader reads registries with keys; nil reads anonymously.
func (m materials) registryReader(keys *registry.Keys) (*oci.Registries, error) {
	return RegistryReader(keys, m.over)
}

// bases reads base images from the configured mirrors, and the other inputs of a build.
func (m materials) bases() (*oci.Registries, error) {
	from, err := m.registryReader(m.pull)
	if err != nil {
		return nil, err
	}
	return from.WithMirrors(m.given.Elsewhere), nil
}

// RegistryReader reads registries with keys (nil reads anonymously) over a transport (nil is
// the default).
func RegistryReader(keys *registry.Keys, over http.RoundTripper) (*oci.Registries, error) {
	var chain authn.Keychain = anonymousKeychain{}
	if keys != nil {
		chain = keys
	}
	return oci.NewRegistriesWith(chain, over)
}

// registryWriter to registries as who pushes.
func (m materials) registryWriter() *registry.Writer {
	keys := m.push
	if keys == nil {
		keys = &registry.Keys{}
	}
	return registry.NewWriter(keys, m.over)
}

// append makes and pushes the base with the configuration.
func (r *Builds) append(ctx context.Context, b *v1alpha1.OSBuild, m materials, repository, tag string) (result, error) {
	from, err := m.bases()
	if err != nil {
		return result{}, err
	}
	root, err := from.Open(ctx, b.Spec.Base)
	if err != nil {
		return registryResult("base", err), ctx.Err()
	}
	img, err := imagebuild.Append(ctx, imagebuild.AppendRequest{Base: root, Entries: m.placed.Entries, Labels: labelsOf(b), Platforms: b.Spec.Platforms})
	if err != nil {
		return registryResult("append build", err), ctx.Err()
	}
	start := r.Now()
	copied, err := img.Push(ctx, m.registryWriter(), repository, tag)
	if err != nil {
		return registryResult(fmt.Sprintf("push to %s", repository), err), ctx.Err()
	}
	got := resultOf(img)
	got.copied, got.pushed = copied, r.Now().Sub(start)
	return got, nil
}

func labelsOf(b *v1alpha1.OSBuild) map[string]string {
	return map[string]string{"dev.refit.os-image": b.Spec.OSImage, "dev.refit.os-build": b.Name, "dev.refit.config": b.Spec.Config}
}

func resultOf(img *imagebuild.AppendedImage) result {
	got := result{digest: img.Digest(), platforms: slices.Clone(img.Platforms)}
	slices.Sort(got.platforms)
	for _, m := range img.Manifests[:len(img.Manifests)-1] { // the top is the last
		got.manifests = append(got.manifests, m.Digest)
	}
	return got
}
