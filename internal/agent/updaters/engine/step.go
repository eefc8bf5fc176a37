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

// step drives one step until its Result is final.
func (e *Engine) step(ctx context.Context, j *journal, s v1alpha1.UpdateStep, permitted func() *v1alpha1.NodeRun, report func(*v1alpha1.NodeRunStatus)) updaters.Result {
	stop := func() string {
		if r := permitted(); r != nil && r.UID == j.run.UID && r.Attempt > j.run.Attempt && r.Undo {
			return "it was stopped to be taken back"
		}
		return ""
	}
	return e.do(ctx, j, job{step: s, task: e.task(j, s), call: updaters.Updater.Update, reason: v1alpha1.ReasonUpdating, stop: stop}, report)
}

// job is what is done about one step: it is run, or taken back.
type job struct {
	step v1alpha1.UpdateStep
	task updaters.Task
	call func(updaters.Updater, context.Context, updaters.Task) (updaters.Result, error)
	// reason word while it goes on.
	reason string
	// stop says why it is not to go on, "" if it is.
	stop func() string
}

// do calls an updater until its Result is final, the step's deadline has passed
// or it is to stop. A Result that is neither done nor failed means that the
// context has ended.
func (e *Engine) do(ctx context.Context, j *journal, x job, report func(*v1alpha1.NodeRunStatus)) updaters.Result {
	s := x.step
	u, no := e.able(x)
	if no.Failed {
		return no
	}
	again := !j.started[s.ID].IsZero()
	if !again && !e.write(ctx, j, entry{Event: eventStart, Step: s.ID}, report) {
		return updaters.Result{}
	}
	failpoint.Here(failpoint.StepBefore)
	// The time without power, or without us, is none that the step took.
	x.task.Started = e.now()
	watch := e.watch(j, s, again)
	said := updaters.Result{Reason: x.reason, Message: "begun"}
	report(e.status(j, s.ID, said.Reason, said.Message))
	for ctx.Err() == nil {
		r := e.turn(ctx, u, x, watch, said.Message)
		if ctx.Err() != nil && !r.Done {
			break // what came of it is not known
		}
		if r.Done || r.Failed {
			failpoint.Here(failpoint.StepAfter)
			return r
		}
		if r.Reason != said.Reason || r.Message != said.Message {
			said = r
			report(e.status(j, s.ID, r.Reason, r.Message))
		}
		e.sleep(ctx, watch.left(r.After))
		watch.note()
	}
	return updaters.Result{}
}

// able finds who does a step, or says why it is not begun.
func (e *Engine) able(x job) (updaters.Updater, updaters.Result) {
	u := e.updater(x.step.Updater)
	if u == nil {
		return nil, updaters.Fail(v1alpha1.ReasonNoUpdater, "this agent has no updater %q", x.step.Updater)
	}
	return u, x.stopped()
}

// stopped is a failure if the job is not to go on.
func (x job) stopped() (r updaters.Result) {
	if why := x.stop(); why != "" {
		r = updaters.Fail(v1alpha1.ReasonUndoing, "step %s: %s", x.step.ID, why)
	}
	return r
}

// turn is one call of an updater, if it may still be called; words are what it
// said before.
func (e *Engine) turn(ctx context.Context, u updaters.Updater, x job, watch *stopwatch, words string) updaters.Result {
	if r := x.stopped(); r.Failed {
		return r
	}
	if watch.over() {
		return updaters.Fail(v1alpha1.ReasonStepDeadline, "step %s did not end within %s: %s%s", x.step.ID, watch.limit, words, lastWords(ctx, u))
	}
	r := e.once(ctx, u, x, watch.left(e.callTime()))
	if r.After <= 0 {
		r.After = pause
	}
	return r
}

