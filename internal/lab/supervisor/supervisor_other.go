//go:build !linux

package supervisor

import "errors"

// Run fails: see the package for Linux.
func Run(string) error { return errors.New("a lab can only run on Linux") }
