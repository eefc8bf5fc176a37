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

// writeRetryInterval is the time between two tries to write a journal.
const writeRetryInterval = 5 * time.Second

// writeEntry appends to the journal; without a journal nothing may continue.
func (e *Engine) writeEntry(ctx context.Context, j *journal, en entry, report func(*v1alpha1.NodeRunStatus)) bool {
	for waited := false; ; waited = true {
		en.At = e.now()
		err := j.appendEntry(en)
		if err == nil {
			if waited {
				report(e.status(j, en.Step, v1alpha1.ReasonUpdating, "the journal can be written again"))
			}
			return true
		}
		e.Log.Error("run waits: its journal cannot be written", "update", j.run.Name, "error", err)
		report(e.status(j, en.Step, v1alpha1.ReasonJournalUnwritable, waitingMessage(err, e.journals())))
		e.sleep(ctx, writeRetryInterval)
		if ctx.Err() != nil {
			return false
		}
	}
}

// waitingStatus is the status of a permitted run that has no journal yet.
func waitingStatus(r *v1alpha1.NodeRun, reason string, err error, dir string) *v1alpha1.NodeRunStatus {
	return &v1alpha1.NodeRunStatus{UID: r.UID, PlanDigest: r.PlanDigest, Attempt: r.Attempt, State: v1alpha1.RunRunning, Reason: reason, Message: waitingMessage(err, dir)}
}

// waitingMessage says what a run waits for, and the fix.
func waitingMessage(err error, dir string) string {
	fix := "make " + dir + " readable and writable for the agent (dmesg shows whether the disk fails)"
	switch reasonForError(err, "") {
	case v1alpha1.ReasonInsufficientSpace:
		fix = "free space on the file system of " + dir
	case v1alpha1.ReasonFileSystemReadOnly:
		fix = "check that file system (dmesg shows why the kernel made it read-only) and remount it writable"
	}
	return fmt.Sprintf("the run waits: %v. Fix: %s; the run continues by itself", err, fix)
}

// trimTornJournals reports journals whose last write was interrupted, and truncates them
// to their complete lines.
func (e *Engine) trimTornJournals(js []*journal) {
	for _, j := range js {
		if j.torn == 0 || j.damage != nil {
			continue
		}
		if err := os.Truncate(j.path, j.size); err != nil {
			e.Log.Error("failed to truncate the torn end of a journal", "path", j.path, "error", err)
		}
		if e.Note != nil && !e.reportedTorn[j.path] {
			e.Note(statefile.Problem{Reason: statefile.ReasonDamaged, Object: j.path, Repaired: true,
				Message: fmt.Sprintf("%s ended with %d bytes of an incomplete line: the write was interrupted, nothing depended on it, and the bytes were removed", j.path, j.torn),
				Fix:     "nothing: the run continues after the last complete line. If it happens again, check the disk of this node"})
		}
		if e.reportedTorn == nil {
			e.reportedTorn = map[string]bool{}
		}
		e.reportedTorn[j.path] = true
	}
}

// damageMessage says what a damaged journal means for its run.
func (j *journal) damageMessage() string {
	const release = "the run stopped and does not start again by itself. Fix: check the disk (dmesg), then start the next attempt with refit retry"
	if j.damage.reason == v1alpha1.ReasonJournalUnreadable {
		return fmt.Sprintf("journal %s cannot be read: %v; %s", j.path, j.damage.err, release)
	}
	return fmt.Sprintf("journal %s is damaged: %v; %s", j.path, j.damage.err, release)
}

func (e *Engine) finishRun(ctx context.Context, j *journal, state v1alpha1.RunState, step, reason, message string, report func(*v1alpha1.NodeRunStatus)) {
	// A run that cannot be closed in the journal is not reported as finished.
	if !e.writeEntry(ctx, j, entry{Event: eventFinish, State: state, Step: step, Reason: reason, Message: truncate(message)}, report) {
		return
	}
	failpoint.Here(failpoint.JournalFinish)
	e.Log.Info("run finished", "update", j.run.Name, "state", state, "step", step, "message", message)
	report(e.status(j, "", "", ""))
}

// truncate keeps the beginning and more of the end, where a program reports why it failed.
func truncate(s string) string { return text.TruncateMiddle(s, 400, 1200, "\n...\n") }

func (e *Engine) status(j *journal, step, reason, message string) *v1alpha1.NodeRunStatus {
	s := &v1alpha1.NodeRunStatus{UID: j.run.UID, PlanDigest: j.run.PlanDigest, Attempt: j.run.Attempt,
		State: v1alpha1.RunRunning, Step: step, StepsDone: int32(len(j.stepsDone)), Reason: reason, Message: truncate(message)}
	if !j.startedAt.IsZero() {
		began := metav1.NewTime(j.startedAt.Truncate(time.Second))
		s.StartedAt = &began
	}
	if j.damage != nil {
		s.State, s.Reason, s.Message = v1alpha1.RunFailed, j.damage.reason, truncate(j.damageMessage())
	}
	if f := j.finish; f != nil {
		at := metav1.NewTime(f.At.Truncate(time.Second))
		s.State, s.Step, s.Reason, s.Message, s.FinishedAt = f.State, f.Step, f.Reason, f.Message, &at
	}
	return s
}

// LastRun returns the last run in the journal of a state directory and its state, nil if there is
// none. It changes nothing, and needs no agent.
func LastRun(dir string) (*v1alpha1.NodeRun, *v1alpha1.NodeRunStatus, error) {
	js, err := readJournals((&Engine{Dir: dir}).journals())
	if err != nil || len(js) == 0 {
		return nil, nil, err
	}
	j := js[len(js)-1]
	return &j.run, (&Engine{}).status(j, j.currentStep(), v1alpha1.ReasonUpdating, ""), nil
}

// currentStep is the step that was started and is not done, "" between two steps.
func (j *journal) currentStep() string {
	for _, s := range j.run.Steps {
		if !j.started[s.ID].IsZero() && !j.stepsDone[s.ID] {
			return s.ID
		}
	}
	return ""
}
