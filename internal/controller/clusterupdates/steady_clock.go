package clusterupdates

import "time"

// steadyClock is the wall clock until it is held. It is not for two goroutines at once.
type steadyClock struct {
	last time.Time
	held bool
}

// convert turns a reading of the wall clock into one of this clock.
func (c *steadyClock) convert(wall time.Time) time.Time {
	if c.held {
		wall = c.last.Add(wall.Sub(c.last)) // the difference is monotonic
	}
	c.last = wall
	return wall
}

// Hold says whether the wall clock counts no more.
func (c *steadyClock) Hold(on bool) { c.held = on && !c.last.IsZero() }
