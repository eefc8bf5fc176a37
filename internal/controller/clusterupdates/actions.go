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

// act carries out what the rollout decided; each action may be repeated.
func (r *Reconciler) act(ctx context.Context, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, kept *plans.Kept, d rollout.Decision, drains map[string]drain.Decision) ([]model.Verdict, error) {
	verdicts := make([][]model.Verdict, len(d.Actions))
	order := make([]int, len(d.Actions))
	for i := range order {
		order[i] = i
	}
	err := queue.ForEach(ctx, order, func(i int) (err error) {
		verdicts[i], err = r.actOn(ctx, w, u, kept, d.Actions[i], drains)
		return err
	})
	return slices.Concat(verdicts...), err
}

func (r *Reconciler) actOn(ctx context.Context, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, kept *plans.Kept, a rollout.Action, drains map[string]drain.Decision) (verdicts []model.Verdict, err error) {
	n := w.byName[a.Node]
	np, planned := kept.Of(a.Node)
	if n == nil || !planned {
		return nil, nil
	}
	switch a.Verb {
	case rollout.Stage:
		err = r.stage(ctx, a.Node, updateplan.Boots(&np))
	case rollout.Cordon:
		err = r.cordon(ctx, n, rolloutfacts.Mark{UID: string(u.UID), Attempt: a.Attempt, At: w.now}, u, np)
	case rollout.DrainIt:
		r.emitDataLoss(u, a.Node, drains[a.Node])
		verdicts, err = r.Evictor.Evict(ctx, a.Node, drains[a.Node], u.Spec.Drain)
	case rollout.Permit, rollout.Undo:
		err = r.permit(ctx, u, np, a)
	case rollout.Uncordon, rollout.GiveBack:
		err = r.giveBack(ctx, w, u, n, a)
	}
	if err != nil {
		return verdicts, fmt.Errorf("%s node %s: %w", a.Verb, a.Node, err)
	}
	if a.Verb != rollout.DrainIt { // asked again every few seconds
		log.FromContext(ctx).Info(a.Verb, "update", u.Name, "node", a.Node, "attempt", a.Attempt.Number, "try", a.Attempt.Try)
	}
	return verdicts, nil
}

// emitDataLoss says once per node which data goes with the pods.
func (r *Reconciler) emitDataLoss(u *v1alpha1.ClusterUpdate, node string, d drain.Decision) {
	if lost := d.DataLoss(); len(lost) > 0 && r.isFirstTime(string(u.UID)+" "+node) {
		r.event(u, nil, corev1.EventTypeNormal, v1alpha1.ReasonDraining, "Evict", "node "+node+": emptyDir data goes with "+strings.Join(lost, ", "))
	}
}

// cordon marks a node and, if its plan says so, cordons it.
func (r *Reconciler) cordon(ctx context.Context, n *corev1.Node, m rolloutfacts.Mark, u *v1alpha1.ClusterUpdate, np model.NodePlan) error {
	first, err := r.Cordoner.Mark(ctx, n, m, u.Name, has(np, rollout.Cordoned))
	if err == nil && first && !r.large { // in a large cluster the node's mark says so, and the end is the event
		r.event(u, n, corev1.EventTypeNormal, v1alpha1.ReasonUpdating, "Cordon", "node "+n.Name+" is to be updated"+framing(np))
	}
	return err
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

// giveBack lets a node take pods again: one that is done, with a record of how
// long it took, or one that was undone.
func (r *Reconciler) giveBack(ctx context.Context, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, n *corev1.Node, a rollout.Action) error {
	reason, note := v1alpha1.ReasonUpdated, "node "+n.Name+" was observed at its target and takes pods again"
	var record *rolloutfacts.Record
	if a.Verb == rollout.GiveBack {
		reason, note = v1alpha1.ReasonUndone, "node "+n.Name+" was taken back to what it was before and takes pods again"
	} else if m := rolloutfacts.MarkOf(n); m != nil && m.UID == string(u.UID) && !m.At.IsZero() {
		record = &rolloutfacts.Record{UID: m.UID, Start: m.At, End: w.now}
	}
	if err := r.Cordoner.Release(ctx, n, record); err != nil {
		return err
	}
	r.event(u, n, corev1.EventTypeNormal, reason, "Uncordon", note)
	return nil
}

// permit tells a drained node to run its share of the plan, or to take back what
// it has run of it.
func (r *Reconciler) permit(ctx context.Context, u *v1alpha1.ClusterUpdate, np model.NodePlan, a rollout.Action) error {
	run := v1alpha1.NodeRun{Name: u.Name, UID: string(u.UID), Bundle: u.Spec.Bundle, PlanDigest: u.Status.PlanDigest,
		Attempt: a.Attempt.Number, Retry: a.Attempt.Retry, Try: a.Attempt.Try, Undo: a.Verb == rollout.Undo, Cause: text.Truncate(a.Because, maxMessage)}
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
		r.Roster.PutUpdate(nu, r.Now())
	}
	return err
}

// releaseOrphans gives back the nodes of updates that were deleted: a node that
// runs its steps finishes first, one that is not Ready stays cordoned. A
// permission is taken away before the node is given back, and its agent must
// have seen that: until then it may begin.
func (r *Reconciler) releaseOrphans(ctx context.Context, w *rolloutSnapshot) error {
	alive := map[string]bool{}
	for i := range w.moves {
		alive[string(w.moves[i].UID)] = true
	}
	var errs []error
	r.census.refresh(w)
	for _, i := range r.census.orphans(alive) {
		if err := r.releaseOrphan(ctx, w, w.nodes[i], w.reports[i], alive); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (r *Reconciler) releaseOrphan(ctx context.Context, w *rolloutSnapshot, n *corev1.Node, nu *v1alpha1.NodeUpdate, alive map[string]bool) error {
	m := rolloutfacts.MarkOf(n)
	orphan, err := r.orphan(ctx, nu, alive)
	switch {
	case err != nil:
		return err
	case nu != nil && runs(nu, alive):
	case orphan:
		return r.writeRun(ctx, n.Name, nil)
	case m != nil && !alive[m.UID] && ready(n) && r.heeded(nu, w.now):
		return r.Cordoner.Release(ctx, n, nil)
	}
	return nil
}

// orphan reports whether a node is permitted to run for somebody who is no more:
// neither an update nor an ImageTrack, which write static pods.
func (r *Reconciler) orphan(ctx context.Context, nu *v1alpha1.NodeUpdate, alive map[string]bool) (bool, error) {
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

// runs reports whether a node runs steps for an update that is no more.
func runs(nu *v1alpha1.NodeUpdate, alive map[string]bool) bool {
	s := nu.Status.Run
	return s != nil && s.State == v1alpha1.RunRunning && !alive[s.UID]
}

// heeded reports whether a node's agent has seen what it may do now, or is not
// there to do anything.
func (r *Reconciler) heeded(nu *v1alpha1.NodeUpdate, now time.Time) bool {
	return nu == nil || nu.Status.ObservedGeneration >= nu.Generation || r.heartbeats.Silent(nu, now)
}

func (r *Reconciler) event(u *v1alpha1.ClusterUpdate, n *corev1.Node, kind, reason, action, note string) {
	note = cutMessage(note) // the API server refuses an event whose note is longer
	if n == nil {
		r.Events.Eventf(u, nil, kind, reason, action, "%s", note)
		return
	}
	if kind != corev1.EventTypeNormal || !r.large { // nobody reads thousands of events of one update
		r.Events.Eventf(u, n, kind, reason, action, "%s", note)
	}
	r.Events.Eventf(n, u, kind, reason, action, "%s", note) // for whoever looks at the node
}
