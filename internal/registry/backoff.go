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
	Unreachable       Kind = "unreachable"        // no answer, or a server error
	RateLimited       Kind = "rate limited"       // too many requests: it said to wait
	Unauthorized      Kind = "unauthorized"       // the credentials are missing or do not suffice
	TagDeleted        Kind = "tag deleted"        // the repository answers and has no such tag
	RepositoryMissing Kind = "no such repository" // it answers and has no such repository
	BlobMissing       Kind = "blob missing"       // the repository answers and has no such blob
	InvalidAnswer     Kind = "invalid answer"     // an answer that no registry gives
)

// Failure is a failed request.
type Failure struct {
	Kind Kind
	// Where is the repository.
	Where string
	// Until is when it is asked again; zero if it may be at once.
	Until time.Time
	Err   error
}

// Error says what happened and when it is retried. It has no credentials.
func (f *Failure) Error() string {
	s := fmt.Sprintf("registry of %s: %s", f.Where, f.Kind)
	if f.Err != nil {
		s += ": " + f.Err.Error()
	}
	if !f.Until.IsZero() {
		s += "; next try at " + f.Until.UTC().Format(time.RFC3339)
	}
	return s
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

func (at Place) failure(k Kind, err error) *Failure {
	return &Failure{Kind: k, Where: at.Repository, Err: err}
}

// classify makes a Failure of an error of the transport. The library's message may have the
// address with a query, so only its status is reported.
func (at Place) classify(err error) *Failure {
	var said *transport.Error
	if errors.As(err, &said) {
		if f := at.failureForStatus(said.StatusCode, ""); f != nil {
			return f
		}
	}
	var refused *outbound.RefusedError
	if errors.As(err, &refused) {
		return at.failure(InvalidAnswer, refused)
	}
	return at.failure(Unreachable, innermost(err))
}

// innermost is the innermost error: those around it repeat the address.
func innermost(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// checkStatus returns the error of a response, nil if there is none.
func (at Place) checkStatus(a *answer, path string) error {
	if a.status == http.StatusOK || a.status == http.StatusNotModified {
		return nil
	}
	if f := at.failureForStatus(a.status, path); f != nil {
		return f
	}
	return at.failure(InvalidAnswer, fmt.Errorf("it answers with status %d", a.status))
}

func isDenied(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

func (at Place) failureForStatus(status int, path string) *Failure {
	text := fmt.Errorf("it answers with status %d %s", status, http.StatusText(status))
	switch {
	case status == http.StatusTooManyRequests:
		return at.failure(RateLimited, text)
	case isDenied(status):
		return at.failure(Unauthorized, text)
	case status == http.StatusNotFound && strings.HasPrefix(path, "manifests/"):
		return at.failure(TagDeleted, fmt.Errorf("it has no %s", strings.TrimPrefix(path, "manifests/")))
	case status == http.StatusNotFound:
		return at.failure(RepositoryMissing, text)
	case status >= 500:
		return at.failure(Unreachable, text)
	}
	return nil
}

const (
	// firstBackoff is the pause after a fault; it doubles up to maxBackoff.
	firstBackoff = 15 * time.Second
	maxBackoff   = time.Hour
)

// backoffState is the pause for one registry: until when, and why.
type backoffState struct {
	faults int
	until  time.Time
	last   *Failure
}

// checkBackoff returns the last failure while a registry must not be asked.
func (p *Poller) checkBackoff(host string) error {
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

// recordAnswer sets the pause before the next request.
func (p *Poller) recordAnswer(host string, a *answer, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.hosts[host]
	if r == nil {
		r = &backoffState{}
		p.hosts[host] = r
	}
	var f *Failure
	if !errors.As(err, &f) || f.Kind != Unreachable && f.Kind != RateLimited {
		r.faults, r.last = 0, nil
		if wait := exhaustedFor(a); wait > 0 {
			r.until = p.now().Add(wait)
			r.last = &Failure{Kind: RateLimited, Where: host, Err: errors.New("its request limit is used up")}
		}
		return
	}
	r.faults++
	wait := backoffTime(host, r.faults)
	if a != nil {
		wait = max(wait, retryAfter(a.header, p.now()))
	}
	r.until, r.last = p.now().Add(wait), f
	f.Until = r.until
}

// backoffTime doubles, and differs a little by registry and time, so that waiting clients do
// not return together.
func backoffTime(host string, faults int) time.Duration {
	wait := min(firstBackoff<<min(faults-1, 10), maxBackoff)
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, host, faults)
	return wait - wait/10 + time.Duration(h.Sum32()%1000)*wait/5000
}

// retryAfter reads the header of that name, in seconds or as a date; at most a day counts.
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

// exhaustedFor is how long to wait because an answer says that no request is left:
// RateLimit-Remaining: 0 (Docker Hub adds ;w=SECONDS, the window), with
// RateLimit-Reset in seconds if the registry sends it.
func exhaustedFor(a *answer) time.Duration {
	if a == nil {
		return 0
	}
	remaining, params, _ := strings.Cut(a.header.Get("RateLimit-Remaining"), ";")
	if n, err := strconv.Atoi(strings.TrimSpace(remaining)); err != nil || n > 0 {
		return 0
	}
	if s, err := strconv.Atoi(a.header.Get("RateLimit-Reset")); err == nil && s > 0 {
		return min(time.Duration(s)*time.Second, maxBackoff)
	}
	window, _ := strconv.Atoi(strings.TrimPrefix(strings.TrimSpace(params), "w="))
	if window <= 0 {
		return time.Minute
	}
	return min(time.Duration(window)*time.Second/10, maxBackoff)
}
