package peertransfer

import (
	"errors"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/outbound"
	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/registry"
)

// WrongContentError says that a registry has other content than what was pushed.
type WrongContentError struct {
	// Where is the repository, What the difference.
	Where, What string
}

func (e *WrongContentError) Error() string { return "registry of " + e.Where + ": " + e.What }

// fault is something that no place could answer.
type fault struct {
	err          error
	since, until time.Time
	count        int
}

// RegistryFault is what keeps a bundle from being fetched.
type RegistryFault struct {
	// Kind is what the registry answered; registry.InvalidAnswer also for wrong content.
	Kind    registry.Kind
	Message string
	// Since is when it first failed without a success in between.
	Since time.Time
}

// Fault returns what fails now, nil if nothing does. What concerns all of the bundle comes
// first.
func (r *Registry) Fault() *RegistryFault {
	r.mu.Lock()
	defer r.mu.Unlock()
	var worst *fault
	for blob, f := range r.faults {
		if blob == "" {
			worst = f
			break
		}
		if worst == nil || f.since.Before(worst.since) {
			worst = f
		}
	}
	if worst == nil {
		return nil
	}
	return &RegistryFault{Kind: kindOf(worst.err), Message: worst.err.Error(), Since: worst.since}
}

// kindOf a failure. An address that refit does not connect to cannot be reached.
func kindOf(err error) registry.Kind {
	var f *registry.Failure
	switch {
	case errors.Is(err, outbound.ErrLocal):
		return registry.Unreachable
	case errors.As(err, &f):
		return f.Kind
	}
	return registry.InvalidAnswer
}

// paused returns the last failure while a blob must not be requested.
func (r *Registry) paused(blob string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, key := range []string{"", blob} {
		if f := r.faults[key]; f != nil && now.Before(f.until) {
			return f.err
		}
	}
	return nil
}

// Settle drops all faults: nothing is wanted of the registry any more.
func (r *Registry) Settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.faults)
}

// succeed ends what failed for a blob. A registry that sends chunks answers again.
func (r *Registry) succeed(blob string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.faults, blob)
	delete(r.faults, "")
}

// fail records that all places failed for a blob. If one of them answers, and does not have the
// blob as it was pushed, only the blob fails: the others may come.
func (r *Registry) fail(blob string, failed []error) error {
	all := make([]string, 0, len(failed))
	err := failed[len(failed)-1]
	for _, e := range failed {
		all = append(all, e.Error())
		if isContent(e) {
			err = e
		}
	}
	key := ""
	if isContent(err) {
		key = blob
	}
	said := &placesError{text: strings.Join(all, "; "), err: err, notHere: key != ""}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	f := r.faults[key]
	if f == nil {
		f = &fault{since: now}
		r.faults[key] = f
	}
	wait := min(r.conf.Retry<<min(f.count, 6), 60*r.conf.Retry)
	f.count++
	f.err, f.until = said, now.Add(wait)
	return said
}

// isContent reports whether a registry answered, and does not have what was pushed.
func isContent(err error) bool {
	switch kindOf(err) {
	case registry.BlobMissing, registry.TagDeleted, registry.RepositoryMissing, registry.InvalidAnswer:
		return true
	}
	return false
}

// placesError is what all places answered.
type placesError struct {
	text    string
	err     error
	notHere bool
}

func (e *placesError) Error() string { return e.text }

func (e *placesError) Unwrap() error { return e.err }

// Is makes a blob that the registries do not have peerapi.ErrNotHere: Fetch asks for other
// chunks meanwhile.
func (e *placesError) Is(target error) bool { return e.notHere && target == peerapi.ErrNotHere }
