package clusterupdates

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/bundlefiles"
	"github.com/refit-dev/refit/internal/controller/clusterresources"
	"github.com/refit-dev/refit/internal/controller/gatefacts"
	"github.com/refit-dev/refit/internal/controller/nodeconfigs"
	"github.com/refit-dev/refit/internal/controller/plans"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/gate"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
	"github.com/refit-dev/refit/internal/pipeline/rollout/forecast"
)

// prepare plans an update that has not started, evaluates the gate, and starts the update if
// the gate is open. other is the name of another update that has started.
func (r *Reconciler) prepare(ctx context.Context, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, other string) (started bool, err error) {
	st := r.newStatus(w, u)
	headers, unread, err := w.headersOf(u)
	if err != nil {
		return false, r.prepareLater(ctx, w, st, unread, err)
	}
	in, err := r.planInput(ctx, w, u, headers)
	if err != nil {
		return false, err
	}
	nodes, err := r.planNodes(ctx, w, &in)
	if err != nil {
		return false, err
	}
	made := r.maker.Make(string(u.UID), in, nodes)
	if err := r.storePlan(ctx, st, headers, made); err != nil {
		return false, err
	}
	rollIn := r.newRolloutInput(w, made.Plan)
	gateIn, err := r.gateInput(ctx, w, st, headers, made, other, rollIn.Pools)
	if err != nil {
		return false, err
	}
	res := r.gateIndexFor(u.UID).decide(gateIn)
	st.verdicts = slices.Concat(st.verdicts, betweenHops(u), unfitHops(headers), res.Blockers)
	st.warnings, st.gate = res.Warnings, &res
	gatefacts.Answers(u, res, &st.out)
	predicted, err := r.predictProblems(ctx, w, rollIn)
	if err != nil {
		return false, err
	}
	st.verdicts = append(st.verdicts, rollout.ExhaustedBudgets(rollIn)...)
	st.warnings = slices.Concat(st.warnings, predicted, clusterresources.PredictProblems(st.resources))
	last := headers[len(headers)-1]
	if err := r.addUnplanned(ctx, st, last, made); err != nil {
		return false, err
	}
	started = st.setPhase(u, made.NothingToDo() && clusterresources.Idle(last, st.resources))
	run := u.RunUID()
	if err := r.write(ctx, st); err != nil {
		return false, err
	}
	if started {
		r.rememberStarted(types.UID(run))
	}
	return started, nil
}

// prepareLater writes the status of an update with a bundle that has no header, by the error of reading
// it. A controller that has just started reads it again: the status of a planned update stays until then.
func (r *Reconciler) prepareLater(ctx context.Context, w *rolloutSnapshot, st *status, digest string, err error) error {
	if errors.Is(err, bundlefiles.ErrPending) && st.u.Status.Plan != "" && st.u.Status.ObservedGeneration == st.u.Generation {
		return nil
	}
	st.verdicts = []model.Blocker{w.noHeader(digest, err)}
	st.phase(pick(st.verdicts[0].Waiting, v1alpha1.PhasePlanning, v1alpha1.PhaseBlocked))
	return r.write(ctx, st)
}

// addUnplanned adds verdicts about what the plan does not contain: bundle resources that were
// not compared yet, and NodeConfigs that no node can apply. An update without a bundle exists
// to apply the NodeConfigs, so there a refused one keeps it from starting.
func (r *Reconciler) addUnplanned(ctx context.Context, st *status, h *bundle.Header, made *plans.Plan) error {
	if v := clusterresources.PendingComparison(h, st.resources); v != nil {
		st.verdicts = append(st.verdicts, *v)
	}
	alone := st.u.Spec.Bundle == ""
	waits, refused, err := nodeconfigs.Missing(ctx, r.Client, alone && made.NothingToDo() && len(made.Warnings) == 0 && len(st.u.Spec.Nodes) == 0)
	if err != nil {
		return err
	}
	st.verdicts = append(st.verdicts, waits...)
	if alone {
		st.verdicts = append(st.verdicts, refused...)
	} else {
		st.warnings = append(st.warnings, refused...)
	}
	return nil
}

// predictProblems returns warnings about what will delay or stop a plan's rollout.
func (r *Reconciler) predictProblems(ctx context.Context, w *rolloutSnapshot, in rollout.Input) ([]model.Blocker, error) {
	if err := r.observeControlPlane(ctx, w, &in, controlPlanesOf(in.Plan)); err != nil {
		return nil, err
	}
	return forecast.Predict(in), nil
}

