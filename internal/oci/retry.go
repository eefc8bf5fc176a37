package oci

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

const (
	// tries is how often something is fetched from a registry; the pauses in between
	// start with firstWait and grow fourfold.
	tries     = 4
	firstWait = 200 * time.Millisecond
)

// transientError is a failure that may go away by itself.
type transientError struct{ error }

func (e transientError) Unwrap() error { return e.error }

// Transient marks a failure that may go away by itself, for Retry. A registry's answer about
// the request (not there, not allowed) is not transient.
func Transient(err error) error {
	var said *transport.Error
	if err == nil || errors.As(err, &said) && said.StatusCode >= 400 && said.StatusCode < 500 && said.StatusCode != http.StatusTooManyRequests {
		return err
	}
	return transientError{err}
}

// Retry calls f, and again while its error is Transient and the store is a registry.
func Retry(ctx context.Context, s Store, f func() error) error {
	wait := firstWait
	for try := 1; ; try++ {
		err := f()
		var p transientError
		if !errors.As(err, &p) || !IsRemote(s) || try == tries {
			return err
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
		}
		wait *= 4
	}
}
