package clusterupdates

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/text"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refit-dev/refit/api/v1alpha1"

	"github.com/refit-dev/refit/internal/controller/ssa"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/gate"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
	"github.com/refit-dev/refit/internal/pipeline/rollout/forecast"
)

const (
	maxBlockers = 20
	maxPhases   = 20
	maxCurrent  = 100
	maxMessage  = 1024
)

// status is the status of a ClusterUpdate in the making.
type status struct {
	u        *v1alpha1.ClusterUpdate
	now      time.Time
	nodes    int // of the cluster
	out      v1alpha1.ClusterUpdateStatus
	verdicts []model.Verdict
	warnings []model.Verdict
	gate     *gate.Result
	// resources is what is said of the bundle's resources, by another.
	resources *v1alpha1.ResourcesStatus
	// doneReason of an update that is finished.
	doneReason string
}

func (r *Reconciler) newStatus(w *rolloutSnapshot, u *v1alpha1.ClusterUpdate) *status {
	said := u.Status.Resources
	u.Status.Resources = nil // written by another, under its own name
	return &status{u: u, now: w.now, nodes: len(w.nodes), resources: said, out: *u.Status.DeepCopy()}
}

// phase enters a phase; staying in one changes nothing.
func (s *status) phase(p string) {
	if s.out.Phase == p {
		return
	}
	s.out.Phase = p
	s.out.Phases = append(s.out.Phases, v1alpha1.PhaseTime{Phase: p, StartedAt: metav1.NewTime(s.now)})
	if n := len(s.out.Phases); n > maxPhases {
		s.out.Phases = s.out.Phases[n-maxPhases:]
	}
}

func (s *status) finish(reason string) {
	s.phase(v1alpha1.PhaseDone)
	s.doneReason = reason
	s.verdicts, s.out.Estimate, s.out.External = nil, nil, nil
	if s.out.FinishedAt == nil {
		s.out.FinishedAt = metaNow(s.now)
	}
}

func (s *status) progress(d rollout.Decision) {
	s.out.NodesDone, s.out.NodesTotal, s.out.NodesFailed = int32(d.Done), int32(d.Total), int32(d.Failed)
	s.out.Progress = fmt.Sprintf("%d/%d", d.Done, d.Total)
	s.out.Current = d.Current[:min(len(d.Current), maxCurrent)]
}

// estimate says when the update will be done, unless it stands still.
func (s *status) estimate(in rollout.Input, d rollout.Decision) {
	old := s.out.Estimate
	s.out.Estimate = nil
	eta, ok := forecast.Estimate(in, d.Stages)
	if !ok || d.Halted || d.Finished || in.Paused {
		return
	}
	if old != nil {
		eta = forecast.Steady(forecast.ETA{Earliest: old.Earliest.Time, Latest: old.Latest.Time, Samples: int(old.Samples)}, eta, s.now)
	}
	s.out.Estimate = &v1alpha1.Estimate{Earliest: metav1.NewTime(eta.Earliest.Truncate(time.Second)), Latest: metav1.NewTime(eta.Latest.Truncate(time.Second)), Samples: int32(eta.Samples)}
}

// generic reasons come after the specific ones that explain them.
var generic = map[string]bool{v1alpha1.ReasonDraining: true, v1alpha1.ReasonUpdating: true, v1alpha1.ReasonSettling: true, v1alpha1.ReasonHalted: true,
	v1alpha1.ReasonSoaking: true, v1alpha1.ReasonUndoing: true}

// rank: what a person must do first, then what is waited for, then what is busy.
func rank(v model.Verdict) int {
	switch {
	case generic[v.Reason]:
		return 2
	case v.Waiting:
		return 1
	}
	return 0
}

// cutMessage keeps both ends of a message: which node and step it is about stands first,
// and the cause last, as in the output of a program that failed.
func cutMessage(s string) string { return text.TruncateMiddle(s, maxMessage/2, maxMessage, " ... ") }

// blockers turns verdicts into the first of the list, keeping since when each
// has been there.
func blockers(vs []model.Verdict, before []v1alpha1.Blocker, now time.Time) []v1alpha1.Blocker {
	var out []v1alpha1.Blocker
	for _, v := range first(vs, maxBlockers) {
		b := v1alpha1.Blocker{Reason: v.Reason, Message: cutMessage(v.Message), Fix: text.Truncate(v.Fix, maxMessage), Object: v.Object, Since: metaNow(now)}
		for _, old := range before {
			if old.Reason == b.Reason && old.Object == b.Object && old.Since != nil {
				b.Since = old.Since
			}
		}
		out = append(out, b)
	}
	return out
}

// first are the first of verdicts by their rank, in their order: of tens of
// thousands nobody sorts all.
func first(vs []model.Verdict, n int) []model.Verdict {
	var ranks [3][]model.Verdict
	for i := range vs {
		if k := rank(vs[i]); len(ranks[k]) < n {
			ranks[k] = append(ranks[k], vs[i])
		}
	}
	all := slices.Concat(ranks[:]...)
	return all[:min(len(all), n)]
}

