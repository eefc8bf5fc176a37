// Package media finds what is plugged into this node: block devices, and files
// that were named in the configuration.
//
// Promise: nothing is mounted and nothing is opened for writing. A device
// counts only if this node's own /dev has it with the kernel's device number,
// so an event about a device of somebody else is ignored. What was swapped in
// place is a new medium: its Key differs.
//
// Inputs: /sys/class/block, /dev, file names, the kernel's uevents. Outputs:
// Medium values; a call at every change. Caller: the agent half of load.
package media
