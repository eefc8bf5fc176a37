// Package loopdevice attaches files as block devices.
//
// Promise: a file is attached to at most one device at a time; a device is only
// detached when the file behind it is the one the caller names, so another
// program's device is never touched.
//
// Called by internal/lab (sticks, taking down) and internal/lab/machine (a
// node's own disk).
//
//	device, err := loop.Attach("/srv/stick.img", loop.Partitions)
//	err = loop.Detach(device.Number, "/srv/stick.img")
package loopdevice
