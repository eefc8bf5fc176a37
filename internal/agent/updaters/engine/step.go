package engine

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/failpoint"
)

// runStep drives one step until its Result is final.
func (e *Engine) runStep(ctx context.Context, j *journal, d *deadline, s v1alpha1.UpdateStep, permitted func() *v1alpha1.NodeRun, report func(*v1alpha1.NodeRunStatus)) updaters.Result {
	u, ok := e.updater(s.Updater).(updaters.SelfReverter)
	d.paused = ok && u.RevertsItself()
	stop := func() string {
		d.observe(ctx)
		if d.expired() {
			return "it was stopped: " + d.problem
		}
		return undoOrdered(j, permitted)
	}
	return e.runJob(ctx, j, job{step: s, task: e.task(j, s), call: updaters.Updater.Update, reason: v1alpha1.ReasonUpdating, stopReason: stop, warning: d.warning}, report)
}

// undoOrdered says why a run must stop for an undo, "" if none was ordered.
func undoOrdered(j *journal, permitted func() *v1alpha1.NodeRun) string {
	if r := permitted(); r != nil && r.UID == j.run.UID && r.Attempt > j.run.Attempt && r.Undo {
		return "it was stopped for an undo"
	}
	return ""
}

// job is what happens to one step: it runs, or is undone.
type job struct {
	step v1alpha1.UpdateStep
	task updaters.Task
	call func(updaters.Updater, context.Context, updaters.Task) (updaters.Result, error)
	// reason word while it is in progress.
	reason string
	// stopReason says why it must stop, "" if it may continue.
	stopReason func() string
	// warning may replace what the step reports while it is in progress; nil does not.
	warning func(updaters.Result) updaters.Result
}

// runJob calls an updater until its Result is final, the step's deadline has passed or the
// job must stop. A Result that is neither done nor failed means that the context has ended.
func (e *Engine) runJob(ctx context.Context, j *journal, x job, report func(*v1alpha1.NodeRunStatus)) updaters.Result {
	s := x.step
	u, no := e.findUpdater(x)
	if no.Failed {
		return no
	}
	again := !j.started[s.ID].IsZero()
	if !again && !e.writeEntry(ctx, j, entry{Event: eventStart, Step: s.ID}, report) {
		return updaters.Result{}
	}
	failpoint.Here(failpoint.StepBefore)
	e.Log.Info("step started", "update", j.run.Name, "step", s.ID, "reason", x.reason) // refit logs --step finds it
	// Time without power, or without this process, does not count as the step's.
	x.task.Started = e.now()
	watch := e.startStopwatch(j, s, again)
	said := updaters.Result{Reason: x.reason, Message: "started"}
	report(e.status(j, s.ID, said.Reason, said.Message))
	for ctx.Err() == nil {
		r := e.advance(ctx, u, x, watch, said.Message)
		if ctx.Err() != nil && !r.Done {
			break // the result of the call is unknown
		}
		if r.Done || r.Failed {
			failpoint.Here(failpoint.StepAfter)
			return r
		}
		r = x.warn(r)
		if r.Reason != said.Reason || r.Message != said.Message {
			said = r
			report(e.status(j, s.ID, r.Reason, r.Message))
		}
		e.sleep(ctx, watch.cap(r.After))
		watch.saveIfDue()
	}
	return updaters.Result{}
}

// findUpdater finds the updater of a step, or says why the step does not start.
func (e *Engine) findUpdater(x job) (updaters.Updater, updaters.Result) {
	u := e.updater(x.step.Updater)
	if u == nil {
		return nil, updaters.Fail(v1alpha1.ReasonNoUpdater, "this agent has no updater %q", x.step.Updater)
	}
	return u, x.stopped()
}

// warn returns what is reported of a step in progress.
func (x job) warn(r updaters.Result) updaters.Result {
	if x.warning == nil {
		return r
	}
	return x.warning(r)
}

