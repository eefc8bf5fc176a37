package apiclient

import (
	"net/http"
	"sync"
	"time"
)

// longestAsk is how long an answer may take to say something about clocks: the
// header is as old as the half of that.
const longestAsk = 2 * time.Second

// skew is how far this node's clock is ahead of the API server's, learned from
// the Date header of answers that come anyway.
type skew struct {
	mu    sync.Mutex
	ahead time.Duration
	known bool
}

// Skew is how far this node's clock is ahead of the API server's, to a second;
// false until an answer came.
func (c *Client) Skew() (time.Duration, bool) {
	c.clock.mu.Lock()
	defer c.clock.mu.Unlock()
	return c.clock.ahead, c.clock.known
}

// watched is a transport that looks at the Date header of answers.
type watched struct {
	next http.RoundTripper
	see  *skew
	now  func() time.Time
}

func (t watched) RoundTrip(req *http.Request) (*http.Response, error) {
	asked := t.now()
	resp, err := t.next.RoundTrip(req)
	if err == nil {
		t.see.look(resp.Header.Get("Date"), asked, t.now())
	}
	return resp, err
}

// look compares a Date header with this node's clock. The header has whole
// seconds: half of one is added, and what is within two seconds is no skew.
func (s *skew) look(date string, asked, answered time.Time) {
	there, err := http.ParseTime(date)
	if err != nil || answered.Sub(asked) > longestAsk || answered.Before(asked) {
		return
	}
	here := asked.Add(answered.Sub(asked) / 2)
	ahead := here.Sub(there.Add(500 * time.Millisecond)).Round(time.Second)
	if ahead.Abs() <= 2*time.Second {
		ahead = 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead, s.known = ahead, true
}
