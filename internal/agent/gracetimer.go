package agent

import (
	"sync"
	"time"
)

// unwantedGrace is how long images and blobs must be unwanted before the agent removes them. A
// recreated NodeUpdate has an empty spec for a moment, and a site without its medium cannot
// fetch the content again.
const unwantedGrace = 10 * time.Minute

// graceTimer records since when objects have been unwanted. Safe for concurrent use.
type graceTimer struct {
	// Grace is how long an object must be unwanted.
	Grace time.Duration

	mu    sync.Mutex
	since map[string]time.Time
}

// Over reports whether a thing has been unwanted for the grace time.
func (u *graceTimer) Expired(what string, wanted bool) bool {
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
