//go:build !linux

package cgroups

import "errors"

func killMember(int, string) {}

// MountInside fails: control groups exist on Linux only.
func MountInside(string, []Hierarchy) error {
	return errors.New("control groups exist on Linux only")
}
