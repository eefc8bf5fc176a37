package cli

import (
	"errors"
	"strings"
	"testing"
	"time"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
)

// A controller that does not answer ends the wait soon. Nodes that prepare do not, unless the user
// asked for it: a slow stick takes hours.
func TestLimitOfThePlan(t *testing.T) {
	const hours = 5 * time.Hour
	down := errors.New("connection refused")
	for name, c := range map[string]struct {
		wait    bool
		timeout time.Duration
		phase   string
		failed  error
		// ends is when the wait is over; 0 is never.
		ends time.Duration
		says string
	}{
		"the controller does not answer":      {phase: "", ends: planTime, says: "is the controller running?"},
		"it plans forever":                    {wait: true, phase: v1alpha1.PhasePlanning, ends: planTime, says: "is the controller running?"},
		"the API server is unavailable":       {wait: true, failed: down, ends: planTime, says: "connection refused"},
		"nodes prepare":                       {wait: true, phase: v1alpha1.PhasePreparing},
		"nodes prepare, and no user waits":    {phase: v1alpha1.PhasePreparing, ends: planTime, says: "no answer within 1m0s"},
		"nodes prepare longer than asked for": {wait: true, timeout: time.Hour, phase: v1alpha1.PhasePreparing, ends: time.Hour, says: "not prepared within 1h0m0s: Preparing; the nodes go on"},
		"no plan within the time asked for":   {timeout: time.Second, phase: "", ends: time.Second, says: "no answer within 1s"},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Unix(0, 0)
			l := planLimit{wait: c.wait, timeout: c.timeout, deadline: began.Add(planTime)}
			if c.timeout > 0 {
				l.deadline = began.Add(c.timeout)
			}
			u := &v1alpha1.ClusterUpdate{Status: v1alpha1.ClusterUpdateStatus{Phase: c.phase}}
			for at := time.Duration(0); at < hours; at += time.Second {
				err := l.check(u, c.failed, began.Add(at))
				if err == nil {
					continue
				}
				if c.ends == 0 || at != c.ends+time.Second || !strings.Contains(err.Error(), c.says) || console.ExitCode(err) != console.ExitInProgress {
					t.Errorf("after %s: exit code %d, %v", at, console.ExitCode(err), err)
				}
				return
			}
			if c.ends != 0 {
				t.Error("it never ended")
			}
		})
	}
}

// The API server may go away while nodes prepare: the wait then ends a while after its last answer.
func TestLimitAfterTheLastAnswer(t *testing.T) {
	began := time.Unix(0, 0)
	l := planLimit{wait: true, deadline: began.Add(planTime)}
	u := &v1alpha1.ClusterUpdate{Status: v1alpha1.ClusterUpdateStatus{Phase: v1alpha1.PhasePreparing}}
	last := began.Add(time.Hour)
	if err := l.check(u, nil, last); err != nil {
		t.Fatal(err)
	}
	down := errors.New("connection refused")
	if err := l.check(u, down, last.Add(planTime)); err != nil {
		t.Errorf("too soon: %v", err)
	}
	if err := l.check(u, down, last.Add(planTime+time.Second)); err == nil {
		t.Error("it never ends")
	}
}
