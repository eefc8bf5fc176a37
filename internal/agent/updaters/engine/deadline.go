package engine

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/text"
)

// Health is what a node sees of itself and of its cluster.
type Health struct {
	// Kubelet says why the kubelet of the node is not healthy, "" if it is.
	Kubelet string `json:"kubelet,omitempty"`
	// API says why the API server does not answer, "" if it does.
	API string `json:"api,omitempty"`
	// NotReady says why the API server does not report the node Ready, "" if it does.
	NotReady string `json:"notReady,omitempty"`
	// Heartbeat is when the kubelet reported to the API server last, in the kubelet's words;
	// "" if it is unknown.
	Heartbeat string `json:"heartbeat,omitempty"`
	// Peers is how many other nodes answer.
	Peers int `json:"peers,omitempty"`
	// Failed are the units of network, firewall, resolver and sshd that have failed, with blanks
	// in between.
	Failed string `json:"failed,omitempty"`
}

// unwell says why a node is not well, compared with its state before the steps; "" if it is.
// What was unreachable before the steps is no effect of them. A single peer may be off itself:
// it counts only while the API server does not answer.
func unwell(before, now Health) string {
	silent := before.Peers > 0 && now.Peers == 0
	switch {
	case now.Kubelet != "":
		return now.Kubelet
	case now.API != "" && before.API == "":
		return "the API server, which answered before the steps, does not answer: " + now.API
	case now.API == "" && now.NotReady != "":
		return now.NotReady
	case failedSince(before, now) != "":
		return "since the steps, " + failedSince(before, now) + " has failed"
	case silent && (before.Peers > 1 || now.API != ""):
		return fmt.Sprintf("no peer answers; before the steps %s did", text.Count(before.Peers, "peer"))
	}
	return ""
}

// failedSince is a unit that has failed and had not before, "" if there is none.
func failedSince(before, now Health) string {
	for u := range strings.FieldsSeq(now.Failed) {
		if !slices.Contains(strings.Fields(before.Failed), u) {
			return u
		}
	}
	return ""
}

const (
	// healthInterval is the time between two observations of the node's health.
	healthInterval = 5 * time.Second
	// wellTime is how long a node must be well before its deadline is disarmed.
	wellTime = 30 * time.Second
	// healthTries is how often the API server is asked before the steps: an answer that is
	// missing by chance would weaken what counts as well after them.
	healthTries = 3
)

