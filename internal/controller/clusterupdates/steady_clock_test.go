package clusterupdates

import (
	"testing"
	"time"
	"unsafe"
)

// set is a reading of a clock that was set meanwhile: the wall part of a Time differs, its
// monotonic part does not. The seconds are bits 30 to 62 of its first word.
func set(t time.Time, by time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) += uint64(by/time.Second) << 30
	return t
}

func TestClock(t *testing.T) {
	start := time.Now()
	if got := set(start, -6*time.Hour); got.Round(0).Sub(start.Round(0)) != -6*time.Hour || got.Sub(start) != 0 {
		t.Fatalf("set does not set: %s, %s", start, got)
	}
	at := func(after, by time.Duration) time.Time { return set(start.Add(after), by) }
	wall := func(t time.Time) time.Time { return t.Round(0) }
	c := &steadyClock{}
	c.convert(at(0, 0))
	if d := wall(c.convert(at(time.Minute, time.Hour))).Sub(wall(start)); d != time.Minute+time.Hour {
		t.Errorf("not held it is the wall clock: %s", d)
	}
	c.convert(at(2*time.Minute, 0))
	c.Hold(true)
	for i, by := range []time.Duration{6 * time.Hour, -6 * time.Hour, -20 * 365 * 24 * time.Hour, 0} {
		after := time.Duration(3+i) * time.Minute
		if d := wall(c.convert(at(after, by))).Sub(wall(start)); d != after {
			t.Errorf("held and set by %s: %s after the start, want %s", by, d, after)
		}
	}
	c.Hold(false)
	if d := wall(c.convert(at(8*time.Minute, time.Hour))).Sub(wall(start)); d != 8*time.Minute+time.Hour {
		t.Errorf("let go it is the wall clock: %s", d)
	}
	simulated := &steadyClock{} // times without a monotonic part, as tests have them
	simulated.convert(wall(start))
	simulated.Hold(true)
	if d := simulated.convert(wall(start).Add(time.Hour)).Sub(wall(start)); d != time.Hour {
		t.Errorf("of simulated times: %s", d)
	}
}
