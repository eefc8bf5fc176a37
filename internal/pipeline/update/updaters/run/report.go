package run

import (
	"context"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/failpoint"
)

// write adds to the journal; without a journal nothing may go on.
func (e *Engine) write(ctx context.Context, j *journal, en entry) bool {
	for {
		en.At = e.now()
		err := j.add(en)
		if err == nil {
			return true
		}
		e.Log.Error("the run waits: its journal cannot be written", "because", err)
		e.sleep(ctx, 5*time.Second)
		if ctx.Err() != nil {
			return false
		}
	}
}

func (e *Engine) finish(ctx context.Context, j *journal, state v1alpha1.RunState, step, reason, message string, report func(*v1alpha1.NodeRunStatus)) {
	// A run that cannot be closed in the journal is not reported as over.
	if !e.write(ctx, j, entry{Event: eventFinish, State: state, Step: step, Reason: reason, Message: cut(message)}) {
		return
	}
	failpoint.Here(failpoint.JournalFinish)
	e.Log.Info("a run is over", "update", j.run.Name, "state", state, "step", step, "because", message)
	report(e.status(j, "", "", ""))
}

// cut keeps what is at the end of a message: a failure's last lines say most.
func cut(s string) string {
	const most, head = 1200, 400
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:head]+"\n...\n"+s[len(s)-(most-head-5):], "")
}

func (e *Engine) status(j *journal, step, reason, message string) *v1alpha1.NodeRunStatus {
	began := metav1.NewTime(j.began.Truncate(time.Second))
	s := &v1alpha1.NodeRunStatus{UID: j.run.UID, PlanDigest: j.run.PlanDigest, Attempt: j.run.Attempt,
		State: v1alpha1.RunRunning, Step: step, StepsDone: int32(len(j.ended)), Reason: reason, Message: cut(message), StartedAt: &began}
	if f := j.finish; f != nil {
		at := metav1.NewTime(f.At.Truncate(time.Second))
		s.State, s.Step, s.Reason, s.Message, s.FinishedAt = f.State, f.Step, f.Reason, f.Message, &at
	}
	return s
}
