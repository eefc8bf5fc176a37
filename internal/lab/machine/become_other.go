//go:build !linux

package machine

import "errors"

// Become fails: see the package for Linux.
func Become(string) error { return errors.New("a node of a lab can only run on Linux") }
