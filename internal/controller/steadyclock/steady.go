// Package steadyclock is the clock of an update that moves nodes: one that nobody sets
// meanwhile.
//
// Promise: while it is held, the time between two readings is that of the monotonic
// clock, whatever NTP or a person makes of the wall clock: a drain does not exceed its
// limit, and a soak does not end, because a clock was set. It is the wall clock again
// when it is let go. Inputs: readings of the wall clock. Outputs: times to write down
// and to compare. Callers: the update controller; windows are of the wall clock.
package steadyclock

import "time"

// Clock is the wall clock until it is held. It is not for two goroutines at once.
type Clock struct {
	last time.Time
	held bool
}

// Read turns a reading of the wall clock into one of this clock.
func (c *Clock) Read(wall time.Time) time.Time {
	if c.held {
		wall = c.last.Add(wall.Sub(c.last)) // the difference is monotonic
	}
	c.last = wall
	return wall
}

// Hold says whether the wall clock counts no more.
func (c *Clock) Hold(on bool) { c.held = on && !c.last.IsZero() }
