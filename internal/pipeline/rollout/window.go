package rollout

import (
	"fmt"
	"sort"
	"strings"
	"time"
)

// Window is a time in which nodes may start.
type Window struct {
	// Days on which it opens; none is every day.
	Days []time.Weekday
	// Start is the minute of the day at which it opens, in Zone. If the clocks skip
	// it that day, it opens as much later.
	Start int
	// Duration it stays open, up to a week.
	Duration time.Duration
	Zone     *time.Location
}

// opening is one opening of a window.
type opening struct {
	opens, closes time.Time
	zone          *time.Location
}

// maxOpen is how far ahead windows that follow each other without a gap are merged: with a
// month of open windows, the end does not matter.
const maxOpen = 28 * 24 * time.Hour

// lookAhead is how far ahead an opening is looked for: it comes once a week at
// the least, and the clocks may be set meanwhile.
const lookAhead = 9

// openings of all windows from a week before t on, merged where they touch or
// overlap, in order.
func openings(ws []Window, t time.Time) []opening {
	var all []opening
	for _, w := range ws {
		all = append(all, w.openings(t)...)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].opens.Before(all[j].opens) })
	var out []opening
	for _, s := range all {
		if n := len(out); n > 0 && !s.opens.After(out[n-1].closes) {
			if s.closes.After(out[n-1].closes) {
				out[n-1].closes = s.closes
			}
			continue
		}
		out = append(out, s)
	}
	return out
}

func (w Window) openings(t time.Time) []opening {
	y, m, day := t.In(w.Zone).Date()
	days := lookAhead + int(maxOpen/(24*time.Hour))
	// One end for all zones: if one window were listed and the adjacent one were not,
	// there would seem to be a gap.
	end := t.Add(time.Duration(days) * 24 * time.Hour)
	var out []opening
	for i := -lookAhead; i <= days+2; i++ {
		if date := time.Date(y, m, day+i, 12, 0, 0, 0, w.Zone); !w.opensOn(date.Weekday()) {
			continue
		}
		opens := time.Date(y, m, day+i, w.Start/60, w.Start%60, 0, 0, w.Zone)
		if opens.After(end) {
			break
		}
		out = append(out, opening{opens, opens.Add(w.Duration), w.Zone})
	}
	return out
}

func (w Window) opensOn(d time.Weekday) bool {
	for _, x := range w.Days {
		if x == d {
			return true
		}
	}
	return len(w.Days) == 0
}

// String says the window as people do: Mon, Tue 22:00 for 4h Europe/Berlin.
func (w Window) String() string {
	days := "every day"
	if len(w.Days) > 0 {
		names := make([]string, 0, len(w.Days))
		for _, d := range w.Days {
			names = append(names, d.String()[:3])
		}
		days = strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s %02d:%02d for %s %s", days, w.Start/60, w.Start%60, FormatDuration(w.Duration), w.Zone)
}

// WindowFit says whether a node may start now, and when it next may.
type WindowFit struct {
	// Now: a window is open and what is left of it is enough.
	Now bool
	// Open: a window is open until Closes, enough or not.
	Open   bool
	Closes time.Time
	// Next time at which a node may start, zero if no window is ever long enough.
	Next time.Time
	// Need is how long a node takes, 0 if none was ever timed.
	Need time.Duration
}

// FitWindows answers for at least one window, and a node that takes from low to high, as
// far as that was learned. It needs high. If no window is that long, low counts: a node
// that may overrun is better than one that waits for ever because one node once took long.
func FitWindows(ws []Window, now time.Time, low, high time.Duration) WindowFit {
	f := WindowFit{Need: high}
	all := openings(ws, now)
	if longest(all) < f.Need {
		f.Need = low
	}
	for _, s := range all {
		if !s.closes.After(now) {
			continue
		}
		if !s.opens.After(now) {
			f.Open, f.Closes = true, s.closes.In(s.zone)
			f.Now = s.closes.Sub(now) >= f.Need
		} else if s.closes.Sub(s.opens) >= f.Need {
			f.Next = s.opens.In(s.zone)
			return f
		}
	}
	return f
}

func longest(all []opening) time.Duration {
	var out time.Duration
	for _, s := range all {
		out = max(out, s.closes.Sub(s.opens))
	}
	return out
}

// DescribeWindows answers for people: until when a pool's nodes may start, or when they
// may next.
func DescribeWindows(ws []Window, now time.Time) string {
	if len(ws) == 0 {
		return ""
	}
	f := FitWindows(ws, now, 0, 0)
	if f.Open {
		return "open until " + FormatWindowTime(f.Closes)
	}
	return "opens " + FormatWindowTime(f.Next)
}

// FormatWindowTime is a time in its window's own zone, with the offset that tells apart
// what the clocks do twice.
func FormatWindowTime(t time.Time) string { return t.Format("Mon 2006-01-02 15:04 -07:00") }

// FormatDuration is a duration for people: 1h30m, 45s.
func FormatDuration(d time.Duration) string {
	d = d.Round(time.Second)
	s := d.String()
	if d >= time.Minute {
		s = strings.TrimSuffix(s, "m0s") + map[bool]string{true: "m"}[strings.HasSuffix(s, "m0s")]
		s = strings.TrimSuffix(s, "h0m") + map[bool]string{true: "h"}[strings.HasSuffix(s, "h0m")]
	}
	return s
}
