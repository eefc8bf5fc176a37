package agent

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/failpoint"
)

const (
	// progressEvery is how often mere progress is written.
	progressEvery = 10 * time.Second
	// heartbeatEvery is the longest time without a write, if nobody says more.
	heartbeatEvery = time.Minute
	// settle is how long changes are gathered before a write.
	settle = 250 * time.Millisecond
)

// publishLoop writes the status: at once when something changed, progress
// seldom, a heartbeat now and then.
func (a *Agent) publishLoop(ctx context.Context) {
	var last time.Time
	beat := a.heartbeat()
	wait := time.Duration(0)
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.kickPublish:
		case <-time.After(max(wait, settle)):
		}
		if sleep(ctx, settle); ctx.Err() != nil {
			return
		}
		now := time.Now()
		status := a.status(now)
		a.writeLocal(status)
		urgency := a.urgency(status, now.Sub(last), beat)
		if urgency > 0 {
			wait = urgency
			continue
		}
		if err := a.publish(ctx, status, now); err != nil {
			if !failing { // once: an API server may be away for minutes
				a.log.Info("the status cannot be written, it is tried until it can", "because", err)
			}
			failing = true
			wait = 2*time.Second + rand.N(2*time.Second)
			sleep(ctx, wait)
			continue
		}
		failing = false
		last, wait = now, beat
		beat = a.heartbeat()
	}
}

// heartbeat is when the next one is due: somewhat before it must be, and not at
// the same time on all nodes.
func (a *Agent) heartbeat() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	every := heartbeatEvery
	if a.want != nil && a.want.Spec.HeartbeatSeconds > 0 {
		every = time.Duration(a.want.Spec.HeartbeatSeconds) * time.Second
	}
	return every - every/12 - rand.N(every/6)
}

// urgency is how long a status may still wait; 0 means it is written now.
func (a *Agent) urgency(status *v1alpha1.NodeUpdateStatus, since, beat time.Duration) time.Duration {
	a.mu.Lock()
	sent, present := a.state.sent, a.state.present
	a.mu.Unlock()
	switch {
	case !present:
		return time.Second
	case sent == nil:
		return 0
	case !reflect.DeepEqual(plain(status), plain(sent)):
		return 0
	case !reflect.DeepEqual(quiet(status), quiet(sent)):
		return max(0, progressEvery-since)
	}
	return max(0, beat-since)
}

// quiet is a status without the heartbeat; plain is one without progress as
// well: without numbers that change all the time, and without the sentences,
// which hold such numbers or the last line that a program printed. A state is
// its phase, its reason, its conditions.
func quiet(s *v1alpha1.NodeUpdateStatus) *v1alpha1.NodeUpdateStatus {
	c := s.DeepCopy()
	if c.Agent != nil {
		c.Agent.Heartbeat = nil
	}
	quietHealth(c.Health)
	return c
}

func plain(s *v1alpha1.NodeUpdateStatus) *v1alpha1.NodeUpdateStatus {
	c := quiet(s)
	for i := range c.FileSystems {
		c.FileSystems[i].FreeBytes = 0
	}
	c.Message = ""
	for i := range c.Conditions {
		c.Conditions[i].Message = ""
	}
	if c.Run != nil {
		c.Run.Message = ""
	}
	if h := c.Holding; h != nil {
		complete := h.BytesDone == h.BytesTotal && h.ImagesPinned == h.ImagesTotal
		if !complete {
			h.ImagesHeld, h.ImagesPinned, h.BytesDone = 0, 0, 0
			h.NeededBytes, h.BytesFromMedia, h.BytesFromPeers = nil, 0, 0
		}
	}
	return c
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
