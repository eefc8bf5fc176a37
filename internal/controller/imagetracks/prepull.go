package imagetracks

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/imagetracks/workloads"
	"github.com/refit-dev/refit/internal/controller/kubeletpull"
	"github.com/refit-dev/refit/internal/controller/ssa"
	"github.com/refit-dev/refit/internal/imagetag/track"
	"github.com/refit-dev/refit/internal/model"
)

// Sets makes and reads the sets of tracks.
type Sets struct {
	Client client.Client
	// Live reads past the cache.
	Live client.Reader
	// WriterRole is the role that lets refit make Jobs where the workloads are.
	WriterRole string
}

// Held is an image of a bundle that the cluster holds.
type Held struct{ Bundle, Name string }

// maxNamedNodes that a set names one by one; with more, every node holds it.
const maxNamedNodes = 200

// Name of the set that a track makes.
func Name(trackName string) string { return "track-" + trackName }

// pinnedImages are the images that the nodes pin: the approved one and the one for a roll
// back. Each has its long tag as its name, because the tag that pods name must not move
// before the roll-out.
func pinnedImages(t track.Track, s *track.State, spec *v1alpha1.ImageTrackSpec, in map[string]Held) (images []v1alpha1.PinnedImage, fromBundle string) {
	if s.Approved == nil {
		return nil, ""
	}
	if spec.Source == v1alpha1.SourceBundles {
		h, ok := in[s.Approved.Digest]
		if !ok {
			return nil, ""
		}
		return []v1alpha1.PinnedImage{{Name: h.Name, Digest: s.Approved.Digest}}, h.Bundle
	}
	keep := []*track.Image{s.Approved}
	if len(s.History) > 0 {
		keep = append(keep, &s.History[0])
	}
	for _, i := range keep {
		name := i.Long
		if name == "" {
			name = "refit-" + i.Digest[len("sha256:"):][:12]
		}
		p := v1alpha1.PinnedImage{Name: t.Repository + ":" + name, Digest: i.Digest, SizeBytes: i.Size}
		if !slices.ContainsFunc(images, func(x v1alpha1.PinnedImage) bool { return x.Name == p.Name }) {
			images = append(images, p)
		}
	}
	return images, ""
}

// Preload makes the set, and says how far the nodes are with the approved image.
func (r *Sets) Preload(ctx context.Context, o *v1alpha1.ImageTrack, t track.Track, s *track.State, ws []*workloads.Workload, in map[string]Held) (track.Preload, error) {
	p := track.Preload{Wanted: (o.Spec.Preload == nil || *o.Spec.Preload) && s.Approved != nil}
	if !p.Wanted {
		return p, r.dropSet(ctx, o)
	}
	nodes := nodesOf(ws)
	if t := o.Status.Turn; t != nil && !slices.Contains(nodes, t.Node) { // its pod is being replaced
		nodes = append(nodes, t.Node)
		slices.Sort(nodes)
	}
	p.Nodes = len(nodes)
	images, bundleDigest := pinnedImages(t, s, &o.Spec, in)
	switch {
	case len(images) == 0 && o.Spec.Source == v1alpha1.SourceBundles && in == nil:
		return r.nodesWithSet(ctx, nodes, s.Approved.Digest, p) // not looked now: the set stays
	case len(images) == 0:
		p.Why = "no bundle that the cluster holds has it"
		return p, nil
	case len(nodes) == 0:
		return p, r.dropSet(ctx, o)
	}
	return r.writeAndFetch(ctx, o, v1alpha1.PinnedImageSetSpec{NodeSelector: r.selectorOf(ctx, nodes), Bundle: bundleDigest, FromRegistry: bundleDigest == "",
		Groups: []v1alpha1.ImageGroup{{Name: "track", Images: images}}}, nodes, podsOf(ws), s.Approved.Digest, p)
}

