package clusterupdates

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/text"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/plans"
	"github.com/refit-dev/refit/internal/controller/queue"
	"github.com/refit-dev/refit/internal/controller/ssa"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/drain"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// runActions executes the actions of a rollout decision. Each action is idempotent.
func (r *Reconciler) runActions(ctx context.Context, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, kept *plans.StoredPlan, d rollout.Decision, drains map[string]drain.Decision) ([]model.Blocker, error) {
	verdicts := make([][]model.Blocker, len(d.Actions))
	order := make([]int, len(d.Actions))
	for i := range order {
		order[i] = i
	}
	err := queue.ForEach(ctx, order, func(i int) (err error) {
		verdicts[i], err = r.runAction(ctx, w, u, kept, d.Actions[i], drains)
		return err
	})
	return slices.Concat(verdicts...), err
}

func (r *Reconciler) runAction(ctx context.Context, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, kept *plans.StoredPlan, a rollout.Action, drains map[string]drain.Decision) (verdicts []model.Blocker, err error) {
	n, _ := w.node(a.Node)
	np, planned := kept.ForNode(a.Node)
	if n == nil || !planned {
		return nil, nil
	}
	switch a.Verb {
	case rollout.Stage:
		err = r.stage(ctx, a.Node, updateplan.ConfigToBoot(&np))
	case rollout.Exclude, rollout.Cordon:
		err = r.cordon(ctx, n, rolloutfacts.Mark{UID: u.RunUID(), Attempt: a.Attempt, At: w.now}, u, np, a.Verb)
	case rollout.DrainNode:
		r.emitDataLoss(u, a.Node, drains[a.Node])
		verdicts, err = r.Evictor.Evict(ctx, a.Node, drains[a.Node], u.Spec.Drain)
	case rollout.Permit, rollout.Undo:
		err = r.permit(ctx, u, np, a)
	case rollout.Uncordon, rollout.ReleaseNode:
		err = r.returnNode(ctx, w, u, n, a)
	}
	if err != nil {
		return verdicts, fmt.Errorf("%s node %s: %w", a.Verb, a.Node, err)
	}
	if a.Verb != rollout.DrainNode { // a drain repeats every few seconds
		log.FromContext(ctx).Info(a.Verb, "update", u.Name, "node", a.Node, "attempt", a.Attempt.Number, "try", a.Attempt.Try)
	}
	return verdicts, nil
}

// emitDataLoss emits one event per node that names the pods whose emptyDir data is lost.
func (r *Reconciler) emitDataLoss(u *v1alpha1.ClusterUpdate, node string, d drain.Decision) {
	if lost := d.DataLoss(); len(lost) > 0 && r.isFirstTime(u.RunUID()+" "+node) {
		r.event(u, nil, corev1.EventTypeNormal, v1alpha1.ReasonDraining, "Evict", "node "+node+": emptyDir data is lost with pods "+strings.Join(lost, ", "))
	}
}

// cordon marks a node, and takes it out of load balancers, or cordons it if its plan requires that.
func (r *Reconciler) cordon(ctx context.Context, n *corev1.Node, m rolloutfacts.Mark, u *v1alpha1.ClusterUpdate, np model.NodePlan, verb string) (err error) {
	var first bool
	if verb == rollout.Exclude {
		first, err = r.Cordoner.Exclude(ctx, n, m)
	} else {
		first, err = r.Cordoner.Mark(ctx, n, m, u.Name, hasStep(np, rollout.Cordoned))
	}
	if err == nil && first && !r.large { // a large cluster has one event per node, at the end; the mark shows the start
		r.event(u, n, corev1.EventTypeNormal, v1alpha1.ReasonUpdating, "Cordon", "node "+n.Name+" starts its update"+podsFate(np))
	}
	return err
}

// podsFate returns what an update does to the pods of a node.
func podsFate(np model.NodePlan) string {
	switch {
	case hasStep(np, rollout.Drained):
		return ": it is cordoned and drained"
	case hasStep(np, rollout.Cordoned):
		return ": it is cordoned, its pods stay"
	}
	return ": its pods stay, and new pods may be scheduled"
}

// returnNode makes a node schedulable again: one that is done, with a record of its duration,
// or one whose steps were undone.
func (r *Reconciler) returnNode(ctx context.Context, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, n *corev1.Node, a rollout.Action) error {
	reason, note := v1alpha1.ReasonUpdated, "node "+n.Name+" was observed at its target and is schedulable again"
	var record *rolloutfacts.Record
	if a.Verb == rollout.ReleaseNode {
		reason, note = v1alpha1.ReasonUndone, "node "+n.Name+" was rolled back to its previous state and is schedulable again"
	} else if m := rolloutfacts.MarkOf(n); m != nil && m.UID == u.RunUID() && !m.At.IsZero() {
		record = &rolloutfacts.Record{UID: m.UID, Start: m.At, End: w.now}
	}
	if err := r.Cordoner.Release(ctx, n, record); err != nil {
		return err
	}
	r.event(u, n, corev1.EventTypeNormal, reason, "Uncordon", note)
	return nil
}

