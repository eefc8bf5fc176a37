package cordon

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/neighbours"
	"github.com/refit-dev/refit/internal/controller/roster"
	"github.com/refit-dev/refit/internal/rollout/read"
)

// Cordoner writes Nodes.
type Cordoner struct {
	Client client.Client
	// Live reads from the API server: after a control-plane node moved, the cache
	// may lag by as long as it takes to notice a dead connection, and a write that
	// is based on it would be refused until then.
	Live   client.Reader
	Roster *roster.Roster
	Now    func() time.Time
}

// Mark marks a node for an update and cordons it if cordon is true. A node that a
// person cordoned keeps that cordon. first is true if it had no mark.
func (c *Cordoner) Mark(ctx context.Context, name string, m read.Mark, update string, cordon bool) (first bool, err error) {
	n, err := c.live(ctx, name)
	if err != nil {
		return false, err
	}
	p := n.DeepCopy()
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[v1alpha1.AnnotationUpdating] = m.String()
	if cordon && !n.Spec.Unschedulable {
		p.Annotations[v1alpha1.AnnotationCordonedBy] = v1alpha1.FieldOwnerController + ": ClusterUpdate " + update
		p.Spec.Unschedulable = true
	}
	neighbours.HoldNode(p, m.UID)
	return read.MarkOf(n) == nil, c.patch(ctx, n, p)
}

// GiveBack takes our mark away, and our cordon with it, and leaves the record, if
// there is one, of how the node was updated.
func (c *Cordoner) GiveBack(ctx context.Context, name string, record *read.Record) error {
	n, err := c.live(ctx, name)
	if err != nil {
		return err
	}
	p := n.DeepCopy()
	if _, ours := p.Annotations[v1alpha1.AnnotationCordonedBy]; ours {
		p.Spec.Unschedulable = false
	}
	if record != nil && p.Annotations[v1alpha1.AnnotationUpdating] != "" {
		p.Annotations[v1alpha1.AnnotationUpdated] = record.String()
	}
	delete(p.Annotations, v1alpha1.AnnotationCordonedBy)
	delete(p.Annotations, v1alpha1.AnnotationUpdating)
	neighbours.ReleaseNode(p)
	return c.patch(ctx, n, p)
}

func (c *Cordoner) live(ctx context.Context, name string) (*corev1.Node, error) {
	n := &corev1.Node{}
	return n, c.Live.Get(ctx, client.ObjectKey{Name: name}, n)
}

// patch fails if the node is not as it was seen: then it is looked at again.
func (c *Cordoner) patch(ctx context.Context, old, changed *corev1.Node) error {
	err := c.Client.Patch(ctx, changed, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1alpha1.FieldOwnerController))
	if err == nil && c.Roster != nil {
		c.Roster.Node(changed, c.Now())
	}
	return err
}
