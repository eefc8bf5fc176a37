package nodedistribution

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// StartupTaint is refit's taint of a node, nil if it has none.
func StartupTaint(n *corev1.Node) *corev1.Taint {
	for i := range n.Spec.Taints {
		if n.Spec.Taints[i].Key == v1alpha1.TaintImagesNotReady {
			return &n.Spec.Taints[i]
		}
	}
	return nil
}

// removeTaint takes refit's taint off a node, and no other.
func removeTaint(n *corev1.Node) {
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintImagesNotReady })
}

// TaintChange is one node and what becomes of it.
type TaintChange struct {
	Node   *corev1.Node
	Action pin.TaintAction
	// Noted is the key that is written down if it is let in.
	Noted string
	// Says what the node has pinned, or what is missing, for the event.
	Says string
}

// TaintWriter writes Nodes.
type TaintWriter struct {
	Client client.Client
	Events events.EventRecorder
}

// Write carries a change out and returns the node as it is then. A conflict means
// that the node changed meanwhile: look again.
func (w TaintWriter) Write(ctx context.Context, c TaintChange) (*corev1.Node, error) {
	n := c.Node.DeepCopy()
	applyTaint(n, c)
	patch := client.MergeFromWithOptions(c.Node, client.MergeFromWithOptimisticLock{})
	if err := w.Client.Patch(ctx, n, patch, client.FieldOwner(v1alpha1.FieldOwnerController)); err != nil {
		return nil, err
	}
	w.emitEvent(n, c)
	return n, nil
}

func applyTaint(n *corev1.Node, c TaintChange) {
	switch c.Action {
	case pin.AddTaint, pin.AddTaintAgain:
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: v1alpha1.TaintImagesNotReady, Value: v1alpha1.TaintByPool, Effect: corev1.TaintEffectNoSchedule})
	case pin.DropTaint:
		removeTaint(n)
	case pin.AdmitNode, pin.RecordKey:
		removeTaint(n)
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[v1alpha1.AnnotationAdmitted] = c.Noted
	case pin.LeaveTaint:
	}
}

// sentences of the events.
var sentences = map[pin.TaintAction]struct{ kind, reason, action, text string }{
	pin.AddTaint:      {corev1.EventTypeNormal, v1alpha1.ReasonNodeJoining, "KeepOut", "node %s is new: it takes no pods until it holds and pins everything; %s"},
	pin.AddTaintAgain: {corev1.EventTypeWarning, v1alpha1.ReasonStoreReplaced, "KeepOut", "node %s has another store than the one it was let in with (a new disk, or installed anew): it takes no new pods until it holds and pins everything again; %s"},
	pin.AdmitNode:     {corev1.EventTypeNormal, v1alpha1.ReasonNodeJoining, "Admit", "node %s takes pods: %s"},
	pin.DropTaint:     {corev1.EventTypeNormal, v1alpha1.ReasonNodeJoining, "Admit", "node %s takes pods: no pool asks any more that it holds everything first; %s"},
}

func (w TaintWriter) emitEvent(n *corev1.Node, c TaintChange) {
	s, known := sentences[c.Action]
	if !known || w.Events == nil {
		return
	}
	w.Events.Eventf(n, nil, s.kind, s.reason, s.action, "%s", fmt.Sprintf(s.text, n.Name, c.Says))
}
