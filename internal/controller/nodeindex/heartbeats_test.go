package nodeindex

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
)

var heartbeatStart = time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC)

func beating(at time.Time) *v1alpha1.NodeUpdate {
	t := metav1.NewTime(at)
	return &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: v1alpha1.NodeUpdateStatus{Agent: &v1alpha1.AgentInfo{Heartbeat: &t}}}
}

// A node's clock may be wrong: what counts is when its heartbeat was seen to change.
func TestHeard(t *testing.T) {
	var p Heartbeats
	hourAgo := heartbeatStart.Add(-time.Hour)
	if !p.Silent(nil, heartbeatStart) || !p.Silent(&v1alpha1.NodeUpdate{}, heartbeatStart) {
		t.Error("an agent that never spoke is silent")
	}
	if !p.Silent(beating(hourAgo), heartbeatStart) {
		t.Error("an old heartbeat that was there before is an old heartbeat")
	}
	if p.Silent(beating(hourAgo.Add(time.Minute)), heartbeatStart.Add(time.Minute)) {
		t.Error("one that changes lives, although its clock is an hour behind")
	}
	if !p.Silent(beating(hourAgo.Add(time.Minute)), heartbeatStart.Add(10*time.Minute)) {
		t.Error("one that stops changing is silent")
	}
	var fresh Heartbeats
	if fresh.Silent(beating(heartbeatStart.Add(time.Hour)), heartbeatStart) {
		t.Error("a clock that is ahead is no silence")
	}
	if !fresh.Silent(beating(heartbeatStart.Add(time.Hour)), heartbeatStart.Add(5*time.Minute)) {
		t.Error("nor is it life for an hour")
	}
}

// What was before this process saw an agent first does not count: the API server may have been
// away.
func TestWatched(t *testing.T) {
	var p Heartbeats
	at := func(m int) time.Time { return heartbeatStart.Add(time.Duration(m) * time.Minute) }
	for _, tc := range []struct {
		beat, now int
		want      time.Duration
	}{{-600, 0, 0}, {-600, 20, 20 * time.Minute}, {-580, 21, 0}, {-580, 61, 40 * time.Minute}} {
		if got := p.Watched(beating(at(tc.beat)), at(tc.now)); got != tc.want {
			t.Errorf("at minute %d: watched for %s, not %s", tc.now, got, tc.want)
		}
	}
	if got := p.Watched(nil, at(0)); got != 0 {
		t.Errorf("an agent that never spoke was watched for %s", got)
	}
}
