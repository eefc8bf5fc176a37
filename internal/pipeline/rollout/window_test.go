package rollout

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func loadZone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func parseTime(t testing.TB, s string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestFit(t *testing.T) {
	t.Parallel()
	berlin, lordHowe := loadZone(t, "Europe/Berlin"), loadZone(t, "Australia/Lord_Howe")
	night := Window{Days: []time.Weekday{time.Friday}, Start: 22 * 60, Duration: 8 * time.Hour, Zone: berlin}
	for name, tc := range map[string]struct {
		ws        []Window
		now       string
		low, high time.Duration
		may       bool
		closes    string // if open
		next      string // "" if it never fits
	}{
		"before it opens":                            {[]Window{night}, "2026-11-20T20:59:00Z", 0, 0, false, "", "2026-11-20T22:00:00+01:00"},
		"as it opens":                                {[]Window{night}, "2026-11-20T21:00:00Z", 0, 0, true, "2026-11-21T06:00:00+01:00", "2026-11-27T22:00:00+01:00"},
		"after midnight it is still Friday's":        {[]Window{night}, "2026-11-21T04:59:00Z", 0, 0, true, "2026-11-21T06:00:00+01:00", "2026-11-27T22:00:00+01:00"},
		"as it closes":                               {[]Window{night}, "2026-11-21T05:00:00Z", 0, 0, false, "", "2026-11-27T22:00:00+01:00"},
		"too little is left":                         {[]Window{night}, "2026-11-21T04:30:00Z", 20 * time.Minute, time.Hour, false, "2026-11-21T06:00:00+01:00", "2026-11-27T22:00:00+01:00"},
		"just enough is left":                        {[]Window{night}, "2026-11-21T04:00:00Z", 20 * time.Minute, time.Hour, true, "2026-11-21T06:00:00+01:00", "2026-11-27T22:00:00+01:00"},
		"longer than any window, as a rule not":      {[]Window{night}, "2026-11-20T21:00:00Z", time.Hour, 9 * time.Hour, true, "2026-11-21T06:00:00+01:00", "2026-11-27T22:00:00+01:00"},
		"longer than any window":                     {[]Window{night}, "2026-11-20T21:00:00Z", 9 * time.Hour, 9 * time.Hour, false, "2026-11-21T06:00:00+01:00", ""},
		"two that touch are one":                     {[]Window{{Start: 22 * 60, Duration: 2 * time.Hour, Zone: time.UTC}, {Start: 0, Duration: 3 * time.Hour, Zone: time.UTC}}, "2026-11-20T23:30:00Z", time.Hour, 2 * time.Hour, true, "2026-11-21T03:00:00Z", "2026-11-21T22:00:00Z"},
		"a day on which daylight saving time starts": {[]Window{{Start: 2*60 + 30, Duration: time.Hour, Zone: berlin}}, "2026-03-29T00:00:00Z", 0, 0, false, "", "2026-03-29T03:30:00+02:00"},
		"a night on which daylight saving time ends lasts as long as it says": {[]Window{{Start: 0, Duration: 5 * time.Hour, Zone: berlin}}, "2026-10-25T02:30:00Z", 0, 0, true, "2026-10-25T04:00:00+01:00", "2026-10-26T00:00:00+01:00"},
		"half an hour of summer time":                                         {[]Window{{Start: 60, Duration: time.Hour, Zone: lordHowe}}, "2026-10-03T12:00:00Z", 0, 0, false, "", "2026-10-04T01:00:00+10:30"},
	} {
		f := FitWindows(tc.ws, parseTime(t, tc.now), tc.low, tc.high)
		if f.Now != tc.may {
			t.Errorf("%s: may start %t", name, f.Now)
		}
		if got := formatKnown(f.Open, f.Closes); got != tc.closes {
			t.Errorf("%s: closes %q, want %q", name, got, tc.closes)
		}
		if got := formatKnown(!f.Next.IsZero(), f.Next); got != tc.next {
			t.Errorf("%s: next %q, want %q", name, got, tc.next)
		}
	}
}

func formatKnown(known bool, t time.Time) string {
	if !known {
		return ""
	}
	return t.Format(time.RFC3339)
}

// For any windows, minute for minute: a node that may start now would finish inside a
// window, and the next opening is one.
func TestFitIsInside(t *testing.T) {
	zones := []*time.Location{time.UTC, loadZone(t, "Europe/Berlin"), loadZone(t, "America/New_York"), loadZone(t, "Asia/Kolkata")}
	rapid.Check(t, func(t *rapid.T) {
		var ws []Window
		for range rapid.IntRange(1, 3).Draw(t, "windows") {
			w := Window{Start: rapid.IntRange(0, 24*60-1).Draw(t, "start"), Duration: time.Duration(rapid.IntRange(1, 30*60).Draw(t, "minutes")) * time.Minute, Zone: rapid.SampledFrom(zones).Draw(t, "zone")}
			for d := range time.Weekday(7) {
				if rapid.Bool().Draw(t, "day") {
					w.Days = append(w.Days, d)
				}
			}
			ws = append(ws, w)
		}
		now := time.Unix(rapid.Int64Range(1767225600, 1830000000).Draw(t, "now")/60*60, 0) // from 2026 on
		need := time.Duration(rapid.IntRange(0, 600).Draw(t, "need")) * time.Minute
		f := FitWindows(ws, now, need, need)
		if f.Open != openByMinute(ws, now) {
			t.Fatalf("open %t, minute by minute %t", f.Open, !f.Open)
		}
		for m := time.Duration(0); f.Now && m < need; m += time.Minute {
			if !openByMinute(ws, now.Add(m)) {
				t.Fatalf("a node that takes %s would still be at it at %s", need, now.Add(m))
			}
		}
		if !f.Next.IsZero() && (!openByMinute(ws, f.Next) || openByMinute(ws, f.Next.Add(-time.Minute)) || !f.Next.After(now)) {
			t.Fatalf("nothing opens at %s", f.Next)
		}
	})
}

// openByMinute asks every minute of the last two days whether a window opened then. A
// time of day that the clocks skipped is asked for where it would have been.
func openByMinute(ws []Window, now time.Time) bool {
	for _, w := range ws {
		y, m, d := now.In(w.Zone).Date()
		for back := range 10 {
			opens := time.Date(y, m, d-back+1, w.Start/60, w.Start%60, 0, 0, w.Zone)
			day := time.Date(y, m, d-back+1, 12, 0, 0, 0, w.Zone).Weekday()
			if (len(w.Days) == 0 || slices.Contains(w.Days, day)) && !now.Before(opens) && now.Before(opens.Add(w.Duration)) {
				return true
			}
		}
	}
	return false
}

func TestSpan(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{0: "0s", 45 * time.Second: "45s", time.Minute: "1m", 90 * time.Second: "1m30s", time.Hour: "1h",
		90 * time.Minute: "1h30m", 10 * time.Minute: "10m", 20 * time.Hour: "20h", 2*time.Hour + 10*time.Second: "2h0m10s"} {
		if got := FormatDuration(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}
