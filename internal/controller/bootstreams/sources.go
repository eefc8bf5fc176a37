package bootstreams

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/bootstream"
	"github.com/refit-dev/refit/internal/controller/bundlefiles"
	"github.com/refit-dev/refit/internal/controller/ssa"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/registry"
)

const (
	// fetchTimeout of one fetch, and largest that is kept: a Content holds no more.
	fetchTimeout = 20 * time.Second
	largest      = 900_000
	// again is how long a fetch that failed rests.
	again = time.Minute
	// longMessage of a condition, in bytes.
	longMessage = 1000
)

// source is asked for data, and its answer is kept.
type source struct {
	// name of what is asked, remembered with the answer.
	name string
	// every is how often it is asked again; 0 for what never changes.
	every time.Duration
	get   func(context.Context) ([]byte, error)
}

// source of a stream that is not in the cluster.
func (l *Loader) source(o *v1alpha1.BootImageStream) (source, error) {
	switch {
	case o.Spec.URL != nil:
		u := o.Spec.URL
		return source{u.URL, time.Duration(u.EveryMinutes) * time.Minute, func(ctx context.Context) ([]byte, error) { return l.fetch(ctx, u) }}, nil
	case o.Spec.Bundle != nil:
		d := o.Spec.Bundle.Digest
		return source{d, 0, func(ctx context.Context) ([]byte, error) { return l.ofBundle(ctx, d) }}, nil
	case o.Spec.Artifact != nil:
		return l.artifact(o.Spec.Artifact)
	}
	return source{}, errors.New("it names no source")
}

// fetched returns what the source has, or had when it was asked last.
func (l *Loader) fetched(ctx context.Context, o *v1alpha1.BootImageStream, st *v1alpha1.BootImageStreamStatus, from source) (*bootstream.Stream, error) {
	if o.Status.Source != from.name && (o.Status.Source != "" || o.Status.ObservedGeneration != o.Generation) {
		st.Content, st.FetchedAt = "", nil // what was fetched is of another source
	}
	st.Source = from.name
	fetchErr := errors.New("it could not be had; it is tried again")
	if l.due(st, from.every) {
		s, err := l.fetchAndKeep(ctx, from, st)
		if err == nil {
			return s, nil
		}
		fetchErr = err
	}
	if st.Content == "" {
		return nil, fmt.Errorf("%s: %w", from.name, fetchErr)
	}
	var c v1alpha1.Content
	if err := l.Live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: st.Content}, &c); err != nil {
		if apierrors.IsNotFound(err) {
			st.Content, st.FetchedAt = "", nil
		}
		return nil, fmt.Errorf("what was fetched: %w", err)
	}
	return bootstream.Parse([]byte(c.Data))
}

// due: it is time to ask again. A fetch that failed rests for a while too.
func (l *Loader) due(st *v1alpha1.BootImageStreamStatus, every time.Duration) bool {
	rest := every
	switch {
	case st.Content == "":
		rest = again
	case every == 0:
		return false
	}
	return st.FetchedAt == nil || l.Now().Sub(st.FetchedAt.Time) >= rest
}

// fetchAndKeep stores what can be read.
func (l *Loader) fetchAndKeep(ctx context.Context, from source, st *v1alpha1.BootImageStreamStatus) (*bootstream.Stream, error) {
	data, err := from.get(ctx)
	if errors.Is(err, bundlefiles.ErrNotYet) {
		return nil, err // nobody was asked
	}
	at := metav1.NewTime(l.Now().Truncate(time.Second))
	st.FetchedAt = &at
	if err != nil {
		return nil, err
	}
	s, err := bootstream.Parse(data)
	if err != nil {
		return nil, err
	}
	if len(data) > largest {
		return nil, fmt.Errorf("it has more than %d bytes", largest)
	}
	c, err := ssa.MakeContent(ctx, l.Client, v1alpha1.ContentStream, string(data))
	if err != nil {
		return nil, err
	}
	st.Content = c.Name
	return s, nil
}

// ofBundle is the stream of a bundle with what the bundle says besides: release,
// version, and the boot images that it brings as files.
func (l *Loader) ofBundle(ctx context.Context, digest string) ([]byte, error) {
	if l.Brought == nil {
		return nil, errors.New("bundles cannot be read here")
	}
	f, err := l.Brought(ctx, digest, bundle.PayloadBootImages, bootstream.Largest)
	if errors.Is(err, bundlefiles.ErrNotYet) {
		return nil, fmt.Errorf("no node has handed out the bundle yet (%w): it must be approved (a Bundle with this digest) and on a medium at a node, or loaded", err)
	}
	if err != nil {
		return nil, err
	}
	if f == nil {
		return nil, errors.New("the bundle brings no stream of boot images: make it with refit bundle create boot-images:FILE")
	}
	s, err := bootstream.Parse(f.Data)
	if err != nil {
		return nil, fmt.Errorf("bundle %s %s: %w", f.Bundle.Name, f.Bundle.Version, err)
	}
	s.Brought = bootstream.Brought{Kubernetes: f.Bundle.KubernetesVersion}
	if f.Bundle.Version != unversioned {
		s.Brought.Release = f.Bundle.Version
	}
	for _, p := range f.Bundle.Payloads {
		if strings.HasPrefix(p.Name, bundle.PrefixBootImage) {
			s.BroughtFile(strings.TrimPrefix(p.Digest, "sha256:"), p.Name)
		}
	}
	return bootstream.Generic(s)
}

// unversioned is the version of a bundle that nobody gave one.
const unversioned = "0.0.0"

// artifact of a registry.
func (l *Loader) artifact(a *v1alpha1.StreamArtifact) (source, error) {
	image, digest, err := oci.ParseName(a.Reference)
	if err != nil {
		return source{}, err
	}
	every, what := time.Duration(a.EveryMinutes)*time.Minute, oci.Tag(image)
	if digest != "" {
		every, what = 0, digest
	}
	return source{a.Reference, every, func(ctx context.Context) ([]byte, error) {
		if l.Registry == nil {
			return nil, errors.New("registries cannot be read here")
		}
		keys, err := l.keys(ctx, a.PullSecret)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
		defer cancel()
		data, _, err := l.Registry.Artifact(ctx, registry.Place{Repository: oci.Repository(image), Keys: keys}, what, largest)
		return data, err
	}}, nil
}

// keys of a pull secret; nil if none is named.
func (l *Loader) keys(ctx context.Context, ref *v1alpha1.PullSecret) (*registry.Keys, error) {
	if ref == nil {
		return nil, nil
	}
	var s corev1.Secret
	if err := l.Live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.BuildsNamespace, Name: ref.Name}, &s); err != nil {
		return nil, fmt.Errorf("pull secret %s/%s: %w", v1alpha1.BuildsNamespace, ref.Name, err)
	}
	return registry.ParseKeys(s.Data[corev1.DockerConfigJsonKey])
}
