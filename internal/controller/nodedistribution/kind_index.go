package nodedistribution

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/nodeindex"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// kind is all that bundles and sets ask of a node but its name: nodes of a kind
// are counted together. In a fleet at rest there are a few kinds, while it loads
// as many as there are different numbers of images.
type kind struct {
	// selected has a 1 for every set that selects the node, in their order.
	selected string
	os, arch string
	// controlPlane: it runs one, so it needs the images of one.
	controlPlane bool
	// kubelet is the version that its kubelet reports.
	kubelet string
	// changing is the bundle of its run, if that is unfinished.
	changing string
	// reports is whether it has a NodeUpdate, which says all below.
	reports                                  bool
	hold, trust                              string
	holding                                  bool
	content                                  string
	imagesReady, imagesPinned, payloadsReady int32
	// fetched from registries.
	fetchedReady     int32
	copying, stalled bool
}

// group is the nodes of a kind.
type group struct {
	*kind
	nodes int
	// first of them, by its place among the nodes.
	first int
}

// kindCounts counts the nodes of a snapshot.
type kindCounts struct {
	// groups in the order of their first nodes.
	groups []group
	// media are the places of nodes that report any.
	media []int
}

// maxKinds are remembered; then everything is read anew.
const maxKinds = 20000

// kindIndex remembers of which kind each node is, until the node changes.
type kindIndex struct {
	entries nodeindex.Row[entry]
	ids     map[kind]int32
	kinds   []*kind
	resets  int
}

type entry struct {
	kind  int32
	media bool
}

// count counts the nodes as they are now.
func (l *kindIndex) count(w *fleetSnapshot) *kindCounts {
	if len(l.kinds) > maxKinds {
		l.resets, l.ids, l.kinds = l.resets+1, nil, nil
	}
	l.entries.Under(fmt.Sprintf("%d|%s", l.resets, setsSeen(w)), w.edition, w.nodes)
	t := &kindCounts{}
	at := make([]int32, len(l.kinds)) // where a kind is among the groups, from 1
	for i, n := range w.nodes {
		nu := w.reports[i]
		e, same := l.entries.At(i, n, nu)
		if !same {
			*e = l.entryOf(w, n, nu)
		}
		for int(e.kind) >= len(at) {
			at = append(at, 0)
		}
		if at[e.kind] == 0 {
			t.groups = append(t.groups, group{kind: l.kinds[e.kind], first: i})
			at[e.kind] = int32(len(t.groups))
		}
		t.groups[at[e.kind]-1].nodes++
		if e.media {
			t.media = append(t.media, i)
		}
	}
	return t
}

// setsSeen names the sets as they select now.
func setsSeen(w *fleetSnapshot) string {
	var b strings.Builder
	for i := range w.sets {
		s := &w.sets[i]
		fmt.Fprintf(&b, "%s %s %d,", s.Name, s.UID, s.Generation)
	}
	return b.String()
}

func (l *kindIndex) entryOf(w *fleetSnapshot, n *corev1.Node, nu *v1alpha1.NodeUpdate) entry {
	k := kindOf(w, n, nu)
	id, known := l.ids[k]
	if !known {
		if l.ids == nil {
			l.ids = map[kind]int32{}
		}
		id = int32(len(l.kinds))
		l.ids[k], l.kinds = id, append(l.kinds, &k)
	}
	return entry{id, nu != nil && len(nu.Status.Media) > 0}
}

func kindOf(w *fleetSnapshot, n *corev1.Node, nu *v1alpha1.NodeUpdate) kind {
	selected := make([]byte, len(w.sets))
	for i := range w.sets {
		selected[i] = '0'
		if w.selectors.Match(w.sets[i].Spec.NodeSelector, n.Labels) {
			selected[i] = '1'
		}
	}
	k := kind{selected: string(selected), os: n.Status.NodeInfo.OperatingSystem, arch: n.Status.NodeInfo.Architecture, kubelet: n.Status.NodeInfo.KubeletVersion,
		controlPlane: rolloutfacts.RunsControlPlane(n, nu)}
	if nu == nil {
		return k
	}
	k.changing = changingTo(nu)
	k.reports, k.hold, k.trust = true, nu.Spec.Pins, nu.Spec.Trust
	if h := nu.Status.Pins; h != nil {
		k.holding, k.content, k.copying = true, h.Content, h.BytesDone < h.BytesTotal
		k.imagesReady, k.imagesPinned, k.payloadsReady = h.ImagesReady, h.ImagesPinned, h.PayloadsReady
		k.fetchedReady = h.FetchedReady
	}
	k.stalled = stalledOf(nu) != nil
	return k
}

// changingTo is the bundle of an unfinished run, empty without one.
func changingTo(nu *v1alpha1.NodeUpdate) string {
	run, st := nu.Spec.Run, nu.Status.Run
	if run == nil {
		return ""
	}
	if st != nil && st.UID == run.UID && st.Attempt == run.Attempt && (st.State == v1alpha1.RunSucceeded || st.State == v1alpha1.RunUndone) {
		return ""
	}
	return run.Bundle
}

// stalledOf is what stops an agent, in its words; nil if nothing does.
func stalledOf(nu *v1alpha1.NodeUpdate) *metav1.Condition {
	if c := meta.FindStatusCondition(nu.Status.Conditions, v1alpha1.ConditionStalled); c != nil && c.Status == metav1.ConditionTrue {
		return c
	}
	return nil
}

// needs is what the nodes of a kind need of a bundle.
func (k *kind) needs() pin.Needs {
	return pin.Needs{Platform: k.os + "/" + k.arch, ControlPlane: k.controlPlane}
}

// kindCounts is the count of this look.
func (w *fleetSnapshot) countKinds() *kindCounts {
	if w.counted == nil {
		w.counted = w.kinds.count(w)
	}
	return w.counted
}

// selectedBy reports whether the i-th set is for the nodes of a kind.
func (k *kind) selectedBy(i int) bool { return k.selected[i] == '1' }

// wants reports whether a set asks the nodes of a kind for all of a bundle.
func (w *fleetSnapshot) wants(k *kind, digest string) bool {
	for i := range w.sets {
		if s := &w.sets[i]; s.Spec.Bundle == digest && s.Spec.AllOfBundle && k.selectedBy(i) {
			return true
		}
	}
	return false
}

// met reports whether nodes of a kind hold and pin all that their hold list says.
func (n pinNeed) met(k *kind) bool {
	return n.there && k.holding && k.content == k.hold && k.imagesReady >= n.images && k.imagesPinned >= n.images && k.payloadsReady >= n.payloads
}

// metFor counts what comes from registries as well, if the set is of such.
func (n pinNeed) metFor(k *kind, s *v1alpha1.PinnedImageSet) bool {
	return n.met(k) && (!s.Spec.FromRegistry || k.fetchedReady >= n.fetched)
}
