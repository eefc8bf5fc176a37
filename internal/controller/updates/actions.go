package updates

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/neighbours"
	"github.com/refit-dev/refit/internal/controller/ssa"
	"github.com/refit-dev/refit/internal/drain"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/rollout"
)

// act carries out what the rollout decided; each action may be repeated.
func (r *Reconciler) act(ctx context.Context, w *world, u *v1alpha1.ClusterUpdate, plan model.Plan, d rollout.Decision, drains map[string]drain.Decision) ([]model.Verdict, error) {
	var verdicts []model.Verdict
	var errs []error
	for _, a := range d.Actions {
		n := w.byName[a.Node]
		if n == nil {
			continue
		}
		var err error
		switch a.Verb {
		case rollout.Cordon:
			err = r.cordon(ctx, n, mark{string(u.UID), a.Attempt, w.now}, u, planOf(plan, a.Node))
		case rollout.DrainIt:
			var vs []model.Verdict
			r.tellLoss(u, a.Node, drains[a.Node])
			vs, err = r.Evictor.Evict(ctx, a.Node, drains[a.Node], u.Spec.Drain)
			verdicts = append(verdicts, vs...)
		case rollout.Permit:
			err = r.permit(ctx, u, plan, a)
		case rollout.Uncordon:
			if err = r.uncordon(ctx, n); err == nil {
				r.event(u, n, corev1.EventTypeNormal, v1alpha1.ReasonUpdated, "Uncordon", "node "+n.Name+" was observed at its target and takes pods again")
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s node %s: %w", a.Verb, a.Node, err))
			continue
		}
		if a.Verb != rollout.DrainIt { // asked again every few seconds
			log.FromContext(ctx).Info(a.Verb, "update", u.Name, "node", a.Node, "attempt", a.Attempt)
		}
	}
	return verdicts, errors.Join(errs...)
}

// tellLoss says once per node which data goes with the pods.
func (r *Reconciler) tellLoss(u *v1alpha1.ClusterUpdate, node string, d drain.Decision) {
	if lost := d.DataLoss(); len(lost) > 0 && r.once(string(u.UID)+" "+node) {
		r.event(u, nil, corev1.EventTypeNormal, v1alpha1.ReasonDraining, "Evict", "node "+node+": emptyDir data goes with "+strings.Join(lost, ", "))
	}
}

// planOf is a node's share of a plan.
func planOf(plan model.Plan, node string) model.NodePlan {
	for _, np := range plan.Nodes {
		if np.Node == node {
			return np
		}
	}
	return model.NodePlan{}
}

// cordon marks a node and, if its plan says so, cordons it in one write, so that
// our cordon is never without its mark. A node that a person cordoned keeps that
// cordon, also at the end.
func (r *Reconciler) cordon(ctx context.Context, n *corev1.Node, m mark, u *v1alpha1.ClusterUpdate, np model.NodePlan) error {
	n, err := r.live(ctx, n.Name)
	if err != nil {
		return err
	}
	p := n.DeepCopy()
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	first := markOf(n) == nil
	p.Annotations[v1alpha1.AnnotationUpdating] = m.String()
	if !n.Spec.Unschedulable && has(np, rollout.Cordoned) {
		p.Annotations[v1alpha1.AnnotationCordonedBy] = v1alpha1.FieldOwnerController + ": ClusterUpdate " + u.Name
		p.Spec.Unschedulable = true
	}
	neighbours.HoldNode(p, string(u.UID))
	if err := r.patchNode(ctx, n, p); err != nil {
		return err
	}
	if first {
		r.event(u, n, corev1.EventTypeNormal, v1alpha1.ReasonUpdating, "Cordon", "node "+n.Name+" is to be updated"+framing(np))
	}
	return nil
}

// framing says what happens to a node's pods.
func framing(np model.NodePlan) string {
	switch {
	case has(np, rollout.Drained):
		return ": it is cordoned and drained"
	case has(np, rollout.Cordoned):
		return ": it is cordoned, its pods stay"
	}
	return ": its pods stay, new ones may come"
}

// uncordon takes our mark away, and our cordon with it, in one write.
func (r *Reconciler) uncordon(ctx context.Context, n *corev1.Node) error {
	n, err := r.live(ctx, n.Name)
	if err != nil {
		return err
	}
	p := n.DeepCopy()
	if _, ours := p.Annotations[v1alpha1.AnnotationCordonedBy]; ours {
		p.Spec.Unschedulable = false
	}
	delete(p.Annotations, v1alpha1.AnnotationCordonedBy)
	delete(p.Annotations, v1alpha1.AnnotationUpdating)
	neighbours.ReleaseNode(p)
	return r.patchNode(ctx, n, p)
}

// live is the node as the API server has it: after a control-plane node moved,
// the cache may lag by as long as it takes to notice a dead connection, and a
// write that is based on it would be refused until then.
func (r *Reconciler) live(ctx context.Context, name string) (*corev1.Node, error) {
	n := &corev1.Node{}
	return n, r.Live.Get(ctx, client.ObjectKey{Name: name}, n)
}

// patchNode fails if the node is not as it was seen: then it is looked at again.
func (r *Reconciler) patchNode(ctx context.Context, old, changed *corev1.Node) error {
	err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1alpha1.FieldOwnerController))
	if err == nil {
		r.Roster.Node(changed, r.Now())
	}
	return err
}

