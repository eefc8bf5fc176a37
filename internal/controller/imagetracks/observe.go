package imagetracks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"

	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/imagetag/track"
	"github.com/refit-dev/refit/internal/registry"
)

// observation is what one look found.
type observation struct {
	track.Observation
	// endpoint that answered.
	endpoint string
	// earlier are images that run and are behind no followed tag any more.
	earlier []track.Image
	// upstream is what the repository answers for tags that its mirror answers
	// differently, gone the digests that none of the registries has.
	upstream map[string]string
	gone     []string
	// unfollowed says why no tag is followed; unfit: the scheme reads none of the tags.
	unfollowed string
	unfit      bool
	// bundle that has the images, by their digest; for source Bundles.
	bundle map[string]Held
}

// shareFor is how long an answer serves other tracks of the same repository.
func shareFor(spec *v1alpha1.ImageTrackSpec) time.Duration {
	return min(time.Duration(spec.IntervalSeconds)*time.Second/2, time.Minute)
}

// pollRegistry asks the mirrors in their order, then the repository; the first
// that answers counts, and is named.
func (r *Reconciler) pollRegistry(ctx context.Context, spec *v1alpha1.ImageTrackSpec, t track.Track, s track.State, running, used []string) (observation, error) {
	keys, err := r.keys(ctx, spec.PullSecret)
	if err != nil {
		return observation{}, err
	}
	var all []error
	for _, repository := range append(slices.Clone(t.Mirrors), t.Repository) {
		a := asker{Poller: r.Poller, at: registry.Place{Repository: repository, Keys: keys}, spec: spec, t: t, s: s, vouched: func(digest string) bool { return r.inApprovedBundle(ctx, digest) }}
		out, err := a.pollTags(ctx, running)
		if err == nil && (len(out.Images) > 0 || repository == t.Repository) {
			out.endpoint = repository
			out.upstream = a.digestsBehindMirror(ctx, repository, out.Images)
			out.gone = a.missingDigests(ctx, slices.DeleteFunc(used, func(d string) bool { // what a tag names is there
				return slices.ContainsFunc(out.Images, func(i track.Image) bool { return i.Digest == d })
			}))
			return out, nil
		}
		all = append(all, err)
	}
	return observation{}, worstFailure(all)
}

// worstFailure is the failure to report of several. The repository's own is the last one.
func worstFailure(all []error) error {
	for _, err := range slices.Backward(all) {
		if err != nil {
			return err
		}
	}
	return errors.New("no registry was asked")
}

// errSecret says what is wrong with a pull secret, and nothing that is in it.
var errSecret = errors.New("spec.pullSecret")

func (r *Reconciler) keys(ctx context.Context, ref *v1alpha1.PullSecret) (*registry.Keys, error) {
	if ref == nil {
		return nil, nil
	}
	var s corev1.Secret
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.BuildsNamespace, Name: ref.Name}, &s)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: there is no Secret %s in namespace %s", errSecret, ref.Name, v1alpha1.BuildsNamespace)
	}
	if err != nil {
		return nil, fmt.Errorf("read the pull secret %s: %w", ref.Name, err)
	}
	k, err := registry.ParseKeys(s.Data[corev1.DockerConfigJsonKey])
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", errSecret, ref.Name, err)
	}
	return k, nil
}

// asker asks one repository.
type asker struct {
	*registry.Poller
	at   registry.Place
	spec *v1alpha1.ImageTrackSpec
	t    track.Track
	s    track.State
	// vouched reports whether an approved bundle has an image.
	vouched func(digest string) bool
}

