package osimages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/kubeletpull"
	"github.com/refit-dev/refit/internal/controller/osimages/osbuild"
	"github.com/refit-dev/refit/internal/controller/ssa"
	"github.com/refit-dev/refit/internal/model"
)

// prepuller makes the sets of pools.
type prepuller struct {
	Client client.Client
	// Live reads past the cache.
	Live client.Reader
}

// WantedImage is the image that the nodes of a pool are to hold.
type WantedImage struct {
	OSImage *v1alpha1.OSImage
	Pool    *v1alpha1.UpdatePool
	// Image is repository@sha256:...; Tag is what it is called in the runtime.
	Image, Tag string
	// Size that is fetched, in bytes; 0 if it is not known.
	Size int64
	// Secret in refit-builds that the registry asks for, empty if it asks for none.
	Secret string
	// These are set for an image that no registry has. Parts names the Content with the layers
	// above the base, and Base is the digest of the base. Bundle has the base; it is empty while
	// no such bundle is known.
	Parts, Base, Bundle string
}

func (w WantedImage) digest() string {
	_, d, _ := strings.Cut(w.Image, "@")
	return d
}

func (w WantedImage) repository() string {
	r, _, _ := strings.Cut(w.Image, "@")
	return r
}

// PrepullProgress is how far a pool is.
type PrepullProgress struct {
	// Nodes of the pool with an agent, and how many of them hold the image.
	Nodes, Held int
	// Bundled: a bundle brings it, so no registry has to.
	Bundled bool
	// Missing are the first of those that do not hold it; Why is what the first of
	// them complains of.
	Missing []string
	Why     string
	// Failing: a node's runtime says that it cannot fetch the image.
	Failing bool

	reports []*v1alpha1.NodeUpdate
}

// SetName of a pool's set.
func SetName(pool string) string { return "os-image-" + pool }

// PrepullFacts are the inputs that all pools share.
type PrepullFacts struct {
	nodes   []corev1.Node
	reports map[string]*v1alpha1.NodeUpdate
	lists   map[string]*model.PinSet
}

