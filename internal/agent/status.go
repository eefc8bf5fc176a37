package agent

import (
	"context"
	"math/rand/v2"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/statusreport"
	"github.com/refit-dev/refit/internal/failpoint"
)

// settle is how long changes are gathered before a write.
const debounce = 250 * time.Millisecond

// statusLoop makes the NodeUpdate's status of the state, and writes it.
type statusLoop struct {
	*shared
	// issue shows the state on the consoles; nil if the configuration does not ask for it.
	issue *statusreport.Issue
	// issueFailed: the file of the issue could not be written.
	issueFailed bool
	// reboot asks reboot daemons for a reboot; rebootFailed: its file could not be written.
	reboot       *statusreport.Reboot
	rebootFailed bool
}

// Run writes the status: at once after a change of state, progress and heartbeats at
// intervals.
func (l *statusLoop) Run(ctx context.Context) {
	if l.issue != nil {
		defer l.issue.Remove()
	}
	l.restoreReached()
	var last time.Time
	pace := l.pace()
	wait := time.Duration(0)
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wakeStatus:
		case <-time.After(max(wait, debounce)):
		}
		if sleep(ctx, debounce); ctx.Err() != nil {
			return
		}
		now := time.Now()
		status := l.status(now).DeepCopy() // it shares parts with the state
		statusreport.Clean(status)
		l.writeLocal(status, now)
		urgency := l.urgency(status, now.Sub(last), pace)
		if urgency > 0 {
			wait = min(urgency, statusreport.LocalInterval)
			continue
		}
		err := l.publish(ctx, status, now)
		l.recordAnswer(now, err)
		l.writeLocal(status, now)
		if err != nil {
			if !failing { // log once: an API server may be unavailable for minutes
				l.log.Info("failed to write status; retrying", "error", err)
			}
			failing = true
			wait = 2*time.Second + rand.N(2*time.Second)
			sleep(ctx, wait)
			continue
		}
		failing = false
		last, wait = now, min(pace.Heartbeat, statusreport.LocalInterval)
		pace = l.pace()
	}
}

// pace returns how often this agent writes. Heartbeats are a little early, and at different
// times on different nodes.
func (l *statusLoop) pace() statusreport.Intervals {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := statusreport.IntervalsFor(v1alpha1.NodeUpdateSpec{})
	if l.want != nil {
		p = statusreport.IntervalsFor(l.want.Spec)
	}
	p.Heartbeat -= p.Heartbeat/12 + rand.N(p.Heartbeat/6)
	return p
}

// urgency returns how long a status may still wait; 0 means that the loop writes it now.
func (l *statusLoop) urgency(status *v1alpha1.NodeUpdateStatus, since time.Duration, p statusreport.Intervals) time.Duration {
	l.mu.Lock()
	sent, present := l.state.sent, l.state.present
	l.mu.Unlock()
	if !present {
		return time.Second
	}
	return p.Wait(status, sent, since)
}

func (l *statusLoop) publish(ctx context.Context, status *v1alpha1.NodeUpdateStatus, now time.Time) error {
	t := metav1.NewTime(now.Truncate(time.Second))
	status.Agent.Heartbeat = &t
	failpoint.Here(failpoint.StatusApply)
	if err := l.api.ApplyStatus(ctx, status); err != nil {
		return err
	}
	if status.Run != nil && status.Run.State != v1alpha1.RunRunning {
		failpoint.Here(failpoint.RunReported)
	}
	l.mu.Lock()
	l.state.sent = status
	l.mu.Unlock()
	return nil
}
