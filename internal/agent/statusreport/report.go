// Package statusreport decides when a node's agent writes its status.
//
// Promise: a change of state is written at once, mere progress seldom, and a
// heartbeat now and then. In a large cluster, which the controller shows by
// asking for fewer heartbeats, the steps of a run are progress too: its
// beginning and its end are written at once, so that thirty thousand nodes write
// twice for an update and not for every step.
//
// Inputs: the status as it is and as it was written last. Output: how long it may
// wait. Pure. Callers: internal/agent, and the simulated nodes of
// internal/lab/simulate, which must not write less than real ones.
package statusreport

import (
	"reflect"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
)

const (
	// progressEvery is how often mere progress is written in a small cluster.
	progressEvery = 10 * time.Second
	// heartbeatEvery is the longest time without a write, if nobody says more.
	heartbeatEvery = time.Minute
)

// Pace is how often an agent writes.
type Pace struct {
	// Beat is the longest time without a write, Progress the shortest time after
	// which mere progress is written.
	Beat, Progress time.Duration
	// Large: the steps of a run are progress.
	Large bool
}

// At is the pace that a NodeUpdate asks for; without a word it is that of a small
// cluster.
func At(spec v1alpha1.NodeUpdateSpec) Pace {
	p := Pace{Beat: heartbeatEvery, Progress: max(progressEvery, time.Duration(spec.ProgressSeconds)*time.Second)}
	if spec.HeartbeatSeconds <= 0 {
		return p
	}
	p.Beat, p.Large = time.Duration(spec.HeartbeatSeconds)*time.Second, true
	p.Progress = max(p.Progress, p.Beat/2)
	return p
}

// Wait is how long a status may still wait, since the last write; 0 means it is
// written now. sent is nil if none was written yet.
func (p Pace) Wait(status, sent *v1alpha1.NodeUpdateStatus, since time.Duration) time.Duration {
	switch {
	case sent == nil:
		return 0
	case !reflect.DeepEqual(p.plain(status, sent), p.plain(sent, status)):
		return 0
	case !reflect.DeepEqual(quiet(status), quiet(sent)):
		return max(0, p.Progress-since)
	}
	return max(0, p.Beat-since)
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

func (p Pace) plain(s, other *v1alpha1.NodeUpdateStatus) *v1alpha1.NodeUpdateStatus {
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
	if h := c.Pins; h != nil {
		complete := h.BytesDone == h.BytesTotal && h.ImagesPinned == h.ImagesTotal
		if !complete {
			h.ImagesReady, h.ImagesPinned, h.BytesDone = 0, 0, 0
			h.NeededBytes, h.BytesFromMedia, h.BytesFromPeers = nil, 0, 0
		}
	}
	if p.Large && underWay(c.Run, other.Run) {
		// What the steps change meanwhile comes with their end. A wait for something
		// else keeps its word.
		c.Phase, c.Observed, c.Run.Step, c.Run.StepsDone = "", nil, "", 0
		c.Run.Reason = moving(c.Run.Reason)
		for i := range c.Conditions {
			c.Conditions[i].Reason = moving(c.Conditions[i].Reason)
		}
	}
	return c
}

// moving is one word for all words that a run without trouble goes through.
func moving(reason string) string {
	if reason == v1alpha1.ReasonSettling {
		return v1alpha1.ReasonUpdating
	}
	return reason
}

// quietHealth is health without what changes from look to look: that alone is
// worth no write.
func quietHealth(h *v1alpha1.NodeHealth) {
	if h == nil {
		return
	}
	h.ClockSkewSeconds = nil
	if h.Etcd != nil {
		h.Etcd.SizeBytes, h.Etcd.InUseBytes = 0, 0
	}
}

// underWay reports whether both are the same run, which goes on.
func underWay(a, b *v1alpha1.NodeRunStatus) bool {
	return a != nil && b != nil && a.State == v1alpha1.RunRunning && b.State == v1alpha1.RunRunning && a.UID == b.UID && a.PlanDigest == b.PlanDigest && a.Attempt == b.Attempt
}
