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

// status builds the next status of a ClusterUpdate.
type status struct {
	u        *v1alpha1.ClusterUpdate
	now      time.Time
	nodes    int // of the cluster
	out      v1alpha1.ClusterUpdateStatus
	verdicts []model.Blocker
	warnings []model.Blocker
	gate     *gate.Result
	// resources is status.resources, which controller/clusterresources writes.
	resources *v1alpha1.ResourcesStatus
	// doneReason of an update that is finished.
	doneReason string
}

func (r *Reconciler) newStatus(w *rolloutSnapshot, u *v1alpha1.ClusterUpdate) *status {
	resources := u.Status.Resources
	u.Status.Resources = nil     // controller/clusterresources owns this field
	u.Status.Notifications = nil // controller/notifications owns this one
	return &status{u: u, now: w.now, nodes: len(w.nodes), resources: resources, out: *u.Status.DeepCopy()}
}

// phase enters a phase; entering the current one changes nothing.
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

// estimate sets when the update is expected to be done, unless it does not progress.
func (s *status) estimate(in rollout.Input, d rollout.Decision) {
	old := s.out.Estimate
	s.out.Estimate = nil
	eta, ok := forecast.Estimate(in, d.Stages)
	if !ok || d.Halted || d.Finished || in.Paused {
		return
	}
	if old != nil {
		eta = forecast.KeepSteady(forecast.ETA{Earliest: old.Earliest.Time, Latest: old.Latest.Time, Samples: int(old.Samples)}, eta, s.now)
	}
	s.out.Estimate = &v1alpha1.Estimate{Earliest: metav1.NewTime(eta.Earliest.Truncate(time.Second)), Latest: metav1.NewTime(eta.Latest.Truncate(time.Second)), Samples: int32(eta.Samples)}
}

// genericReasons are listed after the specific reasons that explain them.
var genericReasons = map[string]bool{v1alpha1.ReasonDraining: true, v1alpha1.ReasonUpdating: true, v1alpha1.ReasonSettling: true, v1alpha1.ReasonHalted: true,
	v1alpha1.ReasonSoaking: true, v1alpha1.ReasonUndoing: true}

// rank orders verdicts: first what a person must do, then what refit waits for, then what is in
// progress.
func rank(v model.Blocker) int {
	switch {
	case genericReasons[v.Reason]:
		return 2
	case v.Waiting:
		return 1
	}
	return 0
}

// cutMessage shortens a message in its middle: node and step are at the start, and the cause is
// at the end, as in the output of a failed program.
func cutMessage(s string) string { return text.TruncateMiddle(s, maxMessage/2, maxMessage, " ... ") }

// blockers converts the first verdicts to blockers and keeps since when each has existed.
func blockers(vs []model.Blocker, before []v1alpha1.Blocker, now time.Time) []v1alpha1.Blocker {
	var out []v1alpha1.Blocker
	for _, v := range firstByRank(vs, maxBlockers) {
		b := v1alpha1.Blocker{Reason: v.Reason, Message: cutMessage(v.Message), Fix: text.Truncate(v.Fix, maxMessage), Object: v.Object, Waiting: v.Waiting, Since: metaNow(now)}
		for _, old := range before {
			if old.Reason == b.Reason && old.Object == b.Object && old.Since != nil {
				b.Since = old.Since
			}
		}
		out = append(out, b)
	}
	return out
}

// firstByRank returns the first n verdicts by rank, without sorting tens of thousands of them.
func firstByRank(vs []model.Blocker, n int) []model.Blocker {
	var ranks [3][]model.Blocker
	for i := range vs {
		if k := rank(vs[i]); len(ranks[k]) < n {
			ranks[k] = append(ranks[k], vs[i])
		}
	}
	all := slices.Concat(ranks[:]...)
	return all[:min(len(all), n)]
}

// write completes the status and writes it if it changed.
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
	if equality.Semantic.DeepEqual(s.u.Status, s.out) || s.nodes > 0 && onlyProgressDiffers(&s.u.Status, &s.out) && !r.slow.TakeDue("status of "+string(s.u.UID), s.nodes, s.now) {
		return nil
	}
	if err := ssa.Status(ctx, r.Client, ssa.Object{Kind: "ClusterUpdate", Name: s.u.Name, UID: string(s.u.UID)}, &s.out); err != nil {
		return err
	}
	if s.u.Status.Phase != s.out.Phase {
		log.FromContext(ctx).Info("phase", "update", s.u.Name, "from", s.u.Status.Phase, "to", s.out.Phase, "waitingFor", s.out.WaitingFor)
		r.phaseEvent(s)
	}
	s.u.Status = s.out
	return nil
}

// onlyProgressDiffers reports whether two statuses differ only in numbers, names and messages,
// which change in every reconcile of a large cluster. Phases, conditions and failures are
// written at once.
func onlyProgressDiffers(a, b *v1alpha1.ClusterUpdateStatus) bool {
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

// conditions sets Planned, GateOpen, Ready, Reconciling and Stalled.
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
		return s.doneReason, "every node has pinned what it needs, and none has to change"
	case s.out.Phase == v1alpha1.PhaseDone:
		return v1alpha1.ReasonUpdated, text.Count(int(s.out.NodesDone), "node") + " observed at the target"
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

// writePools writes the status of every pool.
func (r *Reconciler) writePools(ctx context.Context, w *rolloutSnapshot) error {
	if !r.slow.TakeDue("pools", len(w.nodes), w.now) {
		return nil
	}
	return writePoolStatuses(ctx, r.Client, poolCounter{Now: w.now, Pools: w.pools, Nodes: w.nodes, Reports: w.reports, PoolsOf: r.poolIndex.poolsByNode(w), Target: w.target()})
}

// target returns the Kubernetes version of the update that moves nodes, or else of the last
// one.
func (w *rolloutSnapshot) target() string {
	var digest string
	for i := range w.moves {
		if w.moves[i].Status.StartedAt != nil && w.moves[i].Spec.Bundle != "" {
			digest = w.moves[i].HopBundle()
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
