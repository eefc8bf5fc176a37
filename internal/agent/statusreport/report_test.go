package statusreport

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
)

var (
	small = IntervalsFor(v1alpha1.NodeUpdateSpec{})
	large = IntervalsFor(v1alpha1.NodeUpdateSpec{HeartbeatSeconds: 960, ProgressSeconds: 640})
)

// A database that grows and a clock that drifts are no reason to write; a
// member that is not healthy any more is.
func TestHealthIsQuietUntilItMatters(t *testing.T) {
	t.Parallel()
	say := func(skew int32, size int64, healthy bool) *v1alpha1.NodeUpdateStatus {
		return &v1alpha1.NodeUpdateStatus{Health: &v1alpha1.NodeHealth{ClockSkewSeconds: &skew, Etcd: &v1alpha1.EtcdHealth{Healthy: healthy, SizeBytes: size, InUseBytes: size / 2}}}
	}
	a, p := say(0, 10, true), small
	if w := p.Wait(say(1, 20, true), a, 0); w != p.Heartbeat {
		t.Errorf("numbers that change at every look are written after %s, not with the heartbeat", w)
	}
	if w := p.Wait(say(0, 10, false), a, 0); w != 0 {
		t.Errorf("a member that fell ill waits %s", w)
	}
	if a.Health.Etcd.SizeBytes != 10 || a.Health.ClockSkewSeconds == nil {
		t.Error("the comparison changed the report")
	}
}

// What is written at once, and what waits for how long (R0: at most every
// max(10 s, nodes/50 s)).
func TestWait(t *testing.T) {
	t.Parallel()
	at := func(change func(*v1alpha1.NodeUpdateStatus)) *v1alpha1.NodeUpdateStatus {
		s := &v1alpha1.NodeUpdateStatus{Phase: "Updating", Message: "step kubeadm: started", Observed: &v1alpha1.Observed{KubeletVersion: "v1.35.4"},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonUpdating}},
			Run:        &v1alpha1.NodeRunStatus{UID: "u", PlanDigest: "p", Attempt: 1, State: v1alpha1.RunRunning, Step: "kubeadm", Reason: v1alpha1.ReasonUpdating}}
		if change != nil {
			change(s)
		}
		return s
	}
	settling := func(s *v1alpha1.NodeUpdateStatus) {
		s.Phase, s.Message = "Settling", "waiting for the kubelet"
		s.Observed.KubeletVersion = "v1.36.3"
		s.Run.Step, s.Run.StepsDone, s.Run.Reason = "settle", 2, v1alpha1.ReasonSettling
		s.Conditions[0].Reason = v1alpha1.ReasonSettling
	}
	for name, c := range map[string]struct {
		now          *v1alpha1.NodeUpdateStatus
		small, large time.Duration
	}{
		"nothing new":                          {at(nil), time.Minute, 960 * time.Second},
		"another line of a program":            {at(func(s *v1alpha1.NodeUpdateStatus) { s.Message = "pulling" }), 10 * time.Second, 640 * time.Second},
		"the next step, and what it has moved": {at(settling), 0, 640 * time.Second},
		"a step that waits for something":      {at(func(s *v1alpha1.NodeUpdateStatus) { s.Run.Reason = v1alpha1.ReasonInsufficientSpace }), 0, 0},
		"a node that is stopped":               {at(func(s *v1alpha1.NodeUpdateStatus) { s.Conditions[0].Status = metav1.ConditionFalse }), 0, 0},
		"the end":                              {at(func(s *v1alpha1.NodeUpdateStatus) { settling(s); s.Run.State = v1alpha1.RunSucceeded }), 0, 0},
		"another attempt":                      {at(func(s *v1alpha1.NodeUpdateStatus) { settling(s); s.Run.Attempt = 2 }), 0, 0},
	} {
		if w := small.Wait(c.now, at(nil), 0); w != c.small {
			t.Errorf("%s: waits %s in a small cluster, want %s", name, w, c.small)
		}
		if w := large.Wait(c.now, at(nil), 0); w != c.large {
			t.Errorf("%s: waits %s in a large cluster, want %s", name, w, c.large)
		}
	}
	if w := large.Wait(at(nil), nil, 0); w != 0 {
		t.Errorf("the first status waits %s", w)
	}
}
