package clusterupdates

import "time"

// steadyClock is the wall clock until it is held; then it continues with the monotonic clock.
// It is not safe for concurrent use.
type steadyClock struct {
	last time.Time
	held bool
}

// convert converts a reading of the wall clock into a reading of this clock.
func (c *steadyClock) convert(wall time.Time) time.Time {
	if c.held {
		wall = c.last.Add(wall.Sub(c.last)) // the difference is monotonic
	}
	c.last = wall
	return wall
}

// Hold turns the wall clock's changes off or on.
func (c *steadyClock) Hold(on bool) { c.held = on && !c.last.IsZero() }
