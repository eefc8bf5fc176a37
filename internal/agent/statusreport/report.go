package statusreport

import (
	"reflect"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
)

const (
	// progressEvery is how often mere progress is written in a small cluster.
	progressEvery = 10 * time.Second
	// heartbeatEvery is the longest time without a write, unless the NodeUpdate sets one.
	heartbeatEvery = time.Minute
)

// Intervals are how often an agent writes.
type Intervals struct {
	// Heartbeat is the longest time without a write, Progress the shortest time after
	// which mere progress is written.
	Heartbeat, Progress time.Duration
	// Large: the steps of a run count as progress.
	Large bool
}

// IntervalsFor are the intervals that a NodeUpdate asks for; by default those of a small
// cluster.
func IntervalsFor(spec v1alpha1.NodeUpdateSpec) Intervals {
	p := Intervals{Heartbeat: heartbeatEvery, Progress: max(progressEvery, time.Duration(spec.ProgressSeconds)*time.Second)}
	if spec.HeartbeatSeconds <= 0 {
		return p
	}
	p.Heartbeat, p.Large = time.Duration(spec.HeartbeatSeconds)*time.Second, true
	p.Progress = max(p.Progress, p.Heartbeat/2)
	return p
}

// Wait is how long a status may still wait, since the last write; 0 means write it now. sent
// is nil if none was written yet.
func (p Intervals) Wait(status, sent *v1alpha1.NodeUpdateStatus, since time.Duration) time.Duration {
	switch {
	case sent == nil:
		return 0
	case !reflect.DeepEqual(p.withoutProgress(status, sent), p.withoutProgress(sent, status)):
		return 0
	case !reflect.DeepEqual(withoutHeartbeat(status), withoutHeartbeat(sent)):
		return max(0, p.Progress-since)
	}
	return max(0, p.Heartbeat-since)
}

// withoutHeartbeat is a status without the heartbeat. withoutProgress is one without progress
// as well: without numbers that change all the time, and without sentences, which have such
// numbers or the last line of a program's output. A state is its phase, its reason, its
// conditions.
func withoutHeartbeat(s *v1alpha1.NodeUpdateStatus) *v1alpha1.NodeUpdateStatus {
	c := s.DeepCopy()
	if c.Agent != nil {
		c.Agent.Heartbeat = nil
	}
	dropSamples(c.Health)
	return c
}

func (p Intervals) withoutProgress(s, other *v1alpha1.NodeUpdateStatus) *v1alpha1.NodeUpdateStatus {
	c := withoutHeartbeat(s)
	for i := range c.FileSystems {
		c.FileSystems[i].FreeBytes = 0
	}
	c.Message = ""
	for i := range c.FailedFetches {
		c.FailedFetches[i].Message = ""
	}
	for i := range c.Conditions {
		c.Conditions[i].Message = ""
	}
	if c.Run != nil {
		c.Run.Message = ""
	}
	if h := c.Pins; h != nil {
		complete := h.BytesDone == h.BytesTotal && h.ImagesPinned == h.ImagesTotal
		if !complete {
			h.ImagesReady, h.ImagesPinned, h.BytesDone = 0, 0, 0
			h.NeededBytes, h.BytesFromMedia, h.BytesFromPeers, h.BytesFromRegistry = nil, 0, 0, 0
		}
	}
	if p.Large && isSameRun(c.Run, other.Run) {
		// Changes by the steps come with the end of the run. A wait for something else keeps
		// its reason.
		c.Phase, c.Observed, c.Run.Step, c.Run.StepsDone = "", nil, "", 0
		c.Run.Reason = reasonInRun(c.Run.Reason)
		for i := range c.Conditions {
			c.Conditions[i].Reason = reasonInRun(c.Conditions[i].Reason)
		}
	}
	return c
}

// reasonInRun is one word for all words of a run without trouble.
func reasonInRun(reason string) string {
	if reason == v1alpha1.ReasonSettling {
		return v1alpha1.ReasonUpdating
	}
	return reason
}

// dropSamples removes from health what changes from one observation to the next: that alone
// is worth no write.
func dropSamples(h *v1alpha1.NodeHealth) {
	if h == nil {
		return
	}
	h.ClockSkewSeconds = nil
	if h.Etcd != nil {
		h.Etcd.SizeBytes, h.Etcd.InUseBytes = 0, 0
	}
}

// isSameRun reports whether both are the same run, and it is in progress.
func isSameRun(a, b *v1alpha1.NodeRunStatus) bool {
	return a != nil && b != nil && a.State == v1alpha1.RunRunning && b.State == v1alpha1.RunRunning && a.UID == b.UID && a.PlanDigest == b.PlanDigest && a.Attempt == b.Attempt
}