// write completes the status and writes it if it differs.
func (r *Reconciler) write(ctx context.Context, s *status) error {
	s.out.ObservedGeneration = s.u.Generation
	s.out.Blockers = blockers(s.verdicts, s.u.Status.Blockers, s.now)
	s.out.BlockerCount = int32(len(s.verdicts))
	if s.gate != nil || s.out.Phase == v1alpha1.PhaseDone {
		s.out.Warnings = blockers(s.warnings, s.u.Status.Warnings, s.now)
	}
	s.out.WaitingFor = ""
	if len(s.out.Blockers) > 0 {
		s.out.WaitingFor = s.out.Blockers[0].Message
	}
	s.conditions()
	if equality.Semantic.DeepEqual(s.u.Status, s.out) || s.nodes > 0 && mereProgress(&s.u.Status, &s.out) && !r.slow.TakeDue("status of "+string(s.u.UID), s.nodes, s.now) {
		return nil
	}
	if err := ssa.Status(ctx, r.Client, ssa.Object{Kind: "ClusterUpdate", Name: s.u.Name, UID: string(s.u.UID)}, &s.out); err != nil {
		return err
	}
	if s.u.Status.Phase != s.out.Phase {
		log.FromContext(ctx).Info("phase", "update", s.u.Name, "from", s.u.Status.Phase, "to", s.out.Phase, "because", s.out.WaitingFor)
		r.phaseEvent(s)
	}
	s.u.Status = s.out
	return nil
}

// mereProgress reports whether two statuses differ in numbers, names and
// sentences alone, which change at every look in a large cluster. What a person
// must know at once is a phase, a condition, a failure.
func mereProgress(a, b *v1alpha1.ClusterUpdateStatus) bool {
	x, y := *a, *b
	for _, s := range []*v1alpha1.ClusterUpdateStatus{&x, &y} {
		s.NodesDone, s.Progress, s.Current, s.Estimate, s.WaitingFor, s.Blockers, s.BlockerCount, s.Warnings, s.Drains = 0, "", nil, nil, "", nil, 0, nil, nil
		s.Checks = nil
		s.Conditions = slices.Clone(s.Conditions)
		for i := range s.Conditions {
			s.Conditions[i].Message, s.Conditions[i].Reason = "", ""
		}
	}
	return equality.Semantic.DeepEqual(x, y)
}

func (r *Reconciler) phaseEvent(s *status) {
	kind := corev1.EventTypeNormal
	if s.out.Phase == v1alpha1.PhaseBlocked || s.out.Phase == v1alpha1.PhaseHalted {
		kind = corev1.EventTypeWarning
	}
	c := meta.FindStatusCondition(s.out.Conditions, v1alpha1.ConditionReady)
	r.event(s.u, nil, kind, c.Reason, s.out.Phase, s.out.Phase+": "+c.Message)
}

// conditions: Planned, GateOpen, Ready and the pair Reconciling, Stalled.
func (s *status) conditions() {
	reason, message := s.headline()
	s.setCondition(v1alpha1.ConditionPlanned, s.out.PlanDigest != "", pick(s.out.PlanDigest != "", v1alpha1.ReasonAsExpected, reason), pick(s.out.PlanDigest != "", "plan "+s.out.PlanDigest, message))
	if s.gate != nil {
		open := s.gate.Open()
		s.setCondition(v1alpha1.ConditionGateOpen, open, pick(open, v1alpha1.ReasonAsExpected, reason), pick(open, "every check passes", "closed by: "+strings.Join(s.gate.Closed, ", ")))
	}
	p := s.out.Phase
	s.setCondition(v1alpha1.ConditionReady, p == v1alpha1.PhaseDone, reason, message)
	s.setCondition(v1alpha1.ConditionReconciling, p == v1alpha1.PhasePlanning || p == v1alpha1.PhasePreparing || p == v1alpha1.PhaseUpdating, reason, message)
	s.setCondition(v1alpha1.ConditionStalled, p == v1alpha1.PhaseBlocked || p == v1alpha1.PhaseHalted, reason, message)
}

func (s *status) headline() (reason, message string) {
	switch {
	case s.out.Phase == v1alpha1.PhaseDone && s.doneReason == v1alpha1.ReasonNothingToDo:
		return s.doneReason, "every node holds the bundle, and none has to change"
	case s.out.Phase == v1alpha1.PhaseDone:
		return v1alpha1.ReasonUpdated, fmt.Sprintf("%d nodes were observed at the target", s.out.NodesDone)
	case len(s.out.Blockers) > 0:
		return s.out.Blockers[0].Reason, s.out.Blockers[0].Message
	}
	return v1alpha1.ReasonUpdating, fmt.Sprintf("%d of %d nodes are done", s.out.NodesDone, s.out.NodesTotal)
}

func (s *status) setCondition(kind string, ok bool, reason, message string) {
	st := metav1.ConditionFalse
	if ok {
		st = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&s.out.Conditions, metav1.Condition{Type: kind, Status: st, ObservedGeneration: s.u.Generation, Reason: reason, Message: cutMessage(message)})
}

func pick(cond bool, a, b string) string {
	if cond {
		return a
	}
	return b
}

// writePools counts the nodes of every pool.
func (r *Reconciler) writePools(ctx context.Context, w *rolloutSnapshot) error {
	if !r.slow.TakeDue("pools", len(w.nodes), w.now) {
		return nil
	}
	return writePoolStatuses(ctx, r.Client, poolCounter{Now: w.now, Pools: w.pools, Nodes: w.nodes, PoolsOf: r.census.poolsByNode(w), Target: w.target()})
}

// target is the Kubernetes version of the update that moves nodes, else of the
// last one.
func (w *rolloutSnapshot) target() string {
	var digest string
	for i := range w.moves {
		if w.moves[i].Status.StartedAt != nil && w.moves[i].Spec.Bundle != "" {
			digest = w.moves[i].Spec.Bundle
			if w.moves[i].Status.Phase != v1alpha1.PhaseDone {
				break
			}
		}
	}
	if b := w.bundle(digest); b != nil && digest != "" {
		return b.Status.KubernetesVersion
	}
	return ""
}
