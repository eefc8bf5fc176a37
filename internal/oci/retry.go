package oci

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

const (
	// tries is how often something is fetched from a registry; the waits between
	// begin with firstWait and grow fourfold.
	tries     = 4
	firstWait = 200 * time.Millisecond
)

// passingError is a failure that may pass by itself.
type passingError struct{ error }

func (e passingError) Unwrap() error { return e.error }

// Passing marks a failure that may pass by itself, for Retry. What a registry
// says about the request (not there, not allowed) does not pass.
func Passing(err error) error {
	var said *transport.Error
	if err == nil || errors.As(err, &said) && said.StatusCode >= 400 && said.StatusCode < 500 && said.StatusCode != http.StatusTooManyRequests {
		return err
	}
	return passingError{err}
}

// Retry does f, and again while its error is Passing and the store is a
// registry.
func Retry(ctx context.Context, s Store, f func() error) error {
	wait := firstWait
	for try := 1; ; try++ {
		err := f()
		var p passingError
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
