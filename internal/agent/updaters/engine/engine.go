package engine

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
)

// Engine runs the runs of one node, one at a time.
type Engine struct {
	// Dir is the agent's state directory, with journal/, runs/ and rollback/.
	Dir string
	// Updaters that this node has.
	Updaters []updaters.Updater
	// Payload finds a file of a bundle on this node.
	Payload func(bundle, name string) (updaters.Payload, error)
	Log     *slog.Logger
	// Note reports a journal that lost its end, for the node's status; nil drops it.
	Note statefile.Note
	// Health observes the node; nil: no step has a deadline for the node to be well.
	Health func(ctx context.Context) Health
	// Now and Sleep are for tests; nil means the real ones.
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration)
	// CallTime is how long one call of an updater may take before it counts as
	// hanging; 0 means callTime.
	CallTime time.Duration

	// hung are the calls that exceeded their time and have not returned, by updater.
	hung map[string]<-chan callResult
	// reportedTorn are journals whose torn end this process has reported.
	reportedTorn map[string]bool
}

// callInterval is the time between two calls of an updater that requests no other.
const callInterval = time.Second

// keepJournals is how many journals are kept; those of older runs are removed.
const keepJournals = 10

// Run continues the run in the journal, or starts the permitted one. It returns when nothing
// is left to do or the context ends. It calls permitted before every step, and report at
// every change.
func (e *Engine) Run(ctx context.Context, permitted func() *v1alpha1.NodeRun, report func(*v1alpha1.NodeRunStatus)) {
	js, err := readJournals(e.journals())
	if err != nil {
		e.Log.Error("no run starts: the journals cannot be listed", "error", err)
		if r := permitted(); r != nil {
			report(waitingStatus(r, v1alpha1.ReasonJournalUnreadable, err, e.journals()))
		}
		return
	}
	e.trimTornJournals(js)
	j := unfinishedRun(js)
	if j == nil {
		if j = e.startRun(ctx, js, permitted, report); j == nil {
			return
		}
	}
	if j.run.Undo {
		e.undoRun(ctx, j, js, report)
		return
	}
	e.runSteps(ctx, j, permitted, report)
}

func (e *Engine) journals() string { return filepath.Join(e.Dir, "journal") }

// Adopt records a run that finished on this node under another state directory. Without a
// journal of it, a run that finished long ago would start again. It is one write, so that a
// crash never leaves the run started and unfinished.
func (e *Engine) Adopt(r v1alpha1.NodeRun, s v1alpha1.NodeRunStatus) error {
	js, err := readJournals(e.journals())
	if err != nil || invalidRun(&r) != "" || slices.ContainsFunc(js, func(j *journal) bool { return j.run.UID == r.UID }) {
		return err
	}
	return createFinishedJournal(e.journals(), nextSeq(js), r, s, e.now())
}

// Names are the names of the updaters that this node has, sorted.
func (e *Engine) Names() []string {
	var out []string
	for _, u := range e.Updaters {
		out = append(out, u.Name())
	}
	slices.Sort(out)
	return out
}

// Busy reports whether a run has started and not finished; its inputs must not be removed.
// A run whose journal is damaged does not continue, and needs nothing.
func (e *Engine) Busy() bool {
	js, err := readJournals(e.journals())
	return err != nil || unfinishedRun(js) != nil
}

// unfinishedRun is the newest run if it has not finished, nil otherwise. An older one
// without an end was unreadable for a while, and another attempt was started.
func unfinishedRun(js []*journal) *journal {
	if len(js) == 0 {
		return nil
	}
	if j := js[len(js)-1]; j.finish == nil && j.damage == nil {
		return j
	}
	return nil
}

