// Package media finds what is plugged into this node: block devices, and files
// that were named in the configuration.
//
// Promise: nothing is mounted and nothing is opened for writing. A device
// counts only if this node's own /dev has it with the kernel's device number,
// so an event about a device of somebody else is ignored. What was swapped in
// place is a new medium: its Key differs.
//
// Removable devices, those on USB and cards are media; others only if the configuration
// allows them. What is mounted, swap space, or part of a volume never is, nor is a
// device whose bytes are on other machines (DRBD, RBD, NBD) unless it is named: a node's
// disks and the volumes of its pods are not for this agent to read. A Key stays while
// nothing was written, so that a device without a bundle is read once.
//
// Inputs: /sys/class/block, /dev, file names, the kernel's uevents. Outputs:
// Medium values; a call at every change. Caller: the agent half of load.
package media