// stopped is a failure if the job must stop.
func (x job) stopped() (r updaters.Result) {
	if why := x.stopReason(); why != "" {
		r = updaters.Fail(v1alpha1.ReasonUndoing, "step %s: %s", x.step.ID, why)
	}
	return r
}

// advance calls an updater once, unless the job must stop or its time is over; words are
// the last message.
func (e *Engine) advance(ctx context.Context, u updaters.Updater, x job, watch *stopwatch, words string) updaters.Result {
	if r := x.stopped(); r.Failed {
		return r
	}
	if watch.expired() {
		return updaters.Fail(v1alpha1.ReasonStepDeadline, "step %s did not end within %s: %s%s", x.step.ID, watch.limit, words, logTail(ctx, u))
	}
	r := e.callUpdater(ctx, u, x, watch.cap(e.callTime()))
	if r.After <= 0 {
		r.After = callInterval
	}
	return r
}

// logTail is the end of the log of the part that an updater changes, on lines of its own.
func logTail(ctx context.Context, u updaters.Updater) string {
	w, ok := u.(updaters.LogSource)
	if !ok {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, callGrace)
	defer cancel()
	if said := w.LogTail(ctx); said != "" {
		return "\n" + said
	}
	return ""
}

// callUpdater calls an updater; an error is a Result in progress.
func (e *Engine) callUpdater(ctx context.Context, u updaters.Updater, x job, limit time.Duration) updaters.Result {
	r, err := e.callBounded(ctx, u.Name(), limit, func(ctx context.Context) (updaters.Result, error) { return x.call(u, ctx, x.task) })
	switch {
	case errors.Is(err, updaters.ErrNoPayload):
		return updaters.Fail(v1alpha1.ReasonPayloadMissing, "%v", err)
	case errors.Is(err, updaters.ErrNotReversible):
		return updaters.Fail(v1alpha1.ReasonNotReversible, "%v", err)
	case err != nil:
		return updaters.InProgress(reasonForError(err, x.reason), "retrying: %v", err)
	}
	return r
}

// reasonForError is the reason word for a disk that refuses a write, or the other one.
func reasonForError(err error, otherwise string) string {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return v1alpha1.ReasonInsufficientSpace
	case errors.Is(err, syscall.EROFS):
		return v1alpha1.ReasonFileSystemReadOnly
	}
	return otherwise
}

const (
	// callTime is how long one call may take: an updater that starts long work
	// returns at once, and systemd kills a unit that does not stop after 90 s.
	callTime = 5 * time.Minute
	// callGrace is how long a call may continue after its context has ended.
	callGrace = 10 * time.Second
)

func (e *Engine) callTime() time.Duration {
	if e.CallTime > 0 {
		return e.CallTime
	}
	return callTime
}

// callResult is what a call returned.
type callResult struct {
	r        updaters.Result
	err      error
	panicked any
}

// callBounded calls an updater, which may hang. After the limit it cancels the call, leaves
// it alone, and refuses further calls until it has returned. If the engine's own context
// ends, it waits for the call: no work may be left half done.
func (e *Engine) callBounded(ctx context.Context, name string, limit time.Duration, f func(context.Context) (updaters.Result, error)) (updaters.Result, error) {
	if old := e.hung[name]; old != nil {
		select {
		case <-old: // late: a result of an older call
			delete(e.hung, name)
		default:
			return updaters.Result{}, hangError(name)
		}
	}
	own, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	back := make(chan callResult, 1)
	go func() {
		var a callResult
		defer func() {
			a.panicked = recover()
			back <- a
		}()
		a.r, a.err = f(own)
	}()
	a, ok := awaitCall(ctx, own, back)
	if !ok {
		if e.hung == nil {
			e.hung = map[string]<-chan callResult{}
		}
		e.hung[name] = back
		return updaters.Result{}, hangError(name)
	}
	if a.panicked != nil {
		panic(a.panicked)
	}
	return a.r, a.err
}

