package main

import (
	"errors"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// isCorrupt reports whether a bundle does not match its digest.
func isCorrupt(err error) bool {
	var c *bundle.CorruptError
	return errors.As(err, &c) || errors.Is(err, bundle.ErrNotBundle)
}