// permit writes a drained node's share of the plan to NodeUpdate.spec.run, or the order to undo
// it.
func (r *Reconciler) permit(ctx context.Context, u *v1alpha1.ClusterUpdate, np model.NodePlan, a rollout.Action) error {
	run := v1alpha1.NodeRun{Name: u.Name, UID: u.RunUID(), Bundle: u.HopBundle(), PlanDigest: u.Status.PlanDigest,
		Attempt: a.Attempt.Number, Retry: a.Attempt.Retry, Try: a.Attempt.Try, Undo: a.Verb == rollout.Undo, Cause: text.Truncate(a.UndoReason, maxMessage)}
	for _, s := range np.Steps {
		if s.By == model.ByAgent {
			run.Steps = append(run.Steps, v1alpha1.UpdateStep{ID: s.ID, Updater: s.Updater, Verb: s.Verb, From: s.From, To: s.To, Params: s.Params, DeadlineSeconds: s.DeadlineSeconds})
		}
	}
	return r.writeRun(ctx, a.Node, &run)
}

func (r *Reconciler) writeRun(ctx context.Context, node string, run *v1alpha1.NodeRun) error {
	nu, err := ssa.NodeSpec(ctx, r.Client, FieldOwnerRun, node, &v1alpha1.NodeUpdateSpec{Run: run})
	if err == nil {
		r.NodeIndex.PutUpdate(nu)
	}
	return err
}

// releaseOrphans releases the nodes of deleted updates. A node that runs its steps finishes
// first; a node that is not Ready stays cordoned. The controller removes spec.run before it
// releases the node, and waits until the agent has seen that: until then the agent may start
// the run.
func (r *Reconciler) releaseOrphans(ctx context.Context, w *rolloutSnapshot) error {
	alive := w.runUIDs()
	var errs []error
	r.poolIndex.refresh(w)
	for _, i := range r.poolIndex.orphans(alive) {
		if err := r.releaseOrphan(ctx, w, w.nodes[i], w.reports[i], alive); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (r *Reconciler) releaseOrphan(ctx context.Context, w *rolloutSnapshot, n *corev1.Node, nu *v1alpha1.NodeUpdate, alive map[string]bool) error {
	m := rolloutfacts.MarkOf(n)
	orphan, err := r.isOrphaned(ctx, nu, alive)
	switch {
	case err != nil:
		return err
	case nu != nil && runsForDeleted(nu, alive):
	case orphan:
		return r.writeRun(ctx, n.Name, nil)
	case m != nil && !alive[m.UID] && ready(n) && r.hasSeenRun(nu, w.now):
		return r.Cordoner.Release(ctx, n, nil)
	}
	return nil
}

// isOrphaned reports whether spec.run of a node names an object that was deleted: a
// ClusterUpdate, or an ImageTrack, which updates static pods.
func (r *Reconciler) isOrphaned(ctx context.Context, nu *v1alpha1.NodeUpdate, alive map[string]bool) (bool, error) {
	if nu == nil || nu.Spec.Run == nil || alive[nu.Spec.Run.UID] {
		return false, nil
	}
	name, ofTrack := strings.CutPrefix(nu.Spec.Run.Name, v1alpha1.TrackRun)
	if !ofTrack {
		return true, nil
	}
	err := r.Client.Get(ctx, client.ObjectKey{Name: name}, &v1alpha1.ImageTrack{})
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read ImageTrack %s: %w", name, err)
	}
	return err != nil, nil
}

// runsForDeleted reports whether a node runs the steps of an update that was deleted.
func runsForDeleted(nu *v1alpha1.NodeUpdate, alive map[string]bool) bool {
	s := nu.Status.Run
	return s != nil && s.State == v1alpha1.RunRunning && !alive[s.UID]
}

// hasSeenRun reports whether a node's agent has observed the current spec.run, or cannot act on
// it because it sends no heartbeats.
func (r *Reconciler) hasSeenRun(nu *v1alpha1.NodeUpdate, now time.Time) bool {
	return nu == nil || nu.Status.ObservedGeneration >= nu.Generation || r.heartbeats.Silent(nu, now)
}

func (r *Reconciler) event(u *v1alpha1.ClusterUpdate, n *corev1.Node, kind, reason, action, note string) {
	note = cutMessage(note) // the API server refuses an event whose note is longer
	if n == nil {
		r.Events.Eventf(u, nil, kind, reason, action, "%s", note)
		return
	}
	if kind != corev1.EventTypeNormal || !r.large { // thousands of events on one update help no user
		r.Events.Eventf(u, n, kind, reason, action, "%s", note)
	}
	r.Events.Eventf(n, u, kind, reason, action, "%s", note) // for `kubectl describe node`
}
