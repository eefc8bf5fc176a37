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
	"github.com/refit-dev/refit/internal/convert"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/registry"
)

const (
	// fetchTimeout bounds one fetch, and maxSize the stored data: a Content holds no more.
	fetchTimeout = 20 * time.Second
	maxSize      = 900_000
	// retryInterval is the pause after a failed fetch.
	retryInterval = time.Minute
	// maxMessage of a condition, in bytes.
	maxMessage = 1000
)

// source is a place to fetch data from.
type source struct {
	// name identifies the source and is stored with its data.
	name string
	// every is the polling interval; 0 for data that never changes.
	every time.Duration
	get   func(context.Context) ([]byte, error)
}

// sourceOf returns the source of a stream whose data is not in the cluster.
func (l *Loader) sourceOf(o *v1alpha1.BootImageStream) (source, error) {
	switch {
	case o.Spec.URL != nil:
		u := o.Spec.URL
		return source{u.URL, time.Duration(u.EveryMinutes) * time.Minute, func(ctx context.Context) ([]byte, error) { return l.fetchURL(ctx, u) }}, nil
	case o.Spec.Bundle != nil:
		d := o.Spec.Bundle.Digest
		return source{d, 0, func(ctx context.Context) ([]byte, error) { return l.readBundle(ctx, d) }}, nil
	case o.Spec.Artifact != nil:
		return l.artifactSource(o.Spec.Artifact)
	}
	return source{}, errors.New("it names no source")
}

// cachedOrFetched returns the source's data: fetched if due, else as it was fetched last.
func (l *Loader) cachedOrFetched(ctx context.Context, o *v1alpha1.BootImageStream, st *v1alpha1.BootImageStreamStatus, from source) (*bootstream.Stream, error) {
	if o.Status.Source != from.name && (o.Status.Source != "" || o.Status.ObservedGeneration != o.Generation) {
		st.Content, st.FetchedAt, st.FetchFailures = "", nil, nil // the stored data is from another source
	}
	st.Source = from.name
	fetchErr := errors.New("the last fetch failed; refit tries again")
	if l.isDue(st, from.every) {
		s, err := l.fetchAndKeep(ctx, from, st)
		if err == nil {
			st.FetchFailures = nil
			return s, nil
		}
		if fetchErr = err; !errors.Is(err, bundlefiles.ErrNotYet) {
			st.FetchFailures = convert.AddFailure(st.FetchFailures, err.Error(), l.Now())
		}
	}
	if st.Content == "" {
		return nil, fmt.Errorf("%s: %w", from.name, fetchErr)
	}
	var c v1alpha1.Content
	if err := l.Live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: st.Content}, &c); err != nil {
		if apierrors.IsNotFound(err) {
			st.Content, st.FetchedAt = "", nil
		}
		return nil, fmt.Errorf("read the stored data: %w", err)
	}
	return bootstream.Parse([]byte(c.Data))
}

// isDue reports whether the source must be fetched now. A failed fetch waits too.
func (l *Loader) isDue(st *v1alpha1.BootImageStreamStatus, every time.Duration) bool {
	rest := every
	switch {
	case st.Content == "":
		rest = retryInterval
	case every == 0:
		return false
	}
	return st.FetchedAt == nil || l.Now().Sub(st.FetchedAt.Time) >= rest
}

// fetchAndKeep fetches the data and stores it if it is valid.
func (l *Loader) fetchAndKeep(ctx context.Context, from source, st *v1alpha1.BootImageStreamStatus) (*bootstream.Stream, error) {
	data, err := from.get(ctx)
	if errors.Is(err, bundlefiles.ErrNotYet) {
		return nil, err // no node was asked, so this is no fetch
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
	if len(data) > maxSize {
		return nil, fmt.Errorf("it has more than %d bytes", maxSize)
	}
	c, err := ssa.MakeContent(ctx, l.Client, v1alpha1.ContentStream, string(data))
	if err != nil {
		return nil, err
	}
	st.Content = c.Name
	return s, nil
}

// readBundle returns the stream in a bundle, with the bundle's release and Kubernetes version
// and the boot images that it contains as files.
func (l *Loader) readBundle(ctx context.Context, digest string) ([]byte, error) {
	if l.BundleFile == nil {
		return nil, errors.New("bundles cannot be read here")
	}
	f, err := l.BundleFile(ctx, digest, bundle.PayloadBootImages, bootstream.Largest)
	if errors.Is(err, bundlefiles.ErrNotYet) {
		return nil, fmt.Errorf("no node serves the bundle yet (%w): approve it (a Bundle with this digest) and plug its medium into a node, or load it", err)
	}
	if err != nil {
		return nil, err
	}
	if f == nil {
		return nil, errors.New("the bundle has no boot image stream: create it with refit bundle create boot-images:FILE")
	}
	s, err := bootstream.Parse(f.Data)
	if err != nil {
		return nil, fmt.Errorf("bundle %s %s: %w", f.Bundle.Name, f.Bundle.Version, err)
	}
	s.Bundle = bootstream.BundleVersions{Kubernetes: f.Bundle.KubernetesVersion}
	if f.Bundle.Version != unversioned {
		s.Bundle.Release = f.Bundle.Version
	}
	for _, p := range f.Bundle.Payloads {
		if strings.HasPrefix(p.Name, bundle.PrefixBootImage) {
			s.SetFilePayload(strings.TrimPrefix(p.Digest, "sha256:"), p.Name)
		}
	}
	return bootstream.EncodeGeneric(s)
}

// unversioned is the version of a bundle that was created without one.
const unversioned = "0.0.0"

// artifactSource returns the source for an artifact in a registry.
func (l *Loader) artifactSource(a *v1alpha1.StreamArtifact) (source, error) {
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
		keys, err := l.pullKeys(ctx, a.PullSecret)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
		defer cancel()
		data, _, err := l.Registry.Artifact(ctx, registry.Place{Repository: oci.Repository(image), Keys: keys}, what, maxSize)
		return data, err
	}}, nil
}

// pullKeys reads a pull secret; nil if none is named.
func (l *Loader) pullKeys(ctx context.Context, ref *v1alpha1.PullSecret) (*registry.Keys, error) {
	if ref == nil {
		return nil, nil
	}
	var s corev1.Secret
	if err := l.Live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.BuildsNamespace, Name: ref.Name}, &s); err != nil {
		return nil, fmt.Errorf("pull secret %s/%s: %w", v1alpha1.BuildsNamespace, ref.Name, err)
	}
	return registry.ParseKeys(s.Data[corev1.DockerConfigJsonKey])
}
