package nodedistribution

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"

	corev1 "k8s.io/api/core/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// pinSetBuilder makes hold lists; nodes with the same sets and platform share one.
type pinSetBuilder struct {
	w *fleetSnapshot
	// rank of a bundle: the wanted one first.
	rank map[string]int
	memo map[string]string
	// data of every list by its Content name.
	data map[string]string
}

func (w *fleetSnapshot) newPinSetBuilder(order []string) *pinSetBuilder {
	h := &pinSetBuilder{w: w, rank: map[string]int{}, memo: map[string]string{}, data: map[string]string{}}
	for i, d := range order {
		h.rank[d] = i
	}
	return h
}

// pinSetOf returns the name of the node's hold list, empty if it holds nothing. nu may
// be nil.
func (h *pinSetBuilder) pinSetOf(n *corev1.Node, nu *v1alpha1.NodeUpdate) string {
	var sets []*v1alpha1.PinnedImageSet
	old := ""
	if nu != nil {
		old = nu.Spec.Pins
	}
	discard, needs := h.w.discards(n), h.w.needsOf(n, nu)
	key := fmt.Sprint(needs, " ", old, " ", discard)
	for i := range h.w.sets {
		if s := &h.w.sets[i]; s.DeletionTimestamp.IsZero() && h.w.selectors.Match(s.Spec.NodeSelector, n.Labels) {
			sets = append(sets, s)
			key += " " + s.Name
		}
	}
	name, ok := h.memo[key]
	if !ok {
		name = h.build(sets, needs, discard, h.w.readPinSet(old))
		h.memo[key] = name
	}
	return name
}

func (h *pinSetBuilder) build(sets []*v1alpha1.PinnedImageSet, needs pin.Needs, discard bool, old model.PinSet) string {
	sort.SliceStable(sets, func(i, j int) bool { return h.rankOf(sets[i]) < h.rankOf(sets[j]) })
	u := union{names: map[string]bool{}, payloads: map[model.PinSetPayload]bool{}}
	for _, s := range sets {
		l := h.w.wantedBy(s, needs, old)
		for i := range l.Images {
			// The next image that is made on the site is put together from the same base.
			l.Images[i].NoCopy = l.Images[i].Bundle != "" && l.Images[i].Overlay == "" && (s.Spec.LocalCopy == v1alpha1.LocalCopyDiscard || s.Spec.LocalCopy == "" && discard)
		}
		u.addList(l)
	}
	if len(u.list.Images)+len(u.list.Payloads) == 0 {
		return ""
	}
	return h.store(u.sorted())
}

// discards reports whether the node's pool keeps no copies. A node of two pools keeps them,
// because the pools may disagree.
func (w *fleetSnapshot) discards(n *corev1.Node) bool {
	p := w.poolOf(n)
	return p != nil && p.Spec.LocalCopy == v1alpha1.LocalCopyDiscard
}

// needsOf is what a node needs of a bundle: what its role starts, or all that its pool wants.
// nu may be nil.
func (w *fleetSnapshot) needsOf(n *corev1.Node, nu *v1alpha1.NodeUpdate) pin.Needs {
	return pin.Needs{Platform: platform(n), ControlPlane: rolloutfacts.RunsControlPlane(n, nu) || w.pinsAll(n)}
}

// pinsAll reports whether the node's pool pins every image of a bundle. A node of two pools
// does if one of them wants it.
func (w *fleetSnapshot) pinsAll(n *corev1.Node) bool {
	return slices.ContainsFunc(w.pools, func(p v1alpha1.UpdatePool) bool {
		return p.Spec.PinImages == v1alpha1.PinAll && p.DeletionTimestamp.IsZero() && w.selectors.Match(&p.Spec.NodeSelector, n.Labels)
	})
}

// peerPort is that of the node's pool, 0 for the usual one.
func (w *fleetSnapshot) peerPort(n *corev1.Node) int32 {
	if !slices.ContainsFunc(w.pools, func(p v1alpha1.UpdatePool) bool { return p.Spec.PeerPort != 0 }) {
		return 0
	}
	if p := w.poolOf(n); p != nil {
		return p.Spec.PeerPort
	}
	return 0
}

