package agent

import (
	"sync"
	"time"
)

// unwantedGrace is how long something must be unwanted before it is let go. A
// NodeUpdate that is made anew has an empty spec for a moment, and what is on a
// site without its stick cannot be fetched again.
const unwantedGrace = 10 * time.Minute

// graceTimer remembers since when things are not wanted. Safe for concurrent use.
type graceTimer struct {
	// Grace is how long something must be unwanted.
	Grace time.Duration

	mu    sync.Mutex
	since map[string]time.Time
}

// Over reports whether a thing has been unwanted for the grace time.
func (u *graceTimer) Over(what string, wanted bool) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if wanted {
		delete(u.since, what)
		return false
	}
	if u.since == nil {
		u.since = map[string]time.Time{}
	}
	first, ok := u.since[what]
	if !ok {
		first = time.Now()
		u.since[what] = first
	}
	return time.Since(first) >= u.Grace
}
