package model

import (
	"fmt"
	"time"
)

// Failures are checks of one object that failed one after the other. A single one may be a
// blip: conditions name a failure from the first check on, and change when it persists.
type Failures struct {
	// Count of them; it stops when they persist.
	Count int
	// Since is the time of the first one, Last that of the last one that was counted.
	Since, Last time.Time
	Message     string
}

const (
	// persistentCount failed checks persist.
	persistentCount = 3
	// PersistentTime makes two failed checks persistent.
	PersistentTime = 10 * time.Minute
	// checkSpacing is the least time between two checks that count: events may cause many
	// checks in one second.
	checkSpacing = 20 * time.Second
)

// Add adds a failed check.
func (f Failures) Add(message string, now time.Time) Failures {
	if f.Count == 0 {
		return Failures{Count: 1, Since: now, Last: now, Message: message}
	}
	f.Message = message
	if rest := now.Sub(f.Last); !f.Persistent() && (rest >= checkSpacing || rest < 0) { // less than 0: the clock was set
		f.Count, f.Last = f.Count+1, now
	}
	return f
}

// Persistent reports whether conditions change because of the failures.
func (f Failures) Persistent() bool {
	return f.Count >= persistentCount || f.Last.Sub(f.Since) >= PersistentTime
}

// String is the failure for people.
func (f Failures) String() string {
	since := f.Since.UTC().Format(time.RFC3339)
	if f.Persistent() {
		return fmt.Sprintf("failed since %s: %s", since, f.Message)
	}
	return fmt.Sprintf("failed %d of %d times since %s: %s", f.Count, persistentCount, since, f.Message)
}
