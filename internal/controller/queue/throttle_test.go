package queue

import (
	"testing"
	"time"
)

func TestDue(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC)
	after := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	for name, tc := range map[string]struct {
		nodes int
		again time.Time
		want  bool
	}{
		"a small cluster saves nothing":               {3, start, true},
		"a large one rests":                           {30000, after(9), false},
		"but not for ever":                            {30000, after(10), true},
		"a middling one rests less":                   {3000, after(3.5), true},
		"a clock that was set back does not stop all": {30000, after(-60), true},
	} {
		var p Throttle
		if !p.TakeDue("x", tc.nodes, start) || !p.TakeDue("y", tc.nodes, start) {
			t.Errorf("%s: the first time is not due", name)
		}
		if got := p.TakeDue("x", tc.nodes, tc.again); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