// setPhase sets the phase of an update that has not moved a node yet. The update starts when
// StartedAt is written.
func (s *status) setPhase(u *v1alpha1.ClusterUpdate, nothingToDo bool) (started bool) {
	switch {
	case model.NeedsPerson(s.verdicts):
		s.phase(v1alpha1.PhaseBlocked)
	case len(s.verdicts) > 0:
		s.phase(v1alpha1.PhasePreparing)
	case nothingToDo && !u.BetweenHops():
		s.finish(v1alpha1.ReasonNothingToDo)
	case u.Spec.Start != v1alpha1.StartImmediate:
		s.phase(v1alpha1.PhaseReady)
		s.verdicts = []model.Blocker{{Reason: v1alpha1.ReasonAwaitingStart, Message: "every check passes; waiting for a person to start it",
			Fix: "`refit apply` (set spec.start to Immediate and spec.planDigest to " + s.out.PlanDigest + ")"}}
	default:
		s.phase(v1alpha1.PhaseUpdating)
		s.startHop()
		return true
	}
	return false
}

// nodeConfigTarget is the target shown for an update without a bundle.
const nodeConfigTarget = "their configuration"

// noHeader returns why the bundle's header is not available.
func (w *rolloutSnapshot) noHeader(d string, err error) model.Blocker {
	b := w.bundle(d)
	v := model.Blocker{Reason: v1alpha1.ReasonCopying, Object: "Bundle/" + d, Waiting: true, Message: "no node has read bundle " + d + " yet"}
	switch {
	case b == nil:
		v.Reason, v.Waiting = v1alpha1.ReasonBundleNotFound, false
		v.Message = "there is no Bundle with the digest " + d
		v.Fix = "plug in the medium and approve it: create a Bundle with that spec.digest"
	case !meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionApproved):
		return *notApproved(b)
	case !errors.Is(err, bundlefiles.ErrPending) && !errors.Is(err, bundlefiles.ErrNoSource):
		v.Message = "the header of bundle " + d + " cannot be fetched: " + err.Error()
	default:
		if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady); c != nil && c.Status != metav1.ConditionTrue {
			v.Reason, v.Message = c.Reason, c.Message
		}
	}
	return v
}

// bundle finds the Bundle object of a digest, preferably an approved one.
func (w *rolloutSnapshot) bundle(digest string) *v1alpha1.Bundle {
	var found *v1alpha1.Bundle
	for i := range w.bundles {
		b := &w.bundles[i]
		if b.Spec.Digest == digest {
			return b
		}
		if b.Spec.Digest == "" && (b.Status.Digest == digest || b.Annotations[v1alpha1.AnnotationFoundDigest] == digest) {
			found = b
		}
	}
	return found
}

func notApproved(b *v1alpha1.Bundle) *model.Blocker {
	v := &model.Blocker{Reason: v1alpha1.ReasonBundleNotApproved, Message: "Bundle " + b.Name + " is not approved",
		Fix: "put its digest into spec.digest of Bundle " + b.Name, Object: "Bundle/" + b.Name}
	if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionApproved); c != nil && (c.Reason == v1alpha1.ReasonBundleRevoked || c.Reason == v1alpha1.ReasonSignaturesRequired) {
		v.Reason, v.Message, v.Fix = c.Reason, c.Message, "use another bundle, or read why with refit explain "+c.Reason
	} else if b.Spec.Digest != "" && (c == nil || c.ObservedGeneration < b.Generation) {
		v.Waiting = true // approved a moment ago; the condition does not show it yet
	}
	return v
}

// gateInput gathers the gate's input.
func (r *Reconciler) gateInput(ctx context.Context, w *rolloutSnapshot, st *status, headers []*bundle.Header, out *plans.Plan, other string, pools map[string]rollout.Pool) (gate.Input, error) {
	u := st.u
	in := gate.Input{Now: w.now, Bundle: u.Spec.Bundle, PlanBlockers: out.Blockers, PlanWarnings: out.Warnings,
		PlanDigest: st.out.PlanDigest, ApprovedPlan: u.Spec.PlanDigest, Running: other}
	w.addApproval(u, &in)
	a := r.gateIndexFor(u.UID)
	var err error
	if in.Nodes, err = r.gateNodes(ctx, w, u, headers, out, a); err != nil {
		return in, err
	}
	budgets := map[string]int{}
	for name, pool := range pools {
		budgets[name] = pool.Budget
	}
	r.Gate.Fill(ctx, gatefacts.Snapshot{Now: w.now, Nodes: w.nodes, Moves: a.moves, Pools: w.pools, Budgets: budgets}, u, &in)
	return in, nil
}

// addApproval adds whether the bundles of all hops that are left are approved.
func (w *rolloutSnapshot) addApproval(u *v1alpha1.ClusterUpdate, in *gate.Input) {
	if in.Approved = true; u.Spec.Bundle == "" {
		return // the plan's digest approves the nodes' configurations
	}
	for _, d := range u.Bundles()[u.Hop():] {
		b := w.bundle(d)
		if b != nil && meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionApproved) {
			continue
		}
		in.Approved, in.Bundle = false, d
		if b != nil {
			in.Approval = notApproved(b)
		}
		return
	}
}
