// Package machine is one node of a lab, seen from inside: what is on its disk,
// and how a process becomes it.
//
// Promise: pid 1 of a node is the machine's real systemd in a root of its own. /usr and
// /etc are overlays over the machine's, with the node's changes on the node's disk. /var,
// /root and /opt are on that disk. /run, /tmp and /dev are new at every start, and so is
// the boot id. Everything is mounted in the node's own mount namespace: when pid 1 ends,
// the kernel removes the mounts and the loop device under them. The node changes nothing
// of the machine (services, kernel settings, devices, clock).
//
// A node with an OSImage boots the deployment of libostree that the boot loader's entry on
// its disk names. It has the deployment's /etc, its /usr over the machine's, and the
// entry's kernel arguments in /proc/cmdline. libostree's own unit finalizes a staged
// deployment when systemd shuts down. Firmware and kernel are simulated, and programs that
// the image does not have are the machine's; all else is libostree's.
//
// An OSTreeDisk is installed from an image and read as firmware does: commits, deployments
// and boot entries are libostree's own, and the entry with the highest version boots.
//
// Inputs: a [Machine], written as JSON where the supervisor can read it.
// Called by internal/lab (makes the values) and internal/lab/supervisor (starts
// [Become] in new namespaces).
package machine