// startRun starts the permitted run if it never ran. Otherwise it reports the result of that
// run, or of the last one.
func (e *Engine) startRun(ctx context.Context, js []*journal, permitted func() *v1alpha1.NodeRun, report func(*v1alpha1.NodeRunStatus)) *journal {
	r := permitted()
	for _, j := range slices.Backward(js) {
		if r != nil && j.run.UID == r.UID && j.run.Attempt >= r.Attempt {
			e.reportOld(j, report)
			return nil
		}
	}
	if r == nil {
		if len(js) > 0 {
			e.reportOld(js[len(js)-1], report)
		}
		return nil
	}
	if why := invalidRun(r); why != "" {
		report(&v1alpha1.NodeRunStatus{UID: r.UID, PlanDigest: r.PlanDigest, Attempt: r.Attempt, State: v1alpha1.RunFailed,
			Reason: v1alpha1.ReasonStepFailed, Message: "nothing was started: " + why})
		return nil
	}
	removeTempFiles(e.journals())
	e.removeOldJournals(js, r.UID)
	e.removeOldRollbacks(js, r.UID)
	j := e.awaitJournal(ctx, nextSeq(js), r, permitted, report)
	if j != nil {
		failpoint.Here(failpoint.JournalRun)
	}
	return j
}

// awaitJournal creates the journal of a run. While that fails the run waits, as long as the
// same run is permitted.
func (e *Engine) awaitJournal(ctx context.Context, seq uint64, r *v1alpha1.NodeRun, permitted func() *v1alpha1.NodeRun, report func(*v1alpha1.NodeRunStatus)) *journal {
	for again := false; ctx.Err() == nil && (!again || reflect.DeepEqual(permitted(), r)); again = true {
		j, err := createJournal(e.journals(), seq, *r, e.now())
		if err == nil {
			return j
		}
		e.Log.Error("run waits: its journal cannot be created", "update", r.Name, "error", err)
		report(waitingStatus(r, v1alpha1.ReasonJournalUnwritable, err, e.journals()))
		e.sleep(ctx, writeRetryInterval)
	}
	return nil
}

// reportOld reports a run that does not continue.
func (e *Engine) reportOld(j *journal, report func(*v1alpha1.NodeRunStatus)) {
	if j.damage != nil {
		e.Log.Error("journal of a run damaged", "path", j.path, "error", j.damage.err)
	}
	report(e.status(j, "", "", ""))
}