func (a *asker) pollTags(ctx context.Context, running []string) (observation, error) {
	var out observation
	followed, err := a.followedTags(ctx, &out)
	if err != nil {
		return out, err
	}
	for _, pointer := range followed {
		d, err := a.Digest(ctx, a.at, pointer, shareFor(a.spec))
		if f := (*registry.Failure)(nil); errors.As(err, &f) && f.Kind == registry.TagDeleted {
			out.Gone = append(out.Gone, pointer)
			continue
		}
		if err != nil {
			return out, err
		}
		i, isNew, err := a.image(ctx, pointer, d)
		if err != nil {
			return out, err
		}
		out.Images = append(out.Images, i)
		if isNew && a.s.Approved == nil {
			if err := a.addPriorImages(ctx, pointer, running, &out); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// followedTags are the tags to ask for. If there are none, out says why.
func (a *asker) followedTags(ctx context.Context, out *observation) (followed []string, err error) {
	var listed []string
	if a.t.Tag == "" || track.LeavesMinor(a.t, a.s) {
		if listed, err = a.Tags(ctx, a.at, time.Duration(a.spec.DiscoverSeconds)*time.Second); err != nil {
			return nil, err
		}
	}
	out.Minors = track.MinorVersions(a.t, a.s, listed)
	if followed = track.Follow(a.t, a.s, listed); len(followed) == 0 {
		out.unfollowed, out.unfit = track.Unfollowed(a.t, listed)
	}
	return followed, nil
}

// image behind a pointer, as it is remembered or as the registry describes it.
func (a *asker) image(ctx context.Context, pointer, digest string) (i track.Image, isNew bool, err error) {
	if p := a.rememberedImage(pointer, digest); p != nil {
		i = *p
		i.Vouched = i.Security && a.vouched(digest) // the bundle may come later than the image
		return i, false, nil
	}
	i, err = a.describe(ctx, pointer, digest)
	return i, true, err
}

// rememberedImage is what is remembered of a pointer that did not move: no more is asked.
func (a *asker) rememberedImage(pointer, digest string) *track.Image {
	for i := range a.s.Pointers {
		if p := &a.s.Pointers[i]; p.Tag == pointer && p.Digest == digest {
			return &p.Image
		}
	}
	return nil
}

// describe reads an image that was not known.
func (a *asker) describe(ctx context.Context, pointer, digest string) (track.Image, error) {
	i := track.Image{Digest: digest, Tag: pointer}
	d, err := a.Describe(ctx, a.at, digest)
	if err != nil {
		return i, err
	}
	i.App, i.Same, i.Security, i.Size = d.AppVersion, d.Same, d.Labels[track.SecurityLabel] == "security", d.Size
	i.Severity = track.SeverityOf(d.Labels)
	i.Same = i.Same[:min(len(i.Same), maxSame)]
	i.Vouched = i.Security && a.vouched(digest)
	if err := a.addRecords(ctx, &i); err != nil {
		return i, err
	}
	if own := d.Labels["org.opensuse.reference"]; own != "" { // an image may name its own long tag
		if ref, err := imagetag.ParseRef(own); err == nil && a.names(ctx, ref.Tag, digest) {
			i.Long = ref.Tag
			return i, nil
		}
	}
	i.Long, err = a.longTagOf(ctx, pointer, digest)
	return i, err
}

// addRecords reads the release records of an image. A registry that cannot say what refers to an
// image has none; one that does not answer is asked again.
func (a *asker) addRecords(ctx context.Context, i *track.Image) error {
	files, err := a.Attached(ctx, a.at, i.Digest, imagetag.RecordType, imagetag.MaxRecord)
	var f *registry.Failure
	if errors.As(err, &f) && f.Kind != registry.Unreachable && f.Kind != registry.RateLimited {
		return nil
	}
	for _, data := range files {
		if r, err := imagetag.ParseRecord(data, i.Digest); err == nil { // everyone who can push can attach another one
			i.AddRecord(r)
		}
	}
	return err
}

// maxSame digests of one image are remembered.
const maxSame = 16

// names reports whether a point has a digest behind it.
func (a *asker) names(ctx context.Context, point, digest string) bool {
	p, err := a.t.Scheme.Parse(point)
	if err != nil || !p.Point() {
		return false
	}
	d, err := a.Digest(ctx, a.at, point, shareFor(a.spec))
	return err == nil && d == digest
}

// longTagOf is the long tag of what is behind a pointer, "" if none has it.
func (a *asker) longTagOf(ctx context.Context, pointer, digest string) (string, error) {
	candidates, err := a.longTags(ctx, pointer)
	if err != nil {
		return "", err
	}
	for _, text := range candidates {
		d, err := a.Digest(ctx, a.at, text, shareFor(a.spec))
		if f := (*registry.Failure)(nil); errors.As(err, &f) && f.Kind == registry.TagDeleted {
			continue
		}
		if err != nil {
			return "", err
		}
		if d == digest {
			return text, nil
		}
	}
	return "", nil
}

func (a *asker) longTags(ctx context.Context, pointer string) ([]string, error) {
	if p, err := a.t.Scheme.Parse(pointer); err == nil && p.Point() {
		return []string{pointer}, nil
	}
	listed, err := a.Tags(ctx, a.at, shareFor(a.spec))
	if err != nil {
		return nil, err
	}
	return track.LongTags(a.t, pointer, listed), nil
}

// addPriorImages names, at the first look, what runs and is behind the tag no more.
func (a *asker) addPriorImages(ctx context.Context, pointer string, running []string, out *observation) error {
	for _, digest := range running {
		if slices.ContainsFunc(out.Images, func(i track.Image) bool { return i.Is(digest) }) || a.s.Known(digest) != nil {
			continue
		}
		long, err := a.longTagOf(ctx, pointer, digest)
		if err != nil {
			return err
		}
		if long != "" {
			out.earlier = append(out.earlier, track.Image{Digest: digest, Tag: pointer, Long: long})
		}
	}
	return nil
}
