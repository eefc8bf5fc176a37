package imagetracks

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/Masterminds/semver/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/bundlefiles"

	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/imagetag/track"
	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// listBundles takes the bundles that were approved for a registry: a tag names
// what the newest of them says. Without a registry, applying a bundle is the
// only thing that moves tags.
func (r *Reconciler) listBundles(ctx context.Context, t track.Track, s track.State) (observation, error) {
	hs, err := r.headersOf(ctx)
	if err != nil {
		return observation{}, err
	}
	c := catalogue{bundle: map[string]Held{}, digests: map[string]string{}, images: map[string]track.Image{}}
	for _, h := range hs { // the newest first
		c.addHeader(h, t.Repository)
	}
	out := observation{bundle: c.bundle}
	out.Minors = track.MinorVersions(t, s, c.listed)
	for _, pointer := range track.Follow(t, s, c.listed) {
		d := c.digests[pointer]
		if d == "" {
			out.Gone = append(out.Gone, pointer)
			continue
		}
		i := c.images[d]
		i.Tag, i.Long = pointer, c.longTagOf(t, pointer)
		out.endpoint = "bundle " + c.bundle[d].Bundle
		out.Images = append(out.Images, i)
	}
	return out, nil
}

// catalogue of a repository in bundles.
type catalogue struct {
	// bundle and images by digest, digests by tag.
	bundle  map[string]Held
	images  map[string]track.Image
	digests map[string]string
	listed  []string
}

// addHeader takes in a bundle; what a newer one said of a tag stays.
func (c *catalogue) addHeader(h *bundle.Header, repository string) {
	for _, img := range h.Metadata.Images {
		ref, err := imagetag.ParseRef(img.Name)
		if err != nil || ref.Repository != repository || ref.Tag == "" {
			continue
		}
		if _, has := c.bundle[img.Digest]; !has {
			c.bundle[img.Digest] = Held{Bundle: h.Digest, Name: img.Name}
			c.images[img.Digest] = track.Image{Digest: img.Digest, Same: smallestBlobs(h, img)}
		}
		if c.digests[ref.Tag] == "" {
			c.digests[ref.Tag] = img.Digest
			c.listed = append(c.listed, ref.Tag)
		}
	}
}

// longTagOf is the long tag with the same digest as a pointer.
func (c *catalogue) longTagOf(t track.Track, pointer string) string {
	for _, text := range track.LongTags(t, pointer, c.listed) {
		if c.digests[text] == c.digests[pointer] {
			return text
		}
	}
	return ""
}

// smallestBlobs are the digests of an image's smallest blobs: manifests and
// configurations are among them.
func smallestBlobs(h *bundle.Header, img bundle.Image) []string {
	blobs := slices.Clone(img.Blobs)
	slices.SortStableFunc(blobs, func(a, b int) int { return cmp.Compare(h.Metadata.Blobs[a].Size, h.Metadata.Blobs[b].Size) })
	var out []string
	for _, b := range blobs {
		if d := h.Metadata.Blobs[b].Digest; d != img.Digest && len(out) < maxSame {
			out = append(out, d)
		}
	}
	return out
}

// inApprovedBundle reports whether an approved bundle has an image: a person approved its bytes,
// labels included, or a trusted key signed them. False while that is not known.
func (r *Reconciler) inApprovedBundle(ctx context.Context, digest string) bool {
	hs, err := r.headersOf(ctx)
	return err == nil && slices.ContainsFunc(hs, func(h *bundle.Header) bool {
		return slices.ContainsFunc(h.Metadata.Images, func(i bundle.Image) bool { return i.Digest == digest })
	})
}

// headersOf the bundles that are approved, the newest first.
func (r *Reconciler) headersOf(ctx context.Context) ([]*bundle.Header, error) {
	var bundles v1alpha1.BundleList
	if err := r.Client.List(ctx, &bundles); err != nil {
		return nil, err
	}
	var out []*bundle.Header
	for i := range bundles.Items {
		b := &bundles.Items[i]
		if !meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionApproved) {
			continue
		}
		h, err := r.Headers.Get(b.Status.Digest, func() []peerapi.Peer { return r.sources(ctx, b.Status.Digest) })
		if errors.Is(err, bundlefiles.ErrPending) {
			return nil, err // without it a tag would seem to be gone
		}
		if err == nil {
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(a, b *bundle.Header) int {
		return cmp.Or(versionOf(b).Compare(versionOf(a)), cmp.Compare(b.Metadata.Name, a.Metadata.Name), cmp.Compare(a.Digest, b.Digest))
	})
	return out, nil
}

func versionOf(h *bundle.Header) *semver.Version {
	v, err := semver.NewVersion(h.Metadata.Version)
	if err != nil {
		return &semver.Version{}
	}
	return v
}

// sources are the agents that have a bundle.
func (r *Reconciler) sources(ctx context.Context, digest string) []peerapi.Peer {
	var l v1alpha1.NodeUpdateList
	if r.Client.List(ctx, &l, client.InNamespace(v1alpha1.NodesNamespace)) != nil {
		return nil
	}
	return bundlefiles.AgentsIn(&l, digest)
}
