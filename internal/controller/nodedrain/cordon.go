package nodedrain

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/interlocks"
	"github.com/refit-dev/refit/internal/controller/nodeindex"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
)

// Cordoner writes Nodes.
type Cordoner struct {
	Client client.Client
	// Live reads from the API server, for a node that is not as it was known.
	Live  client.Reader
	Nodes *nodeindex.Reader
}

// Exclude marks a node for an update and takes it out of external load balancers. A label that
// another writer set stays that writer's. first is true if the node had no mark.
func (c *Cordoner) Exclude(ctx context.Context, known *corev1.Node, m rolloutfacts.Mark) (first bool, err error) {
	err = c.change(ctx, known, func(n *corev1.Node) {
		first = setMark(n, m)
		if _, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]; excluded {
			return
		}
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels[corev1.LabelNodeExcludeBalancers] = ""
		n.Annotations[v1alpha1.AnnotationExcluded] = m.At.UTC().Format(time.RFC3339)
	})
	return first, err
}

// setMark sets the mark; first is true if there was none.
func setMark(n *corev1.Node, m rolloutfacts.Mark) (first bool) {
	first = rolloutfacts.MarkOf(n) == nil
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	n.Annotations[v1alpha1.AnnotationUpdating] = m.String()
	interlocks.HoldNode(n, m.UID)
	return first
}

// Mark marks a node for an update and cordons it if cordon is true. A node that a
// person cordoned keeps that cordon. first is true if it had no mark.
func (c *Cordoner) Mark(ctx context.Context, known *corev1.Node, m rolloutfacts.Mark, update string, cordon bool) (first bool, err error) {
	err = c.change(ctx, known, func(n *corev1.Node) {
		first = setMark(n, m)
		if cordon && !n.Spec.Unschedulable {
			n.Annotations[v1alpha1.AnnotationCordonedBy] = v1alpha1.FieldOwnerController + ": ClusterUpdate " + update
			n.Spec.Unschedulable = true
		}
	})
	return first, err
}

// Release takes our mark away, with our cordon and our label for load balancers, and leaves the record, if
// there is one, of how the node was updated.
func (c *Cordoner) Release(ctx context.Context, known *corev1.Node, record *rolloutfacts.Record) error {
	return c.change(ctx, known, func(n *corev1.Node) {
		if _, ours := n.Annotations[v1alpha1.AnnotationCordonedBy]; ours {
			n.Spec.Unschedulable = false
		}
		if record != nil && n.Annotations[v1alpha1.AnnotationUpdating] != "" {
			n.Annotations[v1alpha1.AnnotationUpdated] = record.String()
		}
		if _, ours := n.Annotations[v1alpha1.AnnotationExcluded]; ours {
			delete(n.Labels, corev1.LabelNodeExcludeBalancers)
		}
		delete(n.Annotations, v1alpha1.AnnotationExcluded)
		delete(n.Annotations, v1alpha1.AnnotationCordonedBy)
		delete(n.Annotations, v1alpha1.AnnotationUpdating)
		interlocks.ReleaseNode(n)
	})
}

// change writes what differs from the node as it is known. If the API server has
// another, that one is read and changed instead: the cache may lag by as long as
// it takes to notice a dead connection.
func (c *Cordoner) change(ctx context.Context, known *corev1.Node, do func(*corev1.Node)) error {
	changed := known.DeepCopy()
	do(changed)
	err := c.patch(ctx, known, changed)
	if !apierrors.IsConflict(err) {
		return err
	}
	live := &corev1.Node{}
	if err := c.Live.Get(ctx, client.ObjectKey{Name: known.Name}, live); err != nil {
		return err
	}
	changed = live.DeepCopy()
	do(changed)
	return c.patch(ctx, live, changed)
}

// patch fails if the node changed since it was read: the caller then reads it again.
func (c *Cordoner) patch(ctx context.Context, old, changed *corev1.Node) error {
	err := c.Client.Patch(ctx, changed, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1alpha1.FieldOwnerController))
	if err == nil && c.Nodes != nil {
		c.Nodes.PutNode(changed)
	}
	return err
}