// writeAndFetch makes the set, and has kubelets fetch what needs credentials.
func (r *Sets) writeAndFetch(ctx context.Context, o *v1alpha1.ImageTrack, want v1alpha1.PinnedImageSetSpec, nodes []string, pods []corev1.Pod, digest string, p track.Preload) (track.Preload, error) {
	place, secret := kubeletpull.CredentialsFor(o, pods)
	want.ByKubelet = want.FromRegistry && secret
	if err := r.writeSet(ctx, o, &want); err != nil {
		return p, err
	}
	p, err := r.nodesWithSet(ctx, nodes, digest, p)
	if err != nil || !want.ByKubelet || p.Done >= p.Nodes {
		return p, err
	}
	return r.fetch(ctx, o, place, want.Groups[0].Images, nodes, digest, p)
}

func podsOf(ws []*workloads.Workload) (out []corev1.Pod) {
	for _, w := range ws {
		out = append(out, w.Pods...)
	}
	return out
}

// fetch has the kubelets of nodes without the images fetch them with the credentials of a
// namespace. A frozen track fetches nothing.
func (r *Sets) fetch(ctx context.Context, o *v1alpha1.ImageTrack, place kubeletpull.Credentials, images []v1alpha1.PinnedImage, nodes []string, digest string, p track.Preload) (track.Preload, error) {
	if o.Spec.Freeze {
		return p, nil
	}
	var wanted []kubeletpull.Image
	for _, i := range images {
		wanted = append(wanted, kubeletpull.Image{Name: i.Name + "@" + i.Digest, Size: i.SizeBytes})
	}
	var lack []*v1alpha1.NodeUpdate
	lists := map[string]*model.PinSet{}
	for _, node := range nodes {
		nu := &v1alpha1.NodeUpdate{}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: node}, nu)
		if client.IgnoreNotFound(err) != nil {
			return p, fmt.Errorf("read NodeUpdate %s: %w", node, err)
		}
		list, lerr := r.pinSet(ctx, nu.Spec.Pins, lists)
		if lerr != nil {
			return p, lerr
		}
		if err == nil && nu.Status.Agent != nil && !hasPinned(nu, list, digest) {
			lack = append(lack, nu)
		}
	}
	j := kubeletpull.Jobs{Client: r.Client, Live: r.Live, WriterRole: r.WriterRole}
	why, err := j.Pull(ctx, kubeletpull.ForTrack(o), place, wanted, lack)
	if why != "" {
		p.Why = why
	}
	return p, err
}

// nodesOf the pods, sorted.
func nodesOf(ws []*workloads.Workload) []string {
	var out []string
	for _, w := range ws {
		for i := range w.Pods {
			p := &w.Pods[i]
			if n := p.Spec.NodeName; n != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
				out = append(out, n)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// selectorOf names nodes by their label; nil is all of them.
func (r *Sets) selectorOf(ctx context.Context, nodes []string) *metav1.LabelSelector {
	if len(nodes) > maxNamedNodes {
		return nil
	}
	values := make([]string, 0, len(nodes))
	for _, name := range nodes {
		var n corev1.Node
		if r.Client.Get(ctx, client.ObjectKey{Name: name}, &n) == nil && n.Labels[corev1.LabelHostname] != "" {
			name = n.Labels[corev1.LabelHostname]
		}
		values = append(values, name)
	}
	slices.Sort(values)
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelHostname, Operator: metav1.LabelSelectorOpIn, Values: values}}}
}

func (r *Sets) writeSet(ctx context.Context, o *v1alpha1.ImageTrack, want *v1alpha1.PinnedImageSetSpec) error {
	var have v1alpha1.PinnedImageSet
	err := r.Live.Get(ctx, client.ObjectKey{Name: Name(o.Name)}, &have)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read PinnedImageSet %s: %w", Name(o.Name), err)
	}
	if err == nil && have.Labels[v1alpha1.LabelTrack] != o.Name {
		return fmt.Errorf("there is a PinnedImageSet %s that this track did not make: rename it, or set spec.preload to false", have.Name)
	}
	if err == nil && equality.Semantic.DeepEqual(have.Spec, *want) {
		return nil
	}
	return ssa.Spec(ctx, r.Client, v1alpha1.FieldOwnerTracks, ssa.Object{Kind: "PinnedImageSet", Name: Name(o.Name), Parent: ParentOf(o),
		Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.FieldOwnerTracks, v1alpha1.LabelTrack: o.Name}}, want)
}

