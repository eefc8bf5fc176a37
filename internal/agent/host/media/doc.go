// Package media finds the media of this node: block devices, and files that the configuration
// names.
//
// Promise: it mounts nothing and opens nothing for writing. A device counts only if this node's
// own /dev has it with the kernel's device number, so that events about devices of other
// containers are ignored. A replaced device is a new medium: its Key differs.
//
// Removable devices, USB devices and cards are media; others only if the configuration allows
// them. Mounted devices, swap space and parts of volumes never are: a node's disks and the volumes
// of its pods are not for this agent to read. Devices with their bytes on other machines (DRBD,
// RBD, NBD) are media only if the configuration names them. A Key stays while nothing was written,
// so that a device without a bundle is read once. A partition names its disk, so that callers need
// not read both.
//
// Inputs: /sys/class/block, /dev, file names, the kernel's uevents. Outputs:
// Medium values; a call at every change. Caller: the agent's media loop.
package media
