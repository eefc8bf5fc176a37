//go:build !linux

package loopdevice

import "errors"

var errLinux = errors.New("loop devices exist on Linux only")

// Option changes how a file is attached.
type Option uint32

// Options, without effect here.
const (
	Partitions Option = 1 << iota
	AutoDetach
)

// Device is an attached file.
type Device struct{ Number int }

// Node is a device file to be made for an attached file or a partition on it.
type Node struct {
	Name   string
	Device uint64
}

// Path is the device in the machine's own /dev.
func (*Device) Path() string { return "" }

// Close lets go of the device.
func (*Device) Close() error { return nil }

// Attach fails: see the package for Linux.
func Attach(string, ...Option) (*Device, error) { return nil, errLinux }

// Attached lists nothing.
func Attached(string) []int { return nil }

// AttachedBelow lists nothing.
func AttachedBelow(string) map[int]string { return nil }

// Detach has nothing to do.
func Detach(int, string) error { return nil }

// Nodes lists nothing.
func Nodes(int) []Node { return nil }

// Announce fails: see the package for Linux.
func Announce(int) error { return errLinux }