// ParentOf what a track makes: it goes with the track.
func ParentOf(o *v1alpha1.ImageTrack) *metav1.OwnerReference {
	return &metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ImageTrack", Name: o.Name, UID: o.UID}
}

// dropSet deletes the track's own set.
func (r *Sets) dropSet(ctx context.Context, o *v1alpha1.ImageTrack) error {
	var have v1alpha1.PinnedImageSet
	err := r.Live.Get(ctx, client.ObjectKey{Name: Name(o.Name)}, &have)
	if err != nil || have.Labels[v1alpha1.LabelTrack] != o.Name {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(r.Client.Delete(ctx, &have, client.Preconditions{UID: &have.UID}))
}

// nodesWithSet counts the nodes whose agents report that they pinned their whole pin set,
// with the digest in it. A report about an older set does not count.
func (r *Sets) nodesWithSet(ctx context.Context, nodes []string, digest string, p track.Preload) (track.Preload, error) {
	lists := map[string]*model.PinSet{}
	for _, node := range nodes {
		var nu v1alpha1.NodeUpdate
		// The cache will do: an older report is about an older list, and says so.
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: node}, &nu)
		if client.IgnoreNotFound(err) != nil {
			return p, fmt.Errorf("read NodeUpdate %s: %w", node, err)
		}
		if err != nil || nu.Status.Agent == nil {
			p.Why = "node " + node + " has no agent"
			continue
		}
		list, err := r.pinSet(ctx, nu.Spec.Pins, lists)
		if err != nil {
			return p, err
		}
		if hasPinned(&nu, list, digest) {
			p.Done++
		} else if p.Why == "" {
			p.Why = stalledMessage(&nu)
		}
	}
	return p, nil
}

// hasPinned reports whether a node holds all of a list that has a digest in it.
func hasPinned(nu *v1alpha1.NodeUpdate, list *model.PinSet, digest string) bool {
	h := nu.Status.Pins
	if list == nil || h == nil || h.Content != nu.Spec.Pins {
		return false
	}
	i := slices.IndexFunc(list.Images, func(i model.PinSetImage) bool { return i.Digest == digest })
	bundled, fetched := list.CountImages()
	switch {
	case i < 0:
		return false
	case list.Images[i].Registry:
		return int(h.FetchedReady) >= fetched
	}
	return int(h.ImagesReady) >= bundled && int(h.ImagesPinned) >= bundled
}

// stalledMessage is what a node's agent says stops it, "" if nothing.
func stalledMessage(nu *v1alpha1.NodeUpdate) string {
	for _, kind := range []string{v1alpha1.ConditionStalled, v1alpha1.ConditionImagesReady} {
		c := meta.FindStatusCondition(nu.Status.Conditions, kind)
		if c != nil && (c.Status == metav1.ConditionTrue) == (kind == v1alpha1.ConditionStalled) {
			return "node " + nu.Name + ": " + c.Message
		}
	}
	return ""
}

func (r *Sets) pinSet(ctx context.Context, name string, known map[string]*model.PinSet) (*model.PinSet, error) {
	if l, ok := known[name]; ok || name == "" {
		return l, nil
	}
	var c v1alpha1.Content
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, &c)
	if apierrors.IsNotFound(err) {
		known[name] = nil
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read hold list %s: %w", name, err)
	}
	l := &model.PinSet{}
	if v1alpha1.ContentName(v1alpha1.ContentPins, c.Data) != name || json.Unmarshal([]byte(c.Data), l) != nil {
		return nil, fmt.Errorf("hold list %s is not what its name says", name)
	}
	known[name] = l
	return l, nil
}
