// Package bundlemedium puts bundles on sticks and disks.
//
// Promise: Write refuses a device that is in use or too small before it writes
// anything, writes the first block last (so that an interrupted copy does not
// pass for a bundle), and reads back from the medium all that it wrote.
//
// Inputs: a bundle in a file or on a device, a block device or a path. Output:
// the bundle, raw from the first byte on. Callers: the CLI, the lab.
package bundlemedium
