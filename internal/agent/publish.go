package agent

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/statusreport"
	"github.com/refit-dev/refit/internal/failpoint"
)

// settle is how long changes are gathered before a write.
const settle = 250 * time.Millisecond

// publishLoop writes the status: at once when something changed, progress
// seldom, a heartbeat now and then.
func (a *Agent) publishLoop(ctx context.Context) {
	var last time.Time
	pace := a.pace()
	wait := time.Duration(0)
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wakePublish:
		case <-time.After(max(wait, settle)):
		}
		if sleep(ctx, settle); ctx.Err() != nil {
			return
		}
		now := time.Now()
		status := a.status(now).DeepCopy() // parts of it are the state's
		statusreport.Clean(status)
		a.writeLocal(status)
		urgency := a.urgency(status, now.Sub(last), pace)
		if urgency > 0 {
			wait = urgency
			continue
		}
		if err := a.publish(ctx, status, now); err != nil {
			if !failing { // once: an API server may be away for minutes
				a.log.Info("failed to write status; retrying", "error", err)
			}
			failing = true
			wait = 2*time.Second + rand.N(2*time.Second)
			sleep(ctx, wait)
			continue
		}
		failing = false
		last, wait = now, pace.Beat
		pace = a.pace()
	}
}

// pace is how often this agent is to write. Heartbeats come somewhat before they
// must, and not at the same time on all nodes.
func (a *Agent) pace() statusreport.Pace {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := statusreport.At(v1alpha1.NodeUpdateSpec{})
	if a.want != nil {
		p = statusreport.At(a.want.Spec)
	}
	p.Beat -= p.Beat/12 + rand.N(p.Beat/6)
	return p
}

// urgency is how long a status may still wait; 0 means it is written now.
func (a *Agent) urgency(status *v1alpha1.NodeUpdateStatus, since time.Duration, p statusreport.Pace) time.Duration {
	a.mu.Lock()
	sent, present := a.state.sent, a.state.present
	a.mu.Unlock()
	if !present {
		return time.Second
	}
	return p.Wait(status, sent, since)
}

func (a *Agent) publish(ctx context.Context, status *v1alpha1.NodeUpdateStatus, now time.Time) error {
	t := metav1.NewTime(now.Truncate(time.Second))
	status.Agent.Heartbeat = &t
	failpoint.Here(failpoint.StatusApply)
	if err := a.api.ApplyStatus(ctx, status); err != nil {
		return err
	}
	if status.Run != nil && status.Run.State != v1alpha1.RunRunning {
		failpoint.Here(failpoint.RunReported)
	}
	a.mu.Lock()
	a.state.sent = status
	a.mu.Unlock()
	return nil
}

// writeLocal leaves the status where `refit-agent status` finds it. Without a
// cluster that is all a technician has.
func (a *Agent) writeLocal(status *v1alpha1.NodeUpdateStatus) {
	b, err := json.MarshalIndent(map[string]any{"node": a.conf.Node, "status": status}, "", "  ")
	if err != nil {
		return
	}
	path := filepath.Join(a.conf.RunDir, "status.json")
	_ = os.MkdirAll(a.conf.RunDir, 0o755)
	if os.WriteFile(path+".new", b, 0o600) == nil { // a hint for people: not synced
		_ = os.Rename(path+".new", path)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
