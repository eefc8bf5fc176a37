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

	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// taintingPool is a pool that wants nodes to hold first.
type taintingPool struct {
	uid      string
	selector labels.Selector
	since    time.Time
}

// taintingPools of these pools; an invalid selector selects no node.
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

// taintDemand is what pools want of a node: whether it is to hold first, and whether it came
// after one that does.
type taintDemand struct{ asks, later bool }

func taintDemandOf(n *corev1.Node, doors []taintingPool) (a taintDemand) {
	for _, d := range doors {
		if d.selector.Matches(labels.Set(n.Labels)) {
			a.asks = true
			a.later = a.later || !n.CreationTimestamp.Time.Before(d.since)
		}
	}
	return a
}

// taintChanges are the nodes whose taint, or note, is to be changed.
func (r *Reconciler) taintChanges(w *fleetSnapshot, want *desiredState) []TaintChange {
	var stamp strings.Builder
	for _, d := range w.taintingPools {
		stamp.WriteString(d.uid + ",")
	}
	r.taintDemands.Under(stamp.String(), w.edition, w.nodes)
	var out []TaintChange
	for i, n := range w.nodes {
		if len(w.taintingPools) == 0 && StartupTaint(n) == nil {
			continue
		}
		a, same := r.taintDemands.At(i, n, w.reports[i])
		if !same {
			*a = taintDemandOf(n, w.taintingPools)
		}
		if c := want.taintChange(i, *a); c.Action != pin.LeaveTaint {
			out = append(out, c)
		}
	}
	return out
}

// taintChange decides what becomes of the i-th node.
func (want *desiredState) taintChange(i int, a taintDemand) TaintChange {
	n, nu := want.w.nodes[i], want.w.reports[i]
	f := pin.TaintFacts{PoolAsks: a.asks, Key: bootKeyOf(n, nu), AdmittedKey: n.Annotations[v1alpha1.AnnotationAdmitted]}
	if taint := StartupTaint(n); taint != nil {
		f.Tainted, f.ByPool = true, taint.Value == v1alpha1.TaintByPool
	}
	if !f.Tainted && (!f.PoolAsks || f.Key != "" && f.Key == f.AdmittedKey) {
		return TaintChange{} // no pool asks, or the node was admitted
	}
	f.New = a.later && isNewNode(n, nu)
	held, says := want.hasPinnedAll(i)
	f.ImagesReady = held
	return TaintChange{Node: n, Action: pin.DecideTaint(f), Noted: f.KeyToRecord(), Says: says}
}

// isNewNode reports whether a node has no desired state yet. The NodeUpdate of a node of the
// same name that left does not count.
func isNewNode(n *corev1.Node, nu *v1alpha1.NodeUpdate) bool {
	return nu == nil || nu.CreationTimestamp.Time.Before(n.CreationTimestamp.Time)
}

// bootKeyOf is the key of the agent that has spoken since the node booted.
func bootKeyOf(n *corev1.Node, nu *v1alpha1.NodeUpdate) string {
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

// hasPinnedAll reports whether the i-th node has proven that it holds all that it is to
// hold, and says how far it is. While something that is asked of it cannot be read
// yet, it has not.
func (want *desiredState) hasPinnedAll(i int) (bool, string) {
	n, nu := want.w.nodes[i], want.w.reports[i]
	if d := want.awaitsUnread(n); d != "" {
		return false, "what bundle " + d + " brings is not known yet"
	}
	hold := want.holds.pinSetOf(n, nu)
	if hold == "" {
		return true, "nothing is asked of it"
	}
	if bootKeyOf(n, nu) == "" {
		return false, "its agent has not spoken yet"
	}
	need := want.w.needOf(hold)
	k := kindOf(want.w, n, nu)
	says := fmt.Sprintf("%d of %d images are held and pinned, %d of %d files", min(k.imagesReady, k.imagesPinned), need.images, k.payloadsReady, need.payloads)
	return nu.Spec.Pins == hold && need.met(&k), says
}

// unreadBundle is a bundle whose contents are not known yet although an agent has it, for the
// nodes that pin something of it; nil for all. A bundle that no node has keeps no node out.
type unreadBundle struct {
	digest   string
	selector *metav1.LabelSelector
}

// awaitsUnread is such a bundle that the node waits for, empty if there is none.
func (want *desiredState) awaitsUnread(n *corev1.Node) string {
	if !want.looked {
		want.blind, want.looked = want.w.unreadBundles(want.order), true
	}
	for _, b := range want.blind {
		if want.w.selectors.Match(b.selector, n.Labels) {
			return b.digest
		}
	}
	return ""
}

func (w *fleetSnapshot) unreadBundles(approved []string) (out []unreadBundle) {
	for _, d := range w.missingSets(approved) {
		if w.served(d) {
			out = append(out, unreadBundle{digest: d})
		}
	}
	for i := range w.sets {
		s := &w.sets[i]
		if !s.Spec.AllOfBundle || !s.DeletionTimestamp.IsZero() {
			continue
		}
		if _, err := w.header(s.Spec.Bundle); err != nil && w.served(s.Spec.Bundle) {
			out = append(out, unreadBundle{s.Spec.Bundle, s.Spec.NodeSelector})
		}
	}
	return out
}

// applyTaints writes the taints of new nodes. A node whose taint could not be written gets no
// desired state in this reconcile: with one it would no longer count as new.
func (r *Reconciler) applyTaints(ctx context.Context, w *fleetSnapshot, want *desiredState) (waiting map[string]bool, err error) {
	waiting = map[string]bool{}
	changes := r.taintChanges(w, want)
	var mu sync.Mutex
	err = queue.ForEach(ctx, changes, func(c TaintChange) error {
		n, err := TaintWriter{Client: r.Client, Events: r.Events}.Write(ctx, c)
		if err == nil {
			r.nodes.PutNode(n)
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if c.Action == pin.AddTaint {
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

// withoutWaiting leaves out the nodes that wait.
func withoutWaiting(stale []staleNode, waiting map[string]bool) []staleNode {
	if len(waiting) == 0 {
		return stale
	}
	return slices.DeleteFunc(stale, func(s staleNode) bool { return waiting[s.name] })
}
