//go:build !linux

package supervisor

import "errors"

// RunInNode fails: see the package for Linux.
func RunInNode(string, []string) error { return errors.New("a lab can only run on Linux") }
