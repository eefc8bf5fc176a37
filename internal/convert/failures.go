package convert

import (
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/text"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxFailure is the longest message of a failure that stands next to others, in bytes.
const maxFailure = 500

// Failures returns the failed checks of a status.
func Failures(f *v1alpha1.CheckFailures) model.Failures {
	if f == nil {
		return model.Failures{}
	}
	return model.Failures{Count: int(f.Count), Since: f.Since.Time, Last: f.Last.Time, Message: f.Message}
}

// AddFailure returns the failed checks with one more.
func AddFailure(f *v1alpha1.CheckFailures, message string, now time.Time) *v1alpha1.CheckFailures {
	x := Failures(f).Add(text.Truncate(message, maxFailure), now.Truncate(time.Second))
	return &v1alpha1.CheckFailures{Count: int32(x.Count), Since: metav1.NewTime(x.Since), Last: metav1.NewTime(x.Last), Message: x.Message}
}

// Persistent reports whether conditions change because of the failed checks.
func Persistent(f *v1alpha1.CheckFailures) bool { return f != nil && Failures(f).Persistent() }