// poolOf is the node's pool, nil if it is of none or of two.
func (w *fleetSnapshot) poolOf(n *corev1.Node) *v1alpha1.UpdatePool {
	var of []*v1alpha1.UpdatePool
	for i := range w.pools {
		if p := &w.pools[i]; p.DeletionTimestamp.IsZero() && w.selectors.Match(&p.Spec.NodeSelector, n.Labels) {
			of = append(of, p)
		}
	}
	if len(of) != 1 {
		return nil
	}
	return of[0]
}

func (h *pinSetBuilder) rankOf(s *v1alpha1.PinnedImageSet) int {
	if r, ok := h.rank[s.Spec.Bundle]; ok {
		return r
	}
	return len(h.rank)
}

func (h *pinSetBuilder) store(l model.PinSet) string {
	data, err := json.Marshal(l)
	if err != nil {
		panic(err) // a PinSet holds only strings
	}
	name := v1alpha1.ContentName(v1alpha1.ContentPins, string(data))
	h.data[name] = string(data)
	return name
}

// wantedBy lists what a set wants on a node. While the header of a bundle is missing, the
// node's prior list for that bundle stays: a node never loses a pin because the controller
// cannot read a bundle.
func (w *fleetSnapshot) wantedBy(s *v1alpha1.PinnedImageSet, needs pin.Needs, old model.PinSet) model.PinSet {
	var l model.PinSet
	for _, g := range s.Spec.Groups {
		for _, i := range g.Images {
			l.Images = append(l.Images, model.PinSetImage{Name: i.Name, Digest: i.Digest, Bundle: s.Spec.Bundle, Registry: s.Spec.FromRegistry, Kubelet: s.Spec.FromRegistry && s.Spec.ByKubelet, Size: i.SizeBytes, Base: i.Base, Overlay: i.Parts})
		}
	}
	if !s.Spec.AllOfBundle || s.Spec.Bundle == "" {
		return l
	}
	if header, err := w.header(s.Spec.Bundle); err == nil {
		all := pin.FromBundle(header, needs)
		return model.PinSet{Images: append(l.Images, all.Images...), Payloads: all.Payloads}
	}
	for _, i := range old.Images {
		if i.Bundle == s.Spec.Bundle {
			l.Images = append(l.Images, i)
		}
	}
	for _, p := range old.Payloads {
		if p.Bundle == s.Spec.Bundle {
			l.Payloads = append(l.Payloads, p)
		}
	}
	return l
}

// union adds up what several sets want. A tag can name one image on a
// node: where two bundles give it to different images, the first in rank has it.
type union struct {
	list     model.PinSet
	names    map[string]bool
	payloads map[model.PinSetPayload]bool
}

func (u *union) addList(l model.PinSet) {
	for _, i := range l.Images {
		if !u.names[i.Name] {
			u.names[i.Name] = true
			u.list.Images = append(u.list.Images, i)
			continue
		}
		at := slices.IndexFunc(u.list.Images, func(x model.PinSetImage) bool { return x.Name == i.Name })
		if x := &u.list.Images[at]; x.Digest == i.Digest && x.Bundle == i.Bundle {
			x.NoCopy = x.NoCopy && i.NoCopy // who keeps has its way
		}
	}
	for _, p := range l.Payloads {
		if !u.payloads[p] {
			u.payloads[p] = true
			u.list.Payloads = append(u.list.Payloads, p)
		}
	}
}

func (u *union) sorted() model.PinSet {
	l := u.list
	if l.Images == nil {
		l.Images = []model.PinSetImage{}
	}
	sort.Slice(l.Images, func(i, j int) bool { return l.Images[i].Name < l.Images[j].Name })
	sort.Slice(l.Payloads, func(i, j int) bool {
		a, b := l.Payloads[i], l.Payloads[j]
		if a.Name != b.Name {
			return a.Name < b.Name
		}
		return a.Digest < b.Digest
	})
	return l
}
