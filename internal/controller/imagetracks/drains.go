package imagetracks

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/imagetracks/workloads"
	"github.com/refit-dev/refit/internal/controller/nodedrain"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/imagetag/track"
	"github.com/refit-dev/refit/internal/text"
)

// describeDrains fills in which node is drained and how far it is, and which nodes may be. The turn
// in the status names the only node that the track can have cordoned: it is written before the
// cordon, and goes after it.
func (r *Reconciler) describeDrains(ctx context.Context, l *turn) error {
	if t := l.o.Status.Turn; t != nil {
		n := &corev1.Node{}
		err := r.Live.Get(ctx, client.ObjectKey{Name: t.Node}, n)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read node %s: %w", t.Node, err)
		}
		if err == nil && n.Annotations[v1alpha1.AnnotationDrainedFor] == l.o.Name {
			l.drained = n
		}
	}
	if l.o.Spec.Drain == nil || !slices.ContainsFunc(l.ws, drains) {
		return nil
	}
	d, err := r.drainOf(ctx, l)
	if err != nil {
		return err
	}
	undrainable, err := r.undrainable(ctx)
	if err != nil {
		return err
	}
	for _, w := range l.ws {
		if drains(w) {
			describeDrain(w, d, undrainable)
		}
	}
	return nil
}

// drains reports whether nodes are drained for a workload.
func drains(w *workloads.Workload) bool {
	return w.Kind == track.DaemonSet || w.Kind == track.StaticPod && !w.Kubeadm
}

func describeDrain(w *workloads.Workload, d track.NodeDrain, undrainable map[string]string) {
	w.Drains, w.Drain, w.Undrainable, w.NodeOf = true, d, undrainable, map[string]string{}
	for i := range w.Pods {
		p := &w.Pods[i]
		old := slices.Contains(w.Old, p.Name)
		if old {
			w.NodeOf[p.Name] = p.Spec.NodeName
		}
		if p.Spec.NodeName == d.Node && !old && p.DeletionTimestamp == nil && rolloutfacts.PodReady(p) {
			w.Drain.Replaced = true
		}
	}
}

// drainOf is how far the node is that the track has cordoned.
func (r *Reconciler) drainOf(ctx context.Context, l *turn) (track.NodeDrain, error) {
	if l.drained == nil {
		return track.NodeDrain{}, nil
	}
	e := nodedrain.Evictor{Client: r.Client, Live: r.Live}
	d, err := e.Decide(ctx, l.drained.Name, l.o.Spec.Drain)
	if err != nil {
		return track.NodeDrain{}, err
	}
	out := track.NodeDrain{Node: l.drained.Name, Empty: d.Empty(), Message: text.Count(d.Left(), "pod") + " left"}
	if len(d.Refused) > 0 {
		out.Message += "; " + d.Refused[0].Message
	} else if why := r.refusal(l.o.Name); why != "" {
		out.Message += "; " + why
	}
	return out, nil
}

// undrainable says of nodes why no drain may start there now.
func (r *Reconciler) undrainable(ctx context.Context) (map[string]string, error) {
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	out := map[string]string{}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		why, held := n.Annotations[v1alpha1.AnnotationHold]
		switch ready, _ := rolloutfacts.Ready(n); {
		case held:
			out[n.Name] = "it is held: " + why
		case !ready:
			out[n.Name] = "it is not Ready"
		case n.Annotations[v1alpha1.AnnotationUpdating] != "":
			out[n.Name] = "a ClusterUpdate moves it"
		}
	}
	return out, nil
}

// drain cordons a node, and asks for the eviction of what is left on it.
func (r *Reconciler) drain(ctx context.Context, l *turn) error {
	n := &corev1.Node{}
	if err := r.Live.Get(ctx, client.ObjectKey{Name: l.step.Drain}, n); err != nil {
		return fmt.Errorf("read node %s: %w", l.step.Drain, err)
	}
	if by := n.Annotations[v1alpha1.AnnotationDrainedFor]; by != "" && by != l.o.Name || n.Annotations[v1alpha1.AnnotationUpdating] != "" {
		return nil // the next reconcile sees it
	}
	if err := r.cordon(ctx, n, l.o.Name); err != nil {
		return err
	}
	e := nodedrain.Evictor{Client: r.Client, Live: r.Live}
	d, err := e.Decide(ctx, n.Name, l.o.Spec.Drain)
	if err != nil {
		return err
	}
	refused, err := e.Evict(ctx, n.Name, d, l.o.Spec.Drain)
	why := ""
	if len(refused) > 0 {
		why = refused[0].Message
	}
	r.setRefusal(l.o.Name, why)
	return err
}

// cordon marks a node for a track. A cordon of a person or of a ClusterUpdate stays theirs.
func (r *Reconciler) cordon(ctx context.Context, n *corev1.Node, track string) error {
	if n.Annotations[v1alpha1.AnnotationDrainedFor] == track && n.Spec.Unschedulable {
		return nil
	}
	before := n.DeepCopy()
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	n.Annotations[v1alpha1.AnnotationDrainedFor] = track
	if !n.Spec.Unschedulable {
		n.Annotations[v1alpha1.AnnotationCordonedBy] = v1alpha1.FieldOwnerController + ": ImageTrack " + track
		n.Spec.Unschedulable = true
	}
	log.FromContext(ctx).Info("node cordoned", "node", n.Name, "track", track)
	return r.writeNode(ctx, before, n)
}

// release takes a track's mark and its cordon from a node. If a ClusterUpdate works on the node, the
// cordon is that one's from now on.
func (r *Reconciler) release(ctx context.Context, n *corev1.Node) error {
	before := n.DeepCopy()
	if _, ours := n.Annotations[v1alpha1.AnnotationCordonedBy]; ours && n.Annotations[v1alpha1.AnnotationUpdating] == "" {
		n.Spec.Unschedulable = false
		delete(n.Annotations, v1alpha1.AnnotationCordonedBy)
	}
	delete(n.Annotations, v1alpha1.AnnotationDrainedFor)
	log.FromContext(ctx).Info("node released", "node", n.Name)
	return r.writeNode(ctx, before, n)
}

// writeNode fails if the node changed since it was read, and the reconcile is repeated.
func (r *Reconciler) writeNode(ctx context.Context, before, n *corev1.Node) error {
	err := r.Client.Patch(ctx, n, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1alpha1.FieldOwnerTracks))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write node %s: %w", n.Name, err)
	}
	return nil
}

// releaseUnused releases the node that the track has cordoned if it has no turn any more.
func (r *Reconciler) releaseUnused(ctx context.Context, l *turn) error {
	if l.drained == nil || l.status.Turn != nil && l.status.Turn.Node == l.drained.Name {
		return nil
	}
	r.setRefusal(l.o.Name, "")
	return r.release(ctx, l.drained)
}

// releaseOf releases the nodes that tracks have cordoned which are gone.
func (r *Reconciler) releaseOf(ctx context.Context, gone func(track string) bool) error {
	var nodes corev1.NodeList
	if err := r.Live.List(ctx, &nodes); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		if by := n.Annotations[v1alpha1.AnnotationDrainedFor]; by != "" && gone(by) {
			if err := r.release(ctx, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// refusal is what the last evictions for a track were refused with. It is only ever a text.
func (r *Reconciler) refusal(track string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refusals[track]
}

func (r *Reconciler) setRefusal(track, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refusals == nil {
		r.refusals = map[string]string{}
	}
	r.refusals[track] = why
	if why == "" {
		delete(r.refusals, track)
	}
}
