package agent

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/version"
)

func agentVersion() string { return version.Version() }

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

// view is the state in one word and one sentence.
type view struct {
	phase, reason, message string
	// stalled: a person must act. busy: it goes on by itself.
	stalled, busy bool
	held          bool
	generation    int64
}

// view is called with the mutex held.
func (a *Agent) view() view {
	v := a.holdView()
	if a.want != nil {
		v.generation = a.want.Generation
	}
	s := &a.state
	s.sayReplaced(&v)
	for _, x := range []*model.Verdict{s.unread, s.doorVerdict, s.runVerdict} {
		v.waits(x)
	}
	if r := s.run; r != nil && a.want != nil && a.want.Spec.Run != nil && r.UID == a.want.Spec.Run.UID {
		switch r.State {
		case v1alpha1.RunRunning:
			v.phase, v.message, v.busy = phaseUpdating, ofStep(r.Step, ": ")+r.Message, true
			v.reason = orWord(r.Reason, v1alpha1.ReasonUpdating)
		case v1alpha1.RunFailed:
			v.phase, v.message, v.stalled = phaseFailed, ofStep(r.Step, " failed: ")+r.Message, true
			v.reason = orWord(r.Reason, v1alpha1.ReasonStepFailed)
		case v1alpha1.RunUndone:
			v.message = "the update was taken back; " + v.message
		}
	}
	return v
}

// waits takes over a verdict, if there is one.
func (v *view) waits(x *model.Verdict) {
	if x != nil {
		v.phase, v.reason, v.message, v.stalled, v.busy = phaseWaiting, x.Reason, x.Message, !x.Waiting, x.Waiting
	}
}

// ofStep begins a sentence about a step; a run can stop and wait outside of one.
func ofStep(step, then string) string {
	if step == "" {
		return ""
	}
	return "step " + step + then
}

// sayReplaced says that the node's store is another one, until all is here again.
func (s *state) sayReplaced(v *view) {
	if s.replaced = s.replaced && !v.held; s.replaced {
		v.message = "its store is another one than before (a new disk, or installed anew); " + v.message
	}
}

func orWord(word, otherwise string) string {
	if word == "" {
		return otherwise
	}
	return word
}

func (a *Agent) holdView() view {
	s := &a.state
	if a.want == nil || a.want.Spec.Pins == "" && len(a.want.Spec.Bundles) == 0 {
		return view{phase: phaseIdle, reason: v1alpha1.ReasonAsExpected, message: "nothing is asked of this node"}
	}
	if vs := slices.Concat(s.bundleVerdicts, s.holdVerdicts); len(vs) > 0 {
		return view{phase: phaseWaiting, reason: vs[0].Reason, message: vs[0].Message, stalled: !vs[0].Waiting, busy: vs[0].Waiting}
	}
	h := s.holding
	switch {
	case a.want.Spec.Pins == "":
		return view{phase: phaseIdle, reason: v1alpha1.ReasonAsExpected, message: "an approved bundle is known, nothing of it is to be held yet"}
	case complete(h) && h.Content == a.want.Spec.Pins:
		return view{phase: phaseReady, reason: v1alpha1.ReasonAsExpected, held: true,
			message: fmt.Sprintf("%d images and %d payloads are held and pinned", h.ImagesReady, h.PayloadsReady)}
	case s.copying:
		return view{phase: phaseCopying, reason: v1alpha1.ReasonCopying, busy: true, message: "copying what the hold list wants"}
	}
	return view{phase: phaseLoading, reason: v1alpha1.ReasonLoading, busy: true, message: "loading and pinning images"}
}

func complete(h v1alpha1.PinStatus) bool {
	return h.ImagesPinned == h.ImagesTotal && h.ImagesReady == h.ImagesTotal && h.PayloadsReady == h.PayloadsTotal
}

// Lengths of sentences in bytes: the whole of a failure stands once, in the run's
// status, so that a NodeUpdate stays below 4 KiB.
const (
	messageBytes   = 250
	conditionBytes = 150
)

// conditions are Ready, Reconciling, Stalled and ImagesReady; times of earlier
// ones are kept while their status is the same.
func conditions(v view, before *v1alpha1.NodeUpdateStatus, now time.Time) []metav1.Condition {
	set := func(kind string, is bool) metav1.Condition { return statusCondition(kind, is, v, before, now) }
	return []metav1.Condition{
		set(v1alpha1.ConditionReady, !v.stalled && !v.busy),
		set(v1alpha1.ConditionReconciling, v.busy && !v.stalled),
		set(v1alpha1.ConditionStalled, v.stalled),
		set(v1alpha1.ConditionImagesReady, v.held),
	}
}

// degraded is the condition of a node whose agent lives with a problem; without one there
// is no such condition.
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
