package nodedistribution

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/queue"

	"github.com/refit-dev/refit/internal/pipeline/startuptaint"
)

// taintingPool is a pool that wants nodes to hold first.
type taintingPool struct {
	uid      string
	selector labels.Selector
	since    time.Time
}

// taintingPools of these pools; a selector that cannot be read picks nobody.
func taintingPools(pools []v1alpha1.UpdatePool) []taintingPool {
	var out []taintingPool
	for i := range pools {
		p := &pools[i]
		s, err := metav1.LabelSelectorAsSelector(&p.Spec.NodeSelector)
		if p.Spec.StartupTaint && err == nil && p.DeletionTimestamp.IsZero() {
			out = append(out, taintingPool{fmt.Sprint(p.UID, " ", p.Generation), s, p.CreationTimestamp.Time})
		}
	}
	return out
}

// asked is what pools want of a node: whether it is to hold first, and whether it came
// after one that does.
type asked struct{ asks, later bool }

func askedOf(n *corev1.Node, doors []taintingPool) (a asked) {
	for _, d := range doors {
		if d.selector.Matches(labels.Set(n.Labels)) {
			a.asks = true
			a.later = a.later || !n.CreationTimestamp.Time.Before(d.since)
		}
	}
	return a
}

// taintChanges are the nodes whose taint, or note, is to be changed.
func (r *Reconciler) taintChanges(w *fleetSnapshot, want *wanted) []TaintChange {
	var stamp strings.Builder
	for _, d := range w.doors {
		stamp.WriteString(d.uid + ",")
	}
	r.asked.Under(stamp.String(), w.edition, w.nodes)
	var out []TaintChange
	for i, n := range w.nodes {
		if len(w.doors) == 0 && StartupTaint(n) == nil {
			continue
		}
		a, same := r.asked.At(i, n, w.reports[i])
		if !same {
			*a = askedOf(n, w.doors)
		}
		if c := want.taintChange(i, *a); c.Action != startuptaint.Leave {
			out = append(out, c)
		}
	}
	return out
}

// taintChange decides what becomes of the i-th node.
func (want *wanted) taintChange(i int, a asked) TaintChange {
	n, nu := want.w.nodes[i], want.w.reports[i]
	f := startuptaint.Facts{Asks: a.asks, Key: keyOf(n, nu), Admitted: n.Annotations[v1alpha1.AnnotationAdmitted]}
	if taint := StartupTaint(n); taint != nil {
		f.Tainted, f.ByPool = true, taint.Value == v1alpha1.TaintByPool
	}
	if !f.Tainted && (!f.Asks || f.Key != "" && f.Key == f.Admitted) {
		return TaintChange{} // nobody asks, or it was let in
	}
	f.First = a.later && firstSight(n, nu)
	held, says := want.holdsAll(i)
	f.Held = held
	return TaintChange{Node: n, Action: startuptaint.Decide(f), Noted: f.Noted(), Says: says}
}

// firstSight: nobody has told this node anything; what a node of the same name was
// told that left does not count.
func firstSight(n *corev1.Node, nu *v1alpha1.NodeUpdate) bool {
	return nu == nil || nu.CreationTimestamp.Time.Before(n.CreationTimestamp.Time)
}

// keyOf is the key of the agent that has spoken since the node booted.
func keyOf(n *corev1.Node, nu *v1alpha1.NodeUpdate) string {
	if nu == nil || nu.Status.Agent == nil || !ofThisBoot(n, &nu.Status) {
		return ""
	}
	return nu.Status.Agent.PublicKey
}

// ofThisBoot reports whether an agent's word is about the machine as it runs now: a
// node that was installed anew may find what its predecessor said.
func ofThisBoot(n *corev1.Node, st *v1alpha1.NodeUpdateStatus) bool {
	if boot := n.Status.NodeInfo.BootID; boot != "" && st.Observed != nil && st.Observed.BootID != "" {
		return st.Observed.BootID == boot
	}
	return st.Agent.Heartbeat != nil && !st.Agent.Heartbeat.Time.Before(n.CreationTimestamp.Time)
}

// holdsAll reports whether the i-th node has proven that it holds all that it is to
// hold, and says how far it is. While something that is asked of it cannot be read
// yet, it has not.
func (want *wanted) holdsAll(i int) (bool, string) {
	n, nu := want.w.nodes[i], want.w.reports[i]
	if d := want.unread(n); d != "" {
		return false, "what bundle " + d + " brings is not known yet"
	}
	hold := want.holds.holdListOf(n, nu)
	if hold == "" {
		return true, "nothing is asked of it"
	}
	if keyOf(n, nu) == "" {
		return false, "its agent has not spoken yet"
	}
	need := want.w.needOf(hold)
	k := kindOf(want.w, n, nu)
	says := fmt.Sprintf("%d of %d images are held and pinned, %d of %d files", min(k.imagesReady, k.imagesPinned), need.images, k.payloadsReady, need.payloads)
	return nu.Spec.Pins == hold && need.met(&k), says
}

// blind is a bundle that nobody can say yet what it brings, although an agent has it,
// for the nodes that hold something of it; nil for all. A bundle that nobody has
// plugged in anywhere keeps no node out.
type blind struct {
	digest   string
	selector *metav1.LabelSelector
}

// unread is such a bundle that the node waits for, empty if there is none.
func (want *wanted) unread(n *corev1.Node) string {
	if !want.looked {
		want.blind, want.looked = want.w.unread(want.order), true
	}
	for _, b := range want.blind {
		if want.w.selectors.Match(b.selector, n.Labels) {
			return b.digest
		}
	}
	return ""
}

func (w *fleetSnapshot) unread(approved []string) (out []blind) {
	for _, d := range w.missingSets(approved) {
		if w.served(d) {
			out = append(out, blind{digest: d})
		}
	}
	for i := range w.sets {
		s := &w.sets[i]
		if !s.Spec.AllOfBundle || !s.DeletionTimestamp.IsZero() {
			continue
		}
		if _, err := w.header(s.Spec.Bundle); err != nil && w.served(s.Spec.Bundle) {
			out = append(out, blind{s.Spec.Bundle, s.Spec.NodeSelector})
		}
	}
	return out
}

// applyTaints writes what becomes of newcomers. Those that are to be kept out and are not
// yet, are told nothing: that they are new would be forgotten.
func (r *Reconciler) applyTaints(ctx context.Context, w *fleetSnapshot, want *wanted) (waiting map[string]bool, err error) {
	waiting = map[string]bool{}
	changes := r.taintChanges(w, want)
	var mu sync.Mutex
	err = queue.ForEach(ctx, changes, func(c TaintChange) error {
		n, err := TaintWriter{Client: r.Client, Events: r.Events}.Write(ctx, c)
		if err == nil {
			r.nodes.PutNode(n, w.now)
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if c.Action == startuptaint.KeepOut {
			waiting[c.Node.Name] = true
		}
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			r.more = true
			return nil
		}
		return fmt.Errorf("node %s: %s: %w", c.Node.Name, c.Action, err)
	})
	return waiting, err
}

// without leaves out the nodes that wait.
func without(stale []staleNode, waiting map[string]bool) []staleNode {
	if len(waiting) == 0 {
		return stale
	}
	return slices.DeleteFunc(stale, func(s staleNode) bool { return waiting[s.name] })
}
