package model

import (
	"testing"
	"time"
)

// Failures persist from the third check on, or when two checks are ten minutes apart; checks
// that events cause in between do not count.
func TestFailuresPersist(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		after []time.Duration
		count int
		want  bool
	}{
		"none":                             {nil, 0, false},
		"one":                              {[]time.Duration{0}, 1, false},
		"two":                              {[]time.Duration{0, 30 * time.Second}, 2, false},
		"three":                            {[]time.Duration{0, 30 * time.Second, time.Minute}, 3, true},
		"two in ten minutes":               {[]time.Duration{0, 10 * time.Minute}, 2, true},
		"two in less":                      {[]time.Duration{0, 10*time.Minute - time.Second}, 2, false},
		"a burst":                          {[]time.Duration{0, time.Second, 2 * time.Second, 19 * time.Second}, 1, false},
		"a burst, then at the usual times": {[]time.Duration{0, time.Second, 20 * time.Second, 40 * time.Second}, 3, true},
		"the clock was set back":           {[]time.Duration{0, -time.Hour, -time.Hour + time.Second, -time.Hour + 20*time.Second}, 3, true},
		"no more is counted":               {[]time.Duration{0, time.Minute, 2 * time.Minute, 3 * time.Minute}, 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var f Failures
			for _, d := range tc.after {
				f = f.Add("away", start.Add(d))
			}
			if f.Count != tc.count || f.Persistent() != tc.want {
				t.Errorf("%d checks, persistent %v", f.Count, f.Persistent())
			}
			if len(tc.after) > 0 && !f.Since.Equal(start) {
				t.Errorf("since %s", f.Since)
			}
		})
	}
}

func TestFailuresSay(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC)
	f := Failures{}.Add("timeout", start).Add("refused", start.Add(30*time.Second))
	if got := f.String(); got != "failed 2 of 3 times since 2026-11-28T08:00:00Z: refused" {
		t.Error(got)
	}
	if got := f.Add("refused", start.Add(time.Minute)).String(); got != "failed since 2026-11-28T08:00:00Z: refused" {
		t.Error(got)
	}
}