// idForm is what may become part of the name of a file or a unit.
var idForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,62}$`)

// invalidRun says why a run does not start, "" if it may. UID and step IDs name files and
// units of this node, so they are validated even if the controller sent them.
func invalidRun(r *v1alpha1.NodeRun) string {
	if !idForm.MatchString(r.UID) {
		return fmt.Sprintf("%.80q is not the UID of a ClusterUpdate", r.UID)
	}
	if r.Attempt < 1 {
		return fmt.Sprintf("attempt %d: attempts count from 1", r.Attempt)
	}
	seen := map[string]bool{}
	for _, s := range r.Steps {
		if !idForm.MatchString(s.ID) || seen[s.ID] {
			return fmt.Sprintf("step ID %.80q has other characters than letters, digits and dashes, or is a duplicate", s.ID)
		}
		seen[s.ID] = true
	}
	return ""
}

// removeOldJournals removes old journals and the files of their runs.
func (e *Engine) removeOldJournals(js []*journal, begins string) {
	for len(js) >= keepJournals {
		old := js[0]
		js = js[1:]
		_ = os.Remove(old.path)
		used := old.run.UID == begins || !idForm.MatchString(old.run.UID)
		for _, j := range js {
			used = used || j.run.UID == old.run.UID
		}
		if !used {
			_ = os.RemoveAll(filepath.Join(e.Dir, "runs", old.run.UID))
			_ = os.RemoveAll(filepath.Join(e.Dir, "rollback", old.run.UID))
		}
	}
}

// removeOldRollbacks removes the replaced binaries of all updates except the last and the
// one that starts: they are some 200 MB each, on disks that are often small.
func (e *Engine) removeOldRollbacks(js []*journal, begins string) {
	if len(js) == 0 {
		return
	}
	last := js[len(js)-1].run.UID
	for _, j := range js {
		if uid := j.run.UID; uid != begins && uid != last && idForm.MatchString(uid) {
			_ = os.RemoveAll(filepath.Join(e.Dir, "rollback", uid))
		}
	}
}

// now has a monotonic reading, by which durations are measured: setting the clock changes
// only the recorded times.
func (e *Engine) now() time.Time {
	if e.Now != nil {
		return e.Now()
	}
	return time.Now()
}

func (e *Engine) sleep(ctx context.Context, d time.Duration) {
	if e.Sleep != nil {
		e.Sleep(ctx, d)
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// runSteps runs the steps that are not done, waits until the node is well if they can cut it
// off, and finishes the run.
func (e *Engine) runSteps(ctx context.Context, j *journal, permitted func() *v1alpha1.NodeRun, report func(*v1alpha1.NodeRunStatus)) {
	d := e.resumeDeadline(j)
	step, failed, ok := e.runEach(ctx, j, d, permitted, report)
	d.noteFailure(step, failed)
	if !ok || !e.awaitWell(ctx, j, d, func() string { return undoOrdered(j, permitted) }, report) {
		return // the journal says where to continue
	}
	if failed.Failed {
		e.finishRun(ctx, j, v1alpha1.RunFailed, step, failed.Reason, failed.Message, report)
		return
	}
	if why := e.observeAll(ctx, j); why != "" {
		if ctx.Err() == nil {
			e.finishRun(ctx, j, v1alpha1.RunFailed, "", v1alpha1.ReasonStepFailed, why, report)
		}
		return
	}
	e.finishRun(ctx, j, v1alpha1.RunSucceeded, "", v1alpha1.ReasonUpdated, "every step was observed done", report)
}

// runEach runs the steps that are not done until one fails: step and r are that one. ok is false
// if the run cannot continue now.
func (e *Engine) runEach(ctx context.Context, j *journal, d *deadline, permitted func() *v1alpha1.NodeRun, report func(*v1alpha1.NodeRunStatus)) (step string, r updaters.Result, ok bool) {
	for _, s := range j.run.Steps {
		if j.stepsDone[s.ID] || d.expired() {
			continue
		}
		if planChanged(j, permitted()) && j.started[s.ID].IsZero() {
			return s.ID, updaters.Fail(v1alpha1.ReasonPlanChanged, "the plan or its steps were changed while the node ran them: nothing more was started"), true
		}
		if !d.arm(ctx, s, report) {
			return "", r, false
		}
		r = e.runStep(ctx, j, d, s, permitted, report)
		if ctx.Err() != nil && !r.Done {
			return "", r, false
		}
		if r.Failed {
			return s.ID, r, true
		}
		if !e.writeEntry(ctx, j, entry{Event: eventEnd, Step: s.ID}, report) {
			return "", r, false
		}
		failpoint.Here(failpoint.JournalStep)
	}
	return "", updaters.Result{}, true
}

// planChanged reports whether the same run is permitted with other content. A permission
// that was withdrawn does not stop a node half-way.
func planChanged(j *journal, now *v1alpha1.NodeRun) bool {
	return now != nil && now.UID == j.run.UID && now.Attempt == j.run.Attempt &&
		(now.Undo != j.run.Undo || now.PlanDigest != j.run.PlanDigest || now.Bundle != j.run.Bundle || !reflect.DeepEqual(now.Steps, j.run.Steps))
}

func (e *Engine) updater(name string) updaters.Updater {
	for _, u := range e.Updaters {
		if u.Name() == name {
			return u
		}
	}
	return nil
}

func (e *Engine) task(j *journal, s v1alpha1.UpdateStep) updaters.Task {
	return updaters.Task{
		UID: j.run.UID, Attempt: j.run.Attempt, Step: s, Started: j.started[s.ID],
		Dir: filepath.Join(e.Dir, "runs", j.run.UID), Rollback: filepath.Join(e.Dir, "rollback", j.run.UID),
		Payload: func(name string) (updaters.Payload, error) { return e.Payload(j.run.Bundle, name) },
	}
}