func hangError(name string) error {
	return fmt.Errorf("updater %s hangs: a call exceeded its time, and no other call starts before it returns", name)
}

func awaitCall(ctx, own context.Context, back <-chan callResult) (callResult, bool) {
	select {
	case a := <-back:
		return a, true
	case <-own.Done():
	}
	if ctx.Err() != nil {
		return <-back, true
	}
	select {
	case a := <-back:
		return a, true
	case <-time.After(callGrace):
		return callResult{}, false
	}
}

// stopwatch counts the time that a step has taken, across restarts of the agent.
type stopwatch struct {
	e     *Engine
	j     *journal
	step  string
	limit time.Duration // 0: none
	// earlier is the time taken by earlier processes, started when this one started.
	earlier time.Duration
	started time.Time
	saved   time.Duration
}

// startStopwatch continues counting. A process that was too short to save anything counts
// as a second, so that an agent that crashes again and again does not postpone a deadline.
func (e *Engine) startStopwatch(j *journal, s v1alpha1.UpdateStep, again bool) *stopwatch {
	w := &stopwatch{e: e, j: j, step: s.ID, limit: time.Duration(s.DeadlineSeconds) * time.Second, earlier: j.spent[s.ID], saved: j.spent[s.ID], started: e.now()}
	if again {
		w.earlier += time.Second
		w.save()
	}
	return w
}

func (w *stopwatch) spent() time.Duration { return w.earlier + w.e.now().Sub(w.started) }

func (w *stopwatch) expired() bool { return w.limit > 0 && w.spent() >= w.limit }

// cap limits a time so that it exceeds the deadline by no more than a moment.
func (w *stopwatch) cap(d time.Duration) time.Duration {
	if w.limit > 0 {
		d = min(d, max(time.Millisecond, w.limit-w.spent()))
	}
	return d
}

// saveInterval is the time that a crash may lose.
const saveInterval = 10 * time.Second

func (w *stopwatch) saveIfDue() {
	if w.limit > 0 && w.spent()-w.saved >= min(saveInterval, w.limit/10) {
		w.save()
	}
}

func (w *stopwatch) save() {
	if w.limit == 0 {
		return
	}
	w.saved = w.spent()
	if err := w.j.appendEntry(entry{Event: eventSpent, At: w.e.now(), Step: w.step, Spent: w.saved.Round(time.Millisecond)}); err != nil {
		w.e.Log.Warn("failed to record the duration of a step", "error", err)
	}
}

// observeAll observes every step once more; why is "" if all are done.
func (e *Engine) observeAll(ctx context.Context, j *journal) (why string) {
	for _, s := range j.run.Steps {
		u := e.updater(s.Updater)
		if u == nil {
			return fmt.Sprintf("this agent has no updater %q", s.Updater)
		}
		o, err := e.observe(ctx, u, e.task(j, s))
		for try := 0; (err != nil || !o.Done) && try < observeTries && ctx.Err() == nil; try++ {
			e.sleep(ctx, callInterval)
			o, err = e.observe(ctx, u, e.task(j, s))
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err().Error()
		case err != nil:
			return fmt.Sprintf("step %s was done and cannot be observed: %v", s.ID, err)
		case !o.Done:
			return fmt.Sprintf("step %s was done and no longer is: %s", s.ID, o.Detail)
		}
	}
	return ""
}

// observeTries is how often a node is observed until it is healthy again at the end: a
// restart of one of its parts by others is no failure.
const observeTries = 60

// observe observes one step, within the time of a call.
func (e *Engine) observe(ctx context.Context, u updaters.Updater, t updaters.Task) (updaters.Observation, error) {
	var o updaters.Observation
	_, err := e.callBounded(ctx, u.Name(), e.callTime(), func(ctx context.Context) (updaters.Result, error) {
		seen, err := u.Observe(ctx, t)
		if err == nil {
			o = seen
		}
		return updaters.Result{}, err
	})
	if err != nil {
		return updaters.Observation{}, err
	}
	return o, nil
}
