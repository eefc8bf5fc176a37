package agent

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/text"
)

func agentVersion() string { return componentversion.Refit() }

// Phases of a NodeUpdate.
const (
	phaseIdle     = "Idle"
	phaseWaiting  = "Waiting"
	phaseCopying  = "Copying"
	phaseLoading  = "Loading"
	phaseReady    = "Ready"
	phaseUpdating = "Updating"
	phaseFailed   = "Failed"
)

// view is the phase, reason and message of the status.
type view struct {
	phase, reason, message string
	// stalled: a person must act. busy: the agent continues by itself.
	stalled, busy bool
	held          bool
	generation    int64
}

// view is called with the mutex held.
func (l *statusLoop) view() view {
	v := l.pinView()
	if l.want != nil {
		v.generation = l.want.Generation
	}
	s := &l.state
	s.mentionReplacedStore(&v)
	for _, x := range []*model.Blocker{s.unreadVerdict, s.serverVerdict, s.runVerdict} {
		v.applyBlocker(x)
	}
	if r := s.run; r != nil && l.want != nil && l.want.Spec.Run != nil && r.UID == l.want.Spec.Run.UID {
		switch r.State {
		case v1alpha1.RunRunning:
			v.phase, v.message, v.busy = phaseUpdating, stepPrefix(r.Step, ": ")+r.Message, true
			v.reason = cmp.Or(r.Reason, v1alpha1.ReasonUpdating)
		case v1alpha1.RunFailed:
			v.phase, v.message, v.stalled = phaseFailed, stepPrefix(r.Step, " failed: ")+r.Message, true
			v.reason = cmp.Or(r.Reason, v1alpha1.ReasonStepFailed)
		case v1alpha1.RunUndone:
			v.message = "the update was undone; " + v.message
		}
	}
	return v
}

// applyBlocker shows a blocker, if there is one.
func (v *view) applyBlocker(x *model.Blocker) {
	if x != nil {
		v.phase, v.reason, v.message, v.stalled, v.busy = phaseWaiting, x.Reason, x.Message, !x.Waiting, x.Waiting
	}
}

// stepPrefix starts a sentence about a step; it is empty for a run that waits between steps.
func stepPrefix(step, then string) string {
	if step == "" {
		return ""
	}
	return "step " + step + then
}

// mentionReplacedStore adds that the node's store is new, until all images are here again.
func (s *state) mentionReplacedStore(v *view) {
	if s.replaced = s.replaced && !v.held; s.replaced {
		v.message = "its store is new (a new disk, or a new installation); " + v.message
	}
}

func (l *statusLoop) pinView() view {
	s := &l.state
	if l.want == nil || l.want.Spec.Pins == "" && len(l.want.Spec.Bundles) == 0 {
		return view{phase: phaseIdle, reason: v1alpha1.ReasonAsExpected, message: "no content or update is assigned to this node"}
	}
	if vs := slices.Concat(s.bundleVerdicts, s.imageVerdicts); len(vs) > 0 {
		return view{phase: phaseWaiting, reason: vs[0].Reason, message: vs[0].Message, stalled: !vs[0].Waiting, busy: vs[0].Waiting}
	}
	h := s.pins
	switch {
	case l.want.Spec.Pins == "":
		return view{phase: phaseIdle, reason: v1alpha1.ReasonAsExpected, message: "a bundle is approved, none of its content is assigned yet"}
	case complete(h) && h.Content == l.want.Spec.Pins:
		return view{phase: phaseReady, reason: v1alpha1.ReasonAsExpected, held: true,
			message: fmt.Sprintf("%s and %s are stored and pinned", text.Count(int(h.ImagesReady), "image"), text.Count(int(h.PayloadsReady), "payload"))}
	case s.copying:
		return view{phase: phaseCopying, reason: v1alpha1.ReasonCopying, busy: true, message: "copying missing blobs of the pin set"}
	}
	return view{phase: phaseLoading, reason: v1alpha1.ReasonLoading, busy: true, message: "loading and pinning images"}
}

func complete(h v1alpha1.PinStatus) bool {
	return h.ImagesPinned == h.ImagesTotal && h.ImagesReady == h.ImagesTotal && h.PayloadsReady == h.PayloadsTotal
}

// Limits of sentences in bytes. Only the run's status has a failure in full length, so that a
// NodeUpdate stays below 4 KiB.
const (
	messageBytes   = 250
	conditionBytes = 150
)

// conditions returns Ready, Reconciling, Stalled and ImagesReady. A transition time stays while
// the condition's status is the same.
func conditions(v view, before *v1alpha1.NodeUpdateStatus, now time.Time) []metav1.Condition {
	set := func(kind string, is bool) metav1.Condition { return statusCondition(kind, is, v, before, now) }
	return []metav1.Condition{
		set(v1alpha1.ConditionReady, !v.stalled && !v.busy),
		set(v1alpha1.ConditionReconciling, v.busy && !v.stalled),
		set(v1alpha1.ConditionStalled, v.stalled),
		set(v1alpha1.ConditionImagesReady, v.held),
	}
}

// degraded returns the condition of a node whose agent has a problem; other nodes do not have
// this condition.
func degraded(v view, before *v1alpha1.NodeUpdateStatus, now time.Time) metav1.Condition {
	return statusCondition(v1alpha1.ConditionDegraded, true, v, before, now)
}

func statusCondition(kind string, is bool, v view, before *v1alpha1.NodeUpdateStatus, now time.Time) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: v.reason, Message: truncate(v.message, conditionBytes),
		ObservedGeneration: v.generation, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second))}
	if is {
		c.Status = metav1.ConditionTrue
	}
	if before != nil {
		for _, b := range before.Conditions {
			if b.Type == kind && b.Status == c.Status {
				c.LastTransitionTime = b.LastTransitionTime
			}
		}
	}
	return c
}
