package apiclient

import (
	"net/http"
	"testing"
	"time"
)

func TestSkewOfTheNodesClock(t *testing.T) {
	t.Parallel()
	there := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	date := there.Format(http.TimeFormat)
	for name, tc := range map[string]struct {
		date  string
		asked time.Time
		took  time.Duration
		want  time.Duration
		known bool
	}{
		"the same clock":                     {date, there.Add(400 * time.Millisecond), 100 * time.Millisecond, 0, true},
		"a second is within the header":      {date, there.Add(1500 * time.Millisecond), 0, 0, true},
		"minutes ahead":                      {date, there.Add(3*time.Minute + 500*time.Millisecond), 0, 3 * time.Minute, true},
		"minutes behind":                     {date, there.Add(-3*time.Minute + 500*time.Millisecond), 0, -3 * time.Minute, true},
		"a slow answer says nothing":         {date, there, 5 * time.Second, 0, false},
		"a clock that jumped says nothing":   {date, there, -time.Minute, 0, false},
		"an answer without date":             {"", there, 0, 0, false},
		"a header that is no date":           {"yesterday", there, 0, 0, false},
		"half of the way counts to each end": {date, there.Add(10 * time.Second), time.Second, 10 * time.Second, true},
	} {
		var c Client
		c.clock.observeDate(tc.date, tc.asked, tc.asked.Add(tc.took))
		if got, known := c.Skew(); got != tc.want || known != tc.known {
			t.Errorf("%s: %s %v", name, got, known)
		}
	}
}