// lastWords are those of the part that an updater changes, on lines of their own.
func lastWords(ctx context.Context, u updaters.Updater) string {
	w, ok := u.(updaters.Witness)
	if !ok {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if said := w.LastWords(ctx); said != "" {
		return "\n" + said
	}
	return ""
}

// once calls an updater; an error is a Result that goes on.
func (e *Engine) once(ctx context.Context, u updaters.Updater, x job, limit time.Duration) updaters.Result {
	r, err := e.call(ctx, u.Name(), limit, func(ctx context.Context) (updaters.Result, error) { return x.call(u, ctx, x.task) })
	switch {
	case errors.Is(err, updaters.ErrNoPayload):
		return updaters.Fail(v1alpha1.ReasonPayloadMissing, "%v", err)
	case errors.Is(err, updaters.ErrNotReversible):
		return updaters.Fail(v1alpha1.ReasonNotReversible, "%v", err)
	case err != nil:
		return updaters.Going(reasonOf(err, x.reason), "it is tried again: %v", err)
	}
	return r
}

// reasonOf is the word for what a disk refuses, or the other one.
func reasonOf(err error, otherwise string) string {
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
	// answers at once, and a unit that does not stop is killed after 90 s.
	callTime = 5 * time.Minute
	// grace is how long a call may go on after its context has ended.
	grace = 10 * time.Second
)

func (e *Engine) callTime() time.Duration {
	if e.CallTime > 0 {
		return e.CallTime
	}
	return callTime
}

// answer is what a call returned.
type answer struct {
	r        updaters.Result
	err      error
	panicked any
}

// call calls into an updater, which may hang: then it is told to end, left alone,
// and not called again before it has returned. If the engine's own context ends,
// the call is waited for: half a call is nothing to leave behind.
func (e *Engine) call(ctx context.Context, name string, limit time.Duration, f func(context.Context) (updaters.Result, error)) (updaters.Result, error) {
	if old := e.hung[name]; old != nil {
		select {
		case <-old: // late, and not what is asked now
			delete(e.hung, name)
		default:
			return updaters.Result{}, hangs(name)
		}
	}
	own, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	back := make(chan answer, 1)
	go func() {
		var a answer
		defer func() {
			a.panicked = recover()
			back <- a
		}()
		a.r, a.err = f(own)
	}()
	a, ok := await(ctx, own, back)
	if !ok {
		if e.hung == nil {
			e.hung = map[string]<-chan answer{}
		}
		e.hung[name] = back
		return updaters.Result{}, hangs(name)
	}
	if a.panicked != nil {
		panic(a.panicked)
	}
	return a.r, a.err
}

func hangs(name string) error {
	return fmt.Errorf("updater %s hangs: a call has not returned in its time, and it is not called again before it has", name)
}

func await(ctx, own context.Context, back <-chan answer) (answer, bool) {
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
	case <-time.After(grace):
		return answer{}, false
	}
}

// stopwatch counts the time that a step has taken, over restarts of the agent.
type stopwatch struct {
	e     *Engine
	j     *journal
	step  string
	limit time.Duration // 0: none
	// before is the time taken by earlier lives, began when this one began.
	before time.Duration
	began  time.Time
	noted  time.Duration
}

// watch goes on counting. A life that was too short to note anything counts as a
// second: an agent that dies again and again does not hold up a deadline.
func (e *Engine) watch(j *journal, s v1alpha1.UpdateStep, again bool) *stopwatch {
	w := &stopwatch{e: e, j: j, step: s.ID, limit: time.Duration(s.DeadlineSeconds) * time.Second, before: j.spent[s.ID], noted: j.spent[s.ID], began: e.now()}
	if again {
		w.before += time.Second
		w.write()
	}
	return w
}

func (w *stopwatch) spent() time.Duration { return w.before + w.e.now().Sub(w.began) }

func (w *stopwatch) over() bool { return w.limit > 0 && w.spent() >= w.limit }

// left is a time that does not go beyond the deadline by more than a moment.
func (w *stopwatch) left(d time.Duration) time.Duration {
	if w.limit > 0 {
		d = min(d, max(time.Millisecond, w.limit-w.spent()))
	}
	return d
}

// noteEvery is the time that a crash may make forgotten.
const noteEvery = 10 * time.Second

func (w *stopwatch) note() {
	if w.limit > 0 && w.spent()-w.noted >= min(noteEvery, w.limit/10) {
		w.write()
	}
}

func (w *stopwatch) write() {
	if w.limit == 0 {
		return
	}
	w.noted = w.spent()
	if err := w.j.add(entry{Event: eventSpent, At: w.e.now(), Step: w.step, Spent: w.noted.Round(time.Millisecond)}); err != nil {
		w.e.Log.Warn("the time that a step took cannot be noted", "error", err)
	}
}

// observeAll looks at every step once more; why is "" if all are done.
func (e *Engine) observeAll(ctx context.Context, j *journal) (why string) {
	for _, s := range j.run.Steps {
		u := e.updater(s.Updater)
		if u == nil {
			return fmt.Sprintf("this agent has no updater %q", s.Updater)
		}
		o, err := e.observe(ctx, u, e.task(j, s))
		for try := 0; (err != nil || !o.Done) && try < observeTries && ctx.Err() == nil; try++ {
			e.sleep(ctx, pause)
			o, err = e.observe(ctx, u, e.task(j, s))
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err().Error()
		case err != nil:
			return fmt.Sprintf("step %s was done and cannot be observed: %v", s.ID, err)
		case !o.Done:
			return fmt.Sprintf("step %s was done and is not any more: %s", s.ID, o.Detail)
		}
	}
	return ""
}

// observeTries is how long a node may take to look well again at the end: a
// restart of one of its parts by somebody else is no failure.
const observeTries = 60

// observe looks at one step, within the time of a call.
func (e *Engine) observe(ctx context.Context, u updaters.Updater, t updaters.Task) (updaters.Observation, error) {
	var o updaters.Observation
	_, err := e.call(ctx, u.Name(), e.callTime(), func(ctx context.Context) (updaters.Result, error) {
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