// undoDeadline is the parameter of a step that can cut the node off, 0 for any other.
func undoDeadline(s v1alpha1.UpdateStep) time.Duration {
	n, err := strconv.ParseInt(s.Params[model.ParamUndoDeadline], 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(n) * time.Second
}

// deadline counts the time in which a node is not well after steps that can cut it off. The
// clock's time of day plays no part, and time without this process does not count.
type deadline struct {
	e *Engine
	j *journal
	// observed is when the node was observed last, or this process started to count.
	observed time.Time
	next     time.Time
	// spent is how long the node was not well, in all processes; saved is what the journal has.
	spent, saved time.Duration
	// problem is why the node is not well; wellSince is set while it is.
	problem   string
	wellSince time.Time
	// paused: the step that runs returns the node by itself, so its time does not count.
	paused bool
	// failure is the step that had failed before the node was given up.
	failure string
	// final: the steps have ended, so that heartbeats are counted from firstBeat on.
	final     bool
	firstBeat string
}

// resumeDeadline continues counting. A process that was too short to save anything counts as a
// second, so that a loop of crashes does not postpone the deadline.
func (e *Engine) resumeDeadline(j *journal) *deadline {
	d := &deadline{e: e, j: j, observed: e.now(), spent: j.unwell, saved: j.unwell}
	if j.armed != nil {
		d.spent += time.Second
		d.save()
	}
	return d
}

func (d *deadline) armed() bool { return d.j.armed != nil && d.e.Health != nil }

// remaining is the time that is left for the node to be well.
func (d *deadline) remaining() time.Duration { return d.j.armed.Spent - d.spent }

func (d *deadline) expired() bool {
	return d.armed() && (d.j.expired != "" || d.remaining() <= 0)
}

// arm records the deadline of a step and the state of the node before it, before the step
// starts. It reports false if the run cannot continue now.
func (d *deadline) arm(ctx context.Context, s v1alpha1.UpdateStep, report func(*v1alpha1.NodeRunStatus)) bool {
	limit := undoDeadline(s)
	if limit == 0 || d.armed() || d.e.Health == nil {
		return true
	}
	before := d.e.Health(ctx)
	for try := 1; before.API != "" && try < healthTries && ctx.Err() == nil; try++ {
		d.e.sleep(ctx, healthInterval)
		before = d.e.Health(ctx)
	}
	if ctx.Err() != nil || !d.e.writeEntry(ctx, d.j, entry{Event: eventArmed, Step: s.ID, Spent: limit, Before: &before}, report) {
		return false
	}
	d.observed = d.e.now()
	failpoint.Here(failpoint.UndoArmed)
	return true
}

// observe observes the node now and then. The time since the last observation counts if the
// node is not well.
func (d *deadline) observe(ctx context.Context) {
	if !d.armed() || d.e.now().Before(d.next) {
		return
	}
	h := d.e.Health(ctx)
	if ctx.Err() != nil {
		return // the observation was interrupted
	}
	now := d.e.now()
	d.problem = unwell(*d.j.armed.Before, h)
	if d.problem == "" && d.final && !d.reported(h) {
		d.problem = "the kubelet has not reported to the API server since the steps"
	}
	switch {
	case d.problem != "":
		if !d.paused {
			d.spent += now.Sub(d.observed)
		}
		d.wellSince = time.Time{}
	case d.wellSince.IsZero():
		d.wellSince = now
	}
	d.observed, d.next = now, now.Add(healthInterval)
	if d.spent-d.saved >= saveInterval {
		d.save()
	}
}

// reported reports whether the kubelet's heartbeat is another one than when the steps ended. It
// is compared for equality: clocks may be wrong.
func (d *deadline) reported(h Health) bool {
	if d.firstBeat == "" {
		d.firstBeat = h.Heartbeat
	}
	return h.API != "" || h.Heartbeat == "" || h.Heartbeat != d.firstBeat
}

func (d *deadline) save() {
	d.saved = d.spent
	if err := d.j.appendEntry(entry{Event: eventUnwell, At: d.e.now(), Spent: d.saved.Round(time.Millisecond)}); err != nil {
		d.e.Log.Warn("failed to record for how long the node was not well", "error", err)
	}
}

// message says what the node waits for, and what happens otherwise.
func (d *deadline) message() string {
	left := max(0, d.remaining()).Round(time.Minute)
	in := "in " + text.Count(int(left/time.Minute), "minute")
	if left == 0 {
		in = "within a minute"
	}
	if d.problem == "" {
		return fmt.Sprintf("armed: the node is well, and is observed for %s; undo %s if it is not", wellTime, in)
	}
	return fmt.Sprintf("armed: undo %s unless the node is well: %s", in, d.problem)
}

// warning adds what happens to the node to what a step in progress reports, while the node is
// not well.
func (d *deadline) warning(r updaters.Result) updaters.Result {
	if d.armed() && d.problem != "" {
		r.Reason, r.Message = v1alpha1.ReasonUndoArmed, d.message()+"; "+r.Message
	}
	return r
}

// awaitWell waits until the node is well after the steps of an armed run, and disarms it. It
// reports false if the run does not continue: its deadline has expired, or the context has ended.
func (e *Engine) awaitWell(ctx context.Context, j *journal, d *deadline, stop func() string, report func(*v1alpha1.NodeRunStatus)) bool {
	d.final, d.paused, d.wellSince = true, false, time.Time{}
	for said := ""; d.armed(); e.sleep(ctx, healthInterval) {
		d.observe(ctx)
		switch {
		case ctx.Err() != nil:
			return false
		case d.expired():
			e.undoByDeadline(ctx, j, d, report)
			return false
		case stop() != "":
			return true
		case d.settled():
			return e.disarm(ctx, j, report)
		}
		if now := d.message(); now != said {
			said = now
			report(e.status(j, "", v1alpha1.ReasonUndoArmed, now))
		}
	}
	return ctx.Err() == nil
}

// noteFailure keeps why a step failed for the case that the deadline expires.
func (d *deadline) noteFailure(step string, r updaters.Result) {
	if r.Failed && r.Reason != v1alpha1.ReasonUndoing {
		d.failure = "; before that, step " + step + " had failed: " + r.Message
	}
}

// settled reports whether the node was well for long enough.
func (d *deadline) settled() bool {
	return !d.wellSince.IsZero() && d.observed.Sub(d.wellSince) >= wellTime
}

// disarm records that the node was well.
func (e *Engine) disarm(ctx context.Context, j *journal, report func(*v1alpha1.NodeRunStatus)) bool {
	if !e.writeEntry(ctx, j, entry{Event: eventDisarmed}, report) {
		return false
	}
	failpoint.Here(failpoint.UndoDisarmed)
	return true
}

// undoByDeadline undoes the run, in a journal of its own with the same attempt. The decision is
// in the run's journal before.
func (e *Engine) undoByDeadline(ctx context.Context, j *journal, d *deadline, report func(*v1alpha1.NodeRunStatus)) {
	if j.expired == "" {
		why := fmt.Sprintf("the node was not well for %s after steps that can cut it off: %s", j.armed.Spent, d.problem) + d.failure
		if !e.writeEntry(ctx, j, entry{Event: eventExpired, Message: truncate(why)}, report) {
			return
		}
		failpoint.Here(failpoint.UndoExpired)
		e.Log.Warn("deadline expired: undoing the run", "update", j.run.Name, "message", why)
	}
	js, err := readJournals(e.journals())
	if err != nil {
		e.Log.Error("undo waits: the journals cannot be listed", "error", err)
		report(e.status(j, "", v1alpha1.ReasonJournalUnreadable, waitingMessage(err, e.journals())))
		return
	}
	r := j.run
	r.Undo, r.Cause = true, text.Truncate(j.expired, maxCause)
	if u := e.awaitJournal(ctx, nextSeq(js), &r, func() *v1alpha1.NodeRun { return &r }, report); u != nil {
		e.undoRun(ctx, u, append(js, u), report)
	}
}

// maxCause is how long the cause of an undo may be.
const maxCause = 1024

// expiredBefore is why a deadline started an undo, "" if the controller ordered it.
func expiredBefore(js []*journal, undo *journal) string {
	for _, j := range js {
		if j.run.UID == undo.run.UID && j.run.Attempt == undo.run.Attempt && j.expired != "" {
			return j.expired
		}
	}
	return ""
}

// finishExpired ends an undo that a deadline started: the run has failed. stays are the steps
// that were not undone, with the reasons.
func (e *Engine) finishExpired(ctx context.Context, j *journal, steps []startedStep, why string, stays []string, report func(*v1alpha1.NodeRunStatus)) {
	stays = append(stays, e.restartAgain(ctx, j, steps, report)...)
	if ctx.Err() != nil {
		return
	}
	what := "every started step was undone, last first"
	if len(stays) > 0 {
		what = "undone, except: " + strings.Join(stays, "; ")
	} else if still := e.observeUndone(ctx, steps); still != "" {
		what = still
	}
	if ctx.Err() == nil {
		e.finishRun(ctx, j, v1alpha1.RunFailed, "", v1alpha1.ReasonUndoneByDeadline, why+"; "+what, report)
	}
}

// restartAgain restarts the machine if the run did: files that are read at boot were restored
// since. It returns what failed.
func (e *Engine) restartAgain(ctx context.Context, j *journal, steps []startedStep, report func(*v1alpha1.NodeRunStatus)) (failed []string) {
	for _, b := range steps {
		if u, ok := e.updater(b.step.Updater).(updaters.Restarter); !ok || !u.RestartsMachine() {
			continue
		}
		s := b.step
		s.ID = "after-undo-" + s.ID
		if j.stepsDone[s.ID] {
			continue
		}
		r := e.runJob(ctx, j, job{step: s, task: e.task(j, s), call: updaters.Updater.Update, reason: v1alpha1.ReasonUndoing, stopReason: neverStop}, report)
		switch {
		case ctx.Err() != nil && !r.Done:
			return failed
		case r.Failed:
			failed = append(failed, "the machine was not restarted: "+r.Message)
		case !e.writeEntry(ctx, j, entry{Event: eventEnd, Step: s.ID}, report):
			return failed
		}
	}
	return failed
}

// neverStop is the stopReason of a job that nothing stops.
func neverStop() string { return "" }

// cutsOff reports whether a step can cut the node off.
func cutsOff(s v1alpha1.UpdateStep) bool { return undoDeadline(s) > 0 }