// permit tells a drained node to run its share of the plan.
func (r *Reconciler) permit(ctx context.Context, u *v1alpha1.ClusterUpdate, plan model.Plan, a rollout.Action) error {
	run := v1alpha1.NodeRun{Name: u.Name, UID: string(u.UID), Bundle: u.Spec.Bundle, PlanDigest: u.Status.PlanDigest, Attempt: a.Attempt}
	for _, np := range plan.Nodes {
		if np.Node != a.Node {
			continue
		}
		for _, s := range np.Steps {
			if s.By == model.ByAgent {
				run.Steps = append(run.Steps, v1alpha1.UpdateStep{ID: s.ID, Updater: s.Updater, Verb: s.Verb, From: s.From, To: s.To, Params: s.Params, DeadlineSeconds: s.DeadlineSeconds})
			}
		}
	}
	return r.writeRun(ctx, a.Node, &run)
}

func (r *Reconciler) writeRun(ctx context.Context, node string, run *v1alpha1.NodeRun) error {
	return ssa.Spec(ctx, r.Client, FieldOwnerRun, ssa.Object{Kind: "NodeUpdate", Namespace: v1alpha1.NodesNamespace, Name: node}, &v1alpha1.NodeUpdateSpec{Run: run})
}

// releaseOrphans gives back the nodes of updates that were deleted: a node that
// runs its steps finishes first, one that is not Ready stays cordoned.
func (r *Reconciler) releaseOrphans(ctx context.Context, w *world) error {
	alive := map[string]bool{}
	for i := range w.moves {
		alive[string(w.moves[i].UID)] = true
	}
	var errs []error
	for _, n := range w.nodes {
		nu := w.updates[n.Name]
		m := markOf(n)
		if nu != nil && nu.Spec.Run != nil && !alive[nu.Spec.Run.UID] {
			if unfinished(nu) {
				continue
			}
			errs = append(errs, r.writeRun(ctx, n.Name, nil))
		}
		if m != nil && !alive[m.uid] && ready(n) {
			errs = append(errs, r.uncordon(ctx, n))
		}
	}
	return errors.Join(errs...)
}

// unfinished reports whether a node has begun the steps it was permitted.
func unfinished(nu *v1alpha1.NodeUpdate) bool {
	s := nu.Status.Run
	return s != nil && s.UID == nu.Spec.Run.UID && s.Attempt == nu.Spec.Run.Attempt && s.State == v1alpha1.RunRunning
}

func (r *Reconciler) event(u *v1alpha1.ClusterUpdate, n *corev1.Node, kind, reason, action, note string) {
	if n == nil {
		r.Events.Eventf(u, nil, kind, reason, action, "%s", note)
		return
	}
	r.Events.Eventf(u, n, kind, reason, action, "%s", note)
	r.Events.Eventf(n, u, kind, reason, action, "%s", note) // for whoever looks at the node
}
