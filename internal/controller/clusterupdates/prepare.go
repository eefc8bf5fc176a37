package clusterupdates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// prepare plans an update that has not started, asks the gate, and starts it if
// it may. other is the name of another update that has started.
func (r *Reconciler) prepare(ctx context.Context, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, other string) (started bool, err error) {
	st := r.newStatus(w, u)
	h, err := w.header(u.Spec.Bundle)
	if err != nil {
		st.verdicts = []model.Verdict{w.noHeader(u, err)}
		st.phase(pick(st.verdicts[0].Waiting, v1alpha1.PhasePlanning, v1alpha1.PhaseBlocked))
		return false, r.write(ctx, st)
	}
	in, err := r.planInput(ctx, w, u, h)
	if err != nil {
		return false, err
	}
	nodes, err := r.planNodes(ctx, w, &in)
	if err != nil {
		return false, err
	}
	made := r.maker.Make(string(u.UID), in, nodes)
	if err := r.notePlan(ctx, st, h, made); err != nil {
		return false, err
	}
	look := r.outlook(w, made.Plan)
	gin, err := r.gateInput(ctx, w, u, h, made, other, look.Pools)
	if err != nil {
		return false, err
	}
	res := r.askingFor(u.UID).decide(gin)
	st.verdicts, st.warnings, st.gate = res.Verdicts, res.Warnings, &res
	gatefacts.Answers(u, res, &st.out)
	foreseen, err := r.foresee(ctx, w, look)
	if err != nil {
		return false, err
	}
	st.verdicts = append(st.verdicts, rollout.Spent(look)...)
	st.warnings = slices.Concat(st.warnings, foreseen, clusterresources.Foreseen(st.resources))
	if err := r.beside(ctx, st, h, made); err != nil {
		return false, err
	}
	started = st.setPhase(u, made.NothingToDo() && clusterresources.Idle(h, st.resources))
	if err := r.write(ctx, st); err != nil {
		return false, err
	}
	if started {
		r.remember(u.UID)
	}
	return started, nil
}

// beside says what is not known yet of the bundle's resources, and what of the
// NodeConfigs is not in the plan. What a person wants of an update without a bundle is
// all of them, so there it must not start.
func (r *Reconciler) beside(ctx context.Context, st *status, h *bundle.Header, made *plans.Made) error {
	if v := clusterresources.NotCompared(h, st.resources); v != nil {
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

// foresee says what will not be smooth about a plan, before it starts.
func (r *Reconciler) foresee(ctx context.Context, w *rolloutSnapshot, in rollout.Input) ([]model.Verdict, error) {
	if err := r.observeControlPlane(ctx, w, &in, controlPlanesOf(in.Plan)); err != nil {
		return nil, err
	}
	return forecast.Foresee(in), nil
}

// setPhase says in which phase an update is that has not moved yet. It starts here,
// by being written down.
func (s *status) setPhase(u *v1alpha1.ClusterUpdate, nothingToDo bool) (started bool) {
	switch {
	case model.Blocked(s.verdicts):
		s.phase(v1alpha1.PhaseBlocked)
	case len(s.verdicts) > 0:
		s.phase(v1alpha1.PhasePreparing)
	case nothingToDo:
		s.finish(v1alpha1.ReasonNothingToDo)
	case u.Spec.Start != v1alpha1.StartImmediate:
		s.phase(v1alpha1.PhaseReady)
		s.verdicts = []model.Verdict{{Reason: v1alpha1.ReasonAwaitingStart, Message: "every check passes; a person starts it",
			Fix: "`refit apply` (set spec.start to Immediate and spec.planDigest to " + s.out.PlanDigest + ")"}}
	default:
		s.phase(v1alpha1.PhaseUpdating)
		now := metav1.NewTime(s.now)
		s.out.StartedAt = &now
		return true
	}
	return false
}

// notePlan stores the plan and names it in the status.
func (r *Reconciler) notePlan(ctx context.Context, st *status, h *bundle.Header, made *plans.Made) error {
	name, err := r.Plans.Write(ctx, made.Plan, made.Digest)
	if err != nil {
		return err
	}
	st.out.Plan, st.out.PlanDigest, st.out.Version = name, made.Digest, cmp.Or(h.Metadata.Version, theirConfiguration)
	st.out.NodesTotal, st.out.NodesDone, st.out.NodesFailed = int32(len(made.Plan.Nodes)), 0, 0
	st.out.Progress = fmt.Sprintf("0/%d", len(made.Plan.Nodes))
	return nil
}

// theirConfiguration is the target of an update without a bundle, in words.
const theirConfiguration = "their configuration"

// noHeader says why nothing is known of the bundle.
func (w *rolloutSnapshot) noHeader(u *v1alpha1.ClusterUpdate, err error) model.Verdict {
	d := u.Spec.Bundle
	b := w.bundle(d)
	v := model.Verdict{Reason: v1alpha1.ReasonCopying, Object: "Bundle/" + d, Waiting: true, Message: "no node has read bundle " + d + " yet"}
	switch {
	case b == nil:
		v.Reason, v.Waiting = v1alpha1.ReasonBundleNotFound, false
		v.Message = "there is no Bundle with the digest " + d
		v.Fix = "plug in the medium, and approve it: make a Bundle with that spec.digest"
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

// bundle finds the object that stands for a digest; an approved one is preferred.
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

func notApproved(b *v1alpha1.Bundle) *model.Verdict {
	v := &model.Verdict{Reason: v1alpha1.ReasonBundleNotApproved, Message: "Bundle " + b.Name + " is not approved",
		Fix: "put its digest into spec.digest of Bundle " + b.Name, Object: "Bundle/" + b.Name}
	if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionApproved); c != nil && (c.Reason == v1alpha1.ReasonBundleRevoked || c.Reason == v1alpha1.ReasonSignaturesRequired) {
		v.Reason, v.Message, v.Fix = c.Reason, c.Message, "bring another bundle, or see what the Bundle says (refit explain "+c.Reason+")"
	} else if b.Spec.Digest != "" && (c == nil || c.ObservedGeneration < b.Generation) {
		v.Waiting = true // a person has just approved it, and that was not looked at yet
	}
	return v
}

// gateInput gathers what the gate looks at.
func (r *Reconciler) gateInput(ctx context.Context, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, h *bundle.Header, out *plans.Made, other string, pools map[string]rollout.Pool) (gate.Input, error) {
	in := gate.Input{Now: w.now, Bundle: u.Spec.Bundle, PlanVerdicts: out.Verdicts, PlanWarnings: out.Warnings,
		PlanDigest: out.Digest, ApprovedPlan: u.Spec.PlanDigest, Running: other}
	if in.Approved = u.Spec.Bundle == ""; in.Approved {
		// the nodes' configurations are approved by the plan's digest
	} else if b := w.bundle(u.Spec.Bundle); b != nil {
		in.Approved = meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionApproved)
		if !in.Approved {
			in.Approval = notApproved(b)
		}
	}
	a := r.askingFor(u.UID)
	var err error
	if in.Nodes, err = r.gateNodes(ctx, w, h, out, a); err != nil {
		return in, err
	}
	budgets := map[string]int{}
	for name, pool := range pools {
		budgets[name] = pool.Budget
	}
	r.Gate.Fill(ctx, gatefacts.World{Now: w.now, Nodes: w.nodes, Moves: a.moves, Budgets: budgets}, u, &in)
	return in, nil
}