// Gather the nodes and what their agents say.
func (k *prepuller) Gather(ctx context.Context) (*PrepullFacts, error) {
	var nodes corev1.NodeList
	var updates v1alpha1.NodeUpdateList
	if err := k.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	if err := k.Client.List(ctx, &updates, client.InNamespace(v1alpha1.NodesNamespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	s := &PrepullFacts{nodes: nodes.Items, reports: map[string]*v1alpha1.NodeUpdate{}, lists: map[string]*model.PinSet{}}
	for i := range updates.Items {
		s.reports[updates.Items[i].Name] = &updates.Items[i]
	}
	return s, nil
}

// Reports of the nodes of a pool that have an agent. They are the cache's: not to be
// changed.
func (s *PrepullFacts) Reports(p *v1alpha1.UpdatePool) (out []*v1alpha1.NodeUpdate) {
	selector, err := metav1.LabelSelectorAsSelector(&p.Spec.NodeSelector)
	if err != nil {
		return nil // the pool's own condition says so
	}
	for i := range s.nodes {
		n := &s.nodes[i]
		if nu := s.reports[n.Name]; nu != nil && nu.Status.Agent != nil && selector.Matches(labels.Set(n.Labels)) {
			out = append(out, nu)
		}
	}
	return out
}

// Count counts the nodes of a pool that hold its image.
func (k *prepuller) Count(ctx context.Context, s *PrepullFacts, want WantedImage) (h PrepullProgress, err error) {
	selector, err := metav1.LabelSelectorAsSelector(&want.Pool.Spec.NodeSelector)
	if err != nil {
		return h, nil //nolint:nilerr // the pool's own condition says so
	}
	for i := range s.nodes {
		n := &s.nodes[i]
		nu := s.reports[n.Name]
		if !selector.Matches(labels.Set(n.Labels)) || nu == nil || nu.Status.Agent == nil {
			continue // without an agent it is not moved, and the gate says so
		}
		if err := k.count(ctx, want, nu, s.lists, &h); err != nil {
			return h, err
		}
	}
	return h, nil
}

func (k *prepuller) count(ctx context.Context, want WantedImage, nu *v1alpha1.NodeUpdate, lists map[string]*model.PinSet, h *PrepullProgress) error {
	h.Nodes++
	list, err := k.list(ctx, nu.Spec.Pins, lists)
	if err != nil {
		return err
	}
	d := want.digest()
	h.Bundled = h.Bundled || list != nil && slices.ContainsFunc(list.Images, func(i model.PinSetImage) bool { return i.Digest == d && !i.Registry && i.Overlay == "" })
	if hasBootedOrStaged(nu, d) || hasPinned(nu, list, d) {
		h.Held++
		return nil
	}
	if len(h.Missing) < v1alpha1.MaxMissingNodes {
		h.Missing = append(h.Missing, nu.Name)
		h.reports = append(h.reports, nu)
	}
	if why := stalledMessage(nu); h.Why == "" {
		h.Why = why
	}
	h.Failing = h.Failing || reportsFailure(nu)
	return nil
}

// hasBootedOrStaged or staged: the host's own store has it.
func hasBootedOrStaged(nu *v1alpha1.NodeUpdate, digest string) bool {
	o := nu.Status.Observed
	return o != nil && (o.Fields[model.FieldOSImage] == digest || o.Fields["os/staged"] == digest)
}

// hasPinned reports whether a node holds all of a list that has a digest in it.
func hasPinned(nu *v1alpha1.NodeUpdate, list *model.PinSet, digest string) bool {
	h := nu.Status.Pins
	if list == nil || h == nil || h.Content != nu.Spec.Pins {
		return false
	}
	bundled, fetched := list.CountImages()
	for _, i := range list.Images {
		switch {
		case i.Digest != digest:
		case i.Registry && int(h.FetchedReady) >= fetched, !i.Registry && int(h.ImagesReady) >= bundled && int(h.ImagesPinned) >= bundled:
			return true
		}
	}
	return false
}

// reportsFailure: the agent says so of an image; while one is on its way it says nothing.
func reportsFailure(nu *v1alpha1.NodeUpdate) bool {
	c := meta.FindStatusCondition(nu.Status.Conditions, v1alpha1.ConditionReconciling)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == v1alpha1.ReasonImagesMissing
}

// stalledMessage is what a node's agent says stops it, "" if nothing.
func stalledMessage(nu *v1alpha1.NodeUpdate) string {
	for _, kind := range []string{v1alpha1.ConditionStalled, v1alpha1.ConditionReconciling, v1alpha1.ConditionImagesReady} {
		c := meta.FindStatusCondition(nu.Status.Conditions, kind)
		if c != nil && (c.Status == metav1.ConditionTrue) == (kind != v1alpha1.ConditionImagesReady) {
			return "node " + nu.Name + ": " + c.Message
		}
	}
	return ""
}

func (k *prepuller) list(ctx context.Context, name string, known map[string]*model.PinSet) (*model.PinSet, error) {
	if l, ok := known[name]; ok || name == "" {
		return l, nil
	}
	known[name] = nil
	var c v1alpha1.Content
	err := k.Client.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, &c)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	l := &model.PinSet{}
	if v1alpha1.ContentName(v1alpha1.ContentPins, c.Data) != name || json.Unmarshal([]byte(c.Data), l) != nil {
		return nil, fmt.Errorf("hold list %s is not what its name says", name)
	}
	known[name] = l
	return l, nil
}

// Pull has the nodes of a pool hold its image: a bundle that has it is enough, else a
// set has them fetch it, and kubelets do where credentials are needed. why says what
// stops that, "" if nothing.
func (k *prepuller) Pull(ctx context.Context, want WantedImage, h PrepullProgress) (why string, err error) {
	if h.Bundled {
		return "", k.drop(ctx, SetName(want.Pool.Name))
	}
	if want.Parts != "" {
		return k.writeAssembled(ctx, want)
	}
	spec := &v1alpha1.PinnedImageSetSpec{NodeSelector: want.Pool.Spec.NodeSelector.DeepCopy(), FromRegistry: true, ByKubelet: want.Secret != "",
		Groups: []v1alpha1.ImageGroup{{Name: "os", Images: []v1alpha1.PinnedImage{{Name: want.repository() + ":" + want.Tag, Digest: want.digest(), SizeBytes: want.Size}}}}}
	if err := k.write(ctx, want, spec); err != nil {
		return "", err
	}
	if want.Secret == "" || len(h.reports) == 0 {
		return "", nil
	}
	j := kubeletpull.Jobs{Client: k.Client, Live: k.Live}
	by := kubeletpull.Requester{Kind: "OSImage", Name: want.OSImage.Name, UID: want.OSImage.UID, Manager: v1alpha1.FieldOwnerController,
		Labels: map[string]string{v1alpha1.LabelOSImage: osbuild.Label(want.OSImage.Name)}}
	place := kubeletpull.Credentials{Namespace: v1alpha1.BuildsNamespace, Secrets: []corev1.LocalObjectReference{{Name: want.Secret}}}
	return j.Pull(ctx, by, place, []kubeletpull.Image{{Name: spec.Groups[0].Images[0].Name + "@" + want.digest(), Size: want.Size}}, h.reports)
}

// writeAssembled has nodes assemble an image that no registry has. While no known bundle has
// its base, their desired state stays.
func (k *prepuller) writeAssembled(ctx context.Context, want WantedImage) (why string, err error) {
	if want.Bundle == "" {
		return fmt.Sprintf("no bundle that nodes have brings its base %s any more: nodes without the image cannot assemble it; insert a medium with a bundle that has it, and approve it", want.Base), nil
	}
	return "", k.write(ctx, want, &v1alpha1.PinnedImageSetSpec{NodeSelector: want.Pool.Spec.NodeSelector.DeepCopy(), Bundle: want.Bundle,
		Groups: []v1alpha1.ImageGroup{{Name: "os", Images: []v1alpha1.PinnedImage{{Name: want.repository() + ":" + want.Tag, Digest: want.digest(), Base: want.Base, Parts: want.Parts}}}}})
}

// BundleOf is the bundle that the set of a pool takes images from, "" if it takes none.
func (k *prepuller) BundleOf(ctx context.Context, pool string) (string, error) {
	var have v1alpha1.PinnedImageSet
	err := k.Client.Get(ctx, client.ObjectKey{Name: SetName(pool)}, &have)
	return have.Spec.Bundle, client.IgnoreNotFound(err)
}

func (k *prepuller) write(ctx context.Context, want WantedImage, spec *v1alpha1.PinnedImageSetSpec) error {
	name := SetName(want.Pool.Name)
	var have v1alpha1.PinnedImageSet
	err := k.Live.Get(ctx, client.ObjectKey{Name: name}, &have)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read PinnedImageSet %s: %w", name, err)
	}
	if err == nil && have.Labels[v1alpha1.LabelOSImage] == "" {
		return fmt.Errorf("there is a PinnedImageSet %s that refit did not make for an OSImage: rename it", name)
	}
	if err == nil && have.Labels[v1alpha1.LabelOSImage] == osbuild.Label(want.OSImage.Name) && equality.Semantic.DeepEqual(have.Spec, *spec) {
		return nil
	}
	return ssa.Spec(ctx, k.Client, v1alpha1.FieldOwnerController, ssa.Object{Kind: "PinnedImageSet", Name: name,
		Parent: &metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "UpdatePool", Name: want.Pool.Name, UID: want.Pool.UID},
		Labels: map[string]string{v1alpha1.LabelOSImage: osbuild.Label(want.OSImage.Name)}}, spec)
}

// Sweep deletes the sets of pools that are not among those that want an image.
func (k *prepuller) Sweep(ctx context.Context, pools map[string]bool) error {
	var sets v1alpha1.PinnedImageSetList
	if err := k.Client.List(ctx, &sets, client.HasLabels{v1alpha1.LabelOSImage}); err != nil {
		return err
	}
	var errs []error
	for i := range sets.Items {
		if pool, _ := strings.CutPrefix(sets.Items[i].Name, SetName("")); !pools[pool] {
			errs = append(errs, k.drop(ctx, sets.Items[i].Name))
		}
	}
	return errors.Join(errs...)
}

// drop deletes a set of ours.
func (k *prepuller) drop(ctx context.Context, name string) error {
	var have v1alpha1.PinnedImageSet
	err := k.Live.Get(ctx, client.ObjectKey{Name: name}, &have)
	if err != nil || have.Labels[v1alpha1.LabelOSImage] == "" {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(k.Client.Delete(ctx, &have, client.Preconditions{UID: &have.UID}))
}
