//go:build !linux

package kernel

import "errors"

func killMember(int, string) {}

// MountCgroups fails: control groups exist on Linux only.
func MountCgroups(string, []CgroupHierarchy) error {
	return errors.New("control groups exist on Linux only")
}
