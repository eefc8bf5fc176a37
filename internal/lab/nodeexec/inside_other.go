//go:build !linux

package nodeexec

import "errors"

// Run fails: see the package for Linux.
func Run(string, []string) error { return errors.New("a lab can only run on Linux") }
