//go:build !linux

package kernel

import "errors"

var errLinux = errors.New("loop devices exist on Linux only")

// LoopOption changes how a file is attached.
type LoopOption uint32

// Options, without effect here.
const (
	Partitions LoopOption = 1 << iota
	AutoDetach
)

// LoopDevice is an attached file.
type LoopDevice struct{ Number int }

// DeviceNode is a device file to be made for an attached file or a partition on it.
type DeviceNode struct {
	Name   string
	Device uint64
}

// Path is the device in the machine's own /dev.
func (*LoopDevice) Path() string { return "" }

// Close lets go of the device.
func (*LoopDevice) Close() error { return nil }

// AttachLoop fails: see the package for Linux.
func AttachLoop(string, ...LoopOption) (*LoopDevice, error) { return nil, errLinux }

// LoopsOf lists nothing.
func LoopsOf(string) []int { return nil }

// LoopsBelow lists nothing.
func LoopsBelow(string) map[int]string { return nil }

// DetachLoop has nothing to do.
func DetachLoop(int, string) error { return nil }

// LoopNodes lists nothing.
func LoopNodes(int) []DeviceNode { return nil }

// AnnounceLoop fails: see the package for Linux.
func AnnounceLoop(int) error { return errLinux }
