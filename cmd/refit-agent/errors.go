package main

import (
	"errors"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// isCorrupt: a bundle that is not what its digest says.
func isCorrupt(err error) bool {
	var c *bundle.CorruptError
	return errors.As(err, &c) || errors.Is(err, bundle.ErrNotBundle)
}
