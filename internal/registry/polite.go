package registry

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/refit-dev/refit/internal/outbound"
)

// Kind of a failed request.
type Kind string

// Kinds.
const (
	Away           Kind = "away"            // no answer, or a fault of its own
	Limited        Kind = "limited"         // too many questions: it said to wait
	Denied         Kind = "denied"          // the credentials are missing or not enough
	TagDeleted     Kind = "tag gone"        // the repository answers and has no such tag
	RepositoryGone Kind = "repository gone" // no such repository
	Odd            Kind = "odd"             // an answer that no registry gives
)

// Failure of a question.
type Failure struct {
	Kind Kind
	// Where was asked.
	Where string
	// Until when it is not asked again; zero if it may be at once.
	Until time.Time
	Err   error
}

// Error says what happened and when it is tried again, and no credentials.
func (f *Failure) Error() string {
	s := fmt.Sprintf("registry of %s: %s", f.Where, f.Kind)
	if f.Err != nil {
		s += ": " + f.Err.Error()
	}
	if !f.Until.IsZero() {
		s += "; it is asked again at " + f.Until.UTC().Format(time.RFC3339)
	}
	return s
}

// Unwrap gives the cause.
func (f *Failure) Unwrap() error { return f.Err }

func (at Place) failure(k Kind, err error) *Failure {
	return &Failure{Kind: k, Where: at.Repository, Err: err}
}

// failed classifies an error of the transport. The library's message may have the
// address with a query, so only its status is reported.
func (at Place) failed(err error) *Failure {
	var said *transport.Error
	if errors.As(err, &said) {
		if f := at.ofStatus(said.StatusCode, ""); f != nil {
			return f
		}
	}
	var refused *outbound.RefusedError
	if errors.As(err, &refused) {
		return at.failure(Odd, refused)
	}
	return at.failure(Away, plain(err))
}

// plain is the innermost error: those around it repeat the address.
func plain(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// check returns the error of a response, nil if there is none.
func (at Place) check(a *answer, path string) error {
	if a.status == http.StatusOK || a.status == http.StatusNotModified {
		return nil
	}
	if f := at.ofStatus(a.status, path); f != nil {
		return f
	}
	return at.failure(Odd, fmt.Errorf("it answers with status %d", a.status))
}

func (at Place) ofStatus(status int, path string) *Failure {
	text := fmt.Errorf("it answers with status %d %s", status, http.StatusText(status))
	switch {
	case status == http.StatusTooManyRequests:
		return at.failure(Limited, text)
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return at.failure(Denied, text)
	case status == http.StatusNotFound && strings.HasPrefix(path, "manifests/"):
		return at.failure(TagDeleted, fmt.Errorf("it has no %s", strings.TrimPrefix(path, "manifests/")))
	case status == http.StatusNotFound:
		return at.failure(RepositoryGone, text)
	case status >= 500:
		return at.failure(Away, text)
	}
	return nil
}

const (
	// firstRest after a fault; it doubles up to longestRest.
	firstRest   = 15 * time.Second
	longestRest = time.Hour
)

// rest of one registry: until when it is left alone, and why.
type rest struct {
	faults int
	until  time.Time
	last   *Failure
}

// mayAsk refuses while a registry is to be left alone.
func (p *Poller) mayAsk(host string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.hosts[host]
	if r == nil || r.last == nil || !p.now().Before(r.until) {
		return nil
	}
	again := *r.last
	again.Until = r.until
	return &again
}

// note keeps what an answer means for the next question.
func (p *Poller) note(host string, a *answer, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.hosts[host]
	if r == nil {
		r = &rest{}
		p.hosts[host] = r
	}
	var f *Failure
	if !errors.As(err, &f) || f.Kind != Away && f.Kind != Limited {
		r.faults, r.last = 0, nil
		if wait := spent(a); wait > 0 {
			r.until = p.now().Add(wait)
			r.last = &Failure{Kind: Limited, Where: host, Err: errors.New("the questions it allows are used up")}
		}
		return
	}
	r.faults++
	wait := backOff(host, r.faults)
	if a != nil {
		wait = max(wait, retryAfter(a.header, p.now()))
	}
	r.until, r.last = p.now().Add(wait), f
	f.Until = r.until
}

// backOff doubles, and is a little different for every registry and time, so
// that those who wait for one do not come back together.
func backOff(host string, faults int) time.Duration {
	wait := min(firstRest<<min(faults-1, 10), longestRest)
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, host, faults)
	return wait - wait/10 + time.Duration(h.Sum32()%1000)*wait/5000
}

// retryAfter reads the header of that name, in seconds or as a date; at most a
// day is believed.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := h.Get("Retry-After")
	if s, err := strconv.Atoi(v); err == nil {
		return min(max(0, time.Duration(s)*time.Second), 24*time.Hour)
	}
	if t, err := http.ParseTime(v); err == nil {
		return min(max(0, t.Sub(now)), 24*time.Hour)
	}
	return 0
}

// spent is how long to wait because an answer says that no question is left:
// RateLimit-Remaining: 0 (Docker Hub adds ;w=SECONDS, the window), with
// RateLimit-Reset in seconds if it says so.
func spent(a *answer) time.Duration {
	if a == nil {
		return 0
	}
	remaining, params, _ := strings.Cut(a.header.Get("RateLimit-Remaining"), ";")
	if n, err := strconv.Atoi(strings.TrimSpace(remaining)); err != nil || n > 0 {
		return 0
	}
	if s, err := strconv.Atoi(a.header.Get("RateLimit-Reset")); err == nil && s > 0 {
		return min(time.Duration(s)*time.Second, longestRest)
	}
	window, _ := strconv.Atoi(strings.TrimPrefix(strings.TrimSpace(params), "w="))
	if window <= 0 {
		return time.Minute
	}
	return min(time.Duration(window)*time.Second/10, longestRest)
}
