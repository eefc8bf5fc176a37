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

// begun is a step that was started and not taken back, and the run it was last
// started in.
type begun struct {
	step v1alpha1.UpdateStep
	j    *journal
	at   time.Time // when it was started first
}

// inEffect are the steps of an update that its earlier attempts have started on
// this node and none has taken back, in the order in which they were started.
func inEffect(js []*journal, undo *journal) []begun {
	var out []begun
	for _, j := range js {
		if j.run.UID != undo.run.UID || j.run.Attempt >= undo.run.Attempt {
			continue
		}
		if j.run.Undo {
			out = slices.DeleteFunc(out, func(b begun) bool { return j.ended[b.step.ID] })
			continue
		}
		for _, s := range j.run.Steps {
			at := j.started[s.ID]
			if at.IsZero() {
				continue
			}
			if i := slices.IndexFunc(out, func(b begun) bool { return b.step.ID == s.ID }); i >= 0 {
				out[i].step, out[i].j = s, j
				continue
			}
			out = append(out, begun{s, j, at})
		}
	}
	return out
}

// unknown is the journal that an undo would need and that is damaged, nil if there is
// none. An attempt that succeeded later started every step, and its journal says so.
func unknown(js []*journal, undo *journal) (bad *journal) {
	for _, j := range js {
		switch {
		case j.run.UID != undo.run.UID || j.run.Attempt >= undo.run.Attempt:
		case j.damage != nil:
			bad = j
		case j.finish != nil && j.finish.State == v1alpha1.RunSucceeded:
			bad = nil
		}
	}
	return bad
}

// takeBack undoes steps, last first. What it cannot take back ends it: what was
// started before that one stays, as the node stands on it.
func (e *Engine) takeBack(ctx context.Context, j *journal, js []*journal, report func(*v1alpha1.NodeRunStatus)) {
	if d := unknown(js, j); d != nil {
		e.finish(ctx, j, v1alpha1.RunFailed, "", d.damage.reason, "nothing was undone, because it is not known which steps were started: "+d.says(), report)
		return
	}
	steps := inEffect(js, j)
	for _, b := range slices.Backward(steps) {
		s := b.step
		if j.ended[s.ID] {
			continue
		}
		r := e.do(ctx, j, job{step: s, task: e.task(b.j, s), call: updaters.Updater.Undo, reason: v1alpha1.ReasonUndoing, stop: func() string { return "" }}, report)
		switch {
		case ctx.Err() != nil && !r.Done:
			return // the journal knows where to go on
		case r.Failed:
			e.finish(ctx, j, v1alpha1.RunFailed, s.ID, r.Reason, "step "+s.ID+" was not taken back: "+r.Message+stays(steps, s.ID), report)
			return
		}
		if !e.write(ctx, j, entry{Event: eventEnd, Step: s.ID}, report) {
			return
		}
		failpoint.Here(failpoint.JournalStep)
	}
	if why := e.stillThere(ctx, steps); why != "" {
		if ctx.Err() == nil {
			e.finish(ctx, j, v1alpha1.RunFailed, "", v1alpha1.ReasonStepFailed, why, report)
		}
		return
	}
	message := "every step that was started was taken back, and observed so"
	if len(steps) == 0 {
		message = "no step was started on this node: there is nothing to take back"
	}
	e.finish(ctx, j, v1alpha1.RunUndone, "", v1alpha1.ReasonUndone, message, report)
}

// stays names the steps before one that could not be taken back.
func stays(steps []begun, id string) string {
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

// stillThere looks once more, after all was taken back: a step that changes
// something cannot be as it was wanted.
func (e *Engine) stillThere(ctx context.Context, steps []begun) (why string) {
	for _, b := range steps {
		u := e.updater(b.step.Updater)
		if w, ok := u.(updaters.Watcher); u == nil || ok && w.Watches() {
			continue
		}
		// An error is no sign that it is there: each Undo has ended by observing.
		if o, err := e.observe(ctx, u, e.task(b.j, b.step)); err == nil && o.Done {
			return fmt.Sprintf("step %s was taken back and is observed done", b.step.ID)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err().Error()
	}
	return ""
}
