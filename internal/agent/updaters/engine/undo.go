package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/failpoint"
)

// startedStep is a step that was started and not undone, and the run in which it was started
// last.
type startedStep struct {
	step         v1alpha1.UpdateStep
	j            *journal
	firstStarted time.Time // when it was started first
}

// startedSteps are the steps of an update that earlier attempts have started on this node
// and that were not undone since, in the order in which they were first started.
func startedSteps(js []*journal, undo *journal) []startedStep {
	var out []startedStep
	for _, j := range js {
		if j.run.UID != undo.run.UID || j.seq >= undo.seq {
			continue
		}
		if j.run.Undo {
			out = slices.DeleteFunc(out, func(b startedStep) bool { return j.stepsDone[b.step.ID] })
			continue
		}
		for _, s := range j.run.Steps {
			at := j.started[s.ID]
			if at.IsZero() {
				continue
			}
			if i := slices.IndexFunc(out, func(b startedStep) bool { return b.step.ID == s.ID }); i >= 0 {
				out[i].step, out[i].j = s, j
				continue
			}
			out = append(out, startedStep{s, j, at})
		}
	}
	return out
}

// findDamaged returns the damaged journal that an undo would need, nil if there is none. An
// attempt that succeeded later started every step, and its journal says so.
func findDamaged(js []*journal, undo *journal) (bad *journal) {
	for _, j := range js {
		switch {
		case j.run.UID != undo.run.UID || j.seq >= undo.seq:
		case j.damage != nil:
			bad = j
		case j.finish != nil && j.finish.State == v1alpha1.RunSucceeded:
			bad = nil
		}
	}
	return bad
}

// undoRun undoes steps, last first. A step that cannot be undone ends it: earlier steps
// stay, because the node depends on them. An undo that a deadline started still undoes the
// earlier steps that can cut the node off.
func (e *Engine) undoRun(ctx context.Context, j *journal, js []*journal, report func(*v1alpha1.NodeRunStatus)) {
	if d := findDamaged(js, j); d != nil {
		e.finishRun(ctx, j, v1alpha1.RunFailed, "", d.damage.reason, "nothing was undone, because it is not known which steps were started: "+d.damageMessage(), report)
		return
	}
	steps, expired := startedSteps(js, j), expiredBefore(js, j)
	stays, ok := e.undoEach(ctx, j, steps, expired != "", report)
	switch {
	case !ok:
		return
	case expired != "":
		e.finishExpired(ctx, j, steps, expired, stays, report)
		return
	}
	if why := e.observeUndone(ctx, steps); why != "" {
		if ctx.Err() == nil {
			e.finishRun(ctx, j, v1alpha1.RunFailed, "", v1alpha1.ReasonStepFailed, why, report)
		}
		return
	}
	message := "every started step was undone, and the result was observed"
	if len(steps) == 0 {
		message = "no step was started on this node: there is nothing to undo"
	}
	e.finishRun(ctx, j, v1alpha1.RunUndone, "", v1alpha1.ReasonUndone, message, report)
}

// undoEach undoes the steps that are not undone. ok is false if the undo has finished, or cannot
// continue now. If a deadline started it, stays are the steps that were not undone.
func (e *Engine) undoEach(ctx context.Context, j *journal, steps []startedStep, expired bool, report func(*v1alpha1.NodeRunStatus)) (stays []string, ok bool) {
	for _, b := range slices.Backward(steps) {
		s := b.step
		switch {
		case j.stepsDone[s.ID]:
			continue
		case len(stays) > 0 && !cutsOff(s):
			stays = append(stays, "step "+s.ID+" stays as well")
			continue
		}
		r := e.runJob(ctx, j, job{step: s, task: e.task(b.j, s), call: updaters.Updater.Undo, reason: v1alpha1.ReasonUndoing, stopReason: neverStop}, report)
		switch {
		case ctx.Err() != nil && !r.Done:
			return stays, false // the journal says where to continue
		case r.Failed && expired:
			stays = append(stays, "step "+s.ID+" was not undone: "+r.Message)
			continue
		case r.Failed:
			e.finishRun(ctx, j, v1alpha1.RunFailed, s.ID, r.Reason, "step "+s.ID+" was not undone: "+r.Message+remainingSteps(steps, s.ID), report)
			return stays, false
		}
		if !e.writeEntry(ctx, j, entry{Event: eventEnd, Step: s.ID}, report) {
			return stays, false
		}
		failpoint.Here(failpoint.JournalStep)
	}
	return stays, true
}

// remainingSteps names the steps before one that could not be undone.
func remainingSteps(steps []startedStep, id string) string {
	var before []string
	for _, b := range steps {
		if b.step.ID == id {
			break
		}
		before = append(before, b.step.ID)
	}
	if len(before) == 0 {
		return ""
	}
	return "; the steps before it stay as well: " + strings.Join(before, ", ")
}

// observeUndone observes all steps once more after an undo: none that changes something may
// still be done.
func (e *Engine) observeUndone(ctx context.Context, steps []startedStep) (why string) {
	for _, b := range steps {
		u := e.updater(b.step.Updater)
		if w, ok := u.(updaters.Waiter); u == nil || ok && w.OnlyWaits() {
			continue
		}
		// An error does not show that it is still done: each Undo has ended by observing.
		if o, err := e.observe(ctx, u, e.task(b.j, b.step)); err == nil && o.Done {
			return fmt.Sprintf("step %s was undone and is still observed done", b.step.ID)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err().Error()
	}
	return ""
}
