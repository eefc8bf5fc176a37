package apiclient

import (
	"net/http"
	"sync"
	"time"
)

// maxRoundTrip is how long an answer may take to be used for the clock: its header is older
// by up to half of that.
const maxRoundTrip = 2 * time.Second

// skew is how far this node's clock is ahead of the API server's, from the Date header of
// answers to other requests.
type skew struct {
	mu    sync.Mutex
	ahead time.Duration
	known bool
}

// Skew is how far this node's clock is ahead of the API server's, to a second; false until
// there was an answer.
func (c *Client) Skew() (time.Duration, bool) {
	c.clock.mu.Lock()
	defer c.clock.mu.Unlock()
	return c.clock.ahead, c.clock.known
}

// skewTransport is a transport that reads the Date header of answers.
type skewTransport struct {
	next http.RoundTripper
	skew *skew
	now  func() time.Time
}

func (t skewTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	asked := t.now()
	resp, err := t.next.RoundTrip(req)
	if err == nil {
		t.skew.observeDate(resp.Header.Get("Date"), asked, t.now())
	}
	return resp, err
}

// observeDate compares a Date header with this node's clock. The header has whole seconds:
// half a second is added, and a difference of up to two seconds is no skew.
func (s *skew) observeDate(date string, asked, answered time.Time) {
	there, err := http.ParseTime(date)
	if err != nil || answered.Sub(asked) > maxRoundTrip || answered.Before(asked) {
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
