package engine

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/refit-dev/refit/internal/text"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
)

// writeAgain is how often a journal is tried that cannot be written.
const writeAgain = 5 * time.Second

// write adds to the journal; without a journal nothing may go on.
func (e *Engine) write(ctx context.Context, j *journal, en entry, report func(*v1alpha1.NodeRunStatus)) bool {
	for waited := false; ; waited = true {
		en.At = e.now()
		err := j.add(en)
		if err == nil {
			if waited {
				report(e.status(j, en.Step, v1alpha1.ReasonUpdating, "the journal can be written again"))
			}
			return true
		}
		e.Log.Error("the run waits: its journal cannot be written", "update", j.run.Name, "error", err)
		report(e.status(j, en.Step, v1alpha1.ReasonJournalUnwritable, waiting(err, e.journals())))
		e.sleep(ctx, writeAgain)
		if ctx.Err() != nil {
			return false
		}
	}
}

// waits is the status of a permitted run that has no journal yet.
func waits(r *v1alpha1.NodeRun, reason string, err error, dir string) *v1alpha1.NodeRunStatus {
	return &v1alpha1.NodeRunStatus{UID: r.UID, PlanDigest: r.PlanDigest, Attempt: r.Attempt, State: v1alpha1.RunRunning, Reason: reason, Message: waiting(err, dir)}
}

// waiting says what a run waits for, and what to do.
func waiting(err error, dir string) string {
	fix := "make " + dir + " readable and writable for the agent (dmesg says whether the disk fails)"
	switch reasonOf(err, "") {
	case v1alpha1.ReasonInsufficientSpace:
		fix = "free space on the file system of " + dir
	case v1alpha1.ReasonFileSystemReadOnly:
		fix = "check that file system (dmesg says why the kernel made it read-only) and remount it writable"
	}
	return fmt.Sprintf("the run waits: %v. Fix: %s; the run goes on by itself", err, fix)
}

// noteTorn notes journals whose last write was cut off, and cuts off what is left of it.
func (e *Engine) noteTorn(js []*journal) {
	for _, j := range js {
		if j.torn == 0 || j.damage != nil {
			continue
		}
		if err := os.Truncate(j.path, j.size); err != nil {
			e.Log.Error("failed to cut off the torn end of a journal", "path", j.path, "error", err)
		}
		if e.Note != nil && !e.noted[j.path] {
			e.Note(statefile.Problem{Reason: statefile.ReasonDamaged, Object: j.path, Repaired: true,
				Message: fmt.Sprintf("%s ended with %d bytes that are not a whole line: the write was cut off, nothing followed from it, and they were removed", j.path, j.torn),
				Fix:     "nothing: the run goes on after the last whole line. If it happens again, check the disk of this node"})
		}
		if e.noted == nil {
			e.noted = map[string]bool{}
		}
		e.noted[j.path] = true
	}
}

// says is what a damaged journal means for its run.
func (j *journal) says() string {
	const release = "the run is stopped and does not start again by itself. Fix: see to the disk (dmesg), then refit retry starts the next attempt"
	if j.damage.reason == v1alpha1.ReasonJournalUnreadable {
		return fmt.Sprintf("journal %s cannot be read: %v; %s", j.path, j.damage.err, release)
	}
	return fmt.Sprintf("journal %s is damaged: %v; %s", j.path, j.damage.err, release)
}

func (e *Engine) finish(ctx context.Context, j *journal, state v1alpha1.RunState, step, reason, message string, report func(*v1alpha1.NodeRunStatus)) {
	// A run that cannot be closed in the journal is not reported as over.
	if !e.write(ctx, j, entry{Event: eventFinish, State: state, Step: step, Reason: reason, Message: truncate(message)}, report) {
		return
	}
	failpoint.Here(failpoint.JournalFinish)
	e.Log.Info("run finished", "update", j.run.Name, "state", state, "step", step, "message", message)
	report(e.status(j, "", "", ""))
}

// truncate keeps the beginning and more of the end, where a program says why it failed.
func truncate(s string) string { return text.TruncateMiddle(s, 400, 1200, "\n...\n") }

func (e *Engine) status(j *journal, step, reason, message string) *v1alpha1.NodeRunStatus {
	s := &v1alpha1.NodeRunStatus{UID: j.run.UID, PlanDigest: j.run.PlanDigest, Attempt: j.run.Attempt,
		State: v1alpha1.RunRunning, Step: step, StepsDone: int32(len(j.ended)), Reason: reason, Message: truncate(message)}
	if !j.began.IsZero() {
		began := metav1.NewTime(j.began.Truncate(time.Second))
		s.StartedAt = &began
	}
	if j.damage != nil {
		s.State, s.Reason, s.Message = v1alpha1.RunFailed, j.damage.reason, truncate(j.says())
	}
	if f := j.finish; f != nil {
		at := metav1.NewTime(f.At.Truncate(time.Second))
		s.State, s.Step, s.Reason, s.Message, s.FinishedAt = f.State, f.Step, f.Reason, f.Message, &at
	}
	return s
}
