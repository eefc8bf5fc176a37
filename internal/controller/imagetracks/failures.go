package imagetracks

import (
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/registry"
	"github.com/refit-dev/refit/internal/text"
)

// maxFailure is the longest message of a failed poll next to another message, in bytes.
const maxFailure = 400

// failed records why the poll found no image; since when, if it did so before. The registry
// answered, so it counts at once.
func (l *turn) failed(reason, message string) {
	e := &v1alpha1.PollError{Reason: reason, Message: message, Since: toTime(l.now)}
	if old := l.o.Status.PollError; old != nil && old.Reason == reason {
		e.Since = old.Since
	}
	l.status.PollError = e
}

// recordFailure records a poll that failed. It is counted if it may be a blip: see tolerated.
func (l *turn) recordFailure(f *registry.Failure) {
	message := withoutRetryTime(f)
	answered := f.Kind == registry.TagDeleted || f.Kind == registry.RepositoryMissing
	refusedForLong := f.Until.Sub(l.now) >= model.PersistentTime
	old := l.o.Status.PollError
	if answered || refusedForLong || old != nil && old.Count == 0 { // the last: it was reported before
		l.failed(reasonOf(f.Kind), message)
		return
	}
	x := unanswered(l.o.Status.PollError).Add(message, l.now)
	l.status.PollError = &v1alpha1.PollError{Reason: reasonOf(f.Kind), Message: message, Since: toTime(x.Since), Count: int32(x.Count), Last: toTime(x.Last)}
}

// unanswered are the polls without an answer, one after the other, the last one included.
func unanswered(e *v1alpha1.PollError) model.Failures {
	if e == nil || e.Count == 0 {
		return model.Failures{}
	}
	return model.Failures{Count: int(e.Count), Since: timeOf(e.Since), Last: timeOf(e.Last), Message: e.Message}
}

// tolerated is the failure that conditions name and do not report yet, empty if there is none:
// one failed poll may be a blip. A track that approved nothing, or that changed, has nothing to
// stay with.
func (l *turn) tolerated() string {
	f := unanswered(l.status.PollError)
	if f.Count == 0 || f.Persistent() || l.state.Approved == nil || l.o.Status.ObservedGeneration != l.o.Generation {
		return ""
	}
	return text.Truncate("; the last poll "+f.String(), maxFailure)
}

func reasonOf(k registry.Kind) string {
	switch k {
	case registry.RateLimited:
		return v1alpha1.ReasonRegistryRateLimited
	case registry.Unauthorized:
		return v1alpha1.ReasonRegistryUnauthorized
	case registry.TagDeleted, registry.RepositoryMissing:
		return v1alpha1.ReasonTagDeleted
	}
	return v1alpha1.ReasonRegistryUnreachable
}

// withoutRetryTime is a failure without the time at which it is asked again: that would
// change the status at every try.
func withoutRetryTime(f *registry.Failure) string {
	plain := *f
	plain.Until = time.Time{}
	return plain.Error()
}
